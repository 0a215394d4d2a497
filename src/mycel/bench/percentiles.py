"""Medians and percentiles of samples."""

from __future__ import annotations

from collections.abc import Sequence


def percentile(samples: Sequence[float], percent: float) -> float:
    """The smallest sample that so many percent of them do not exceed."""
    assert samples
    assert 0 < percent <= 100
    ordered = sorted(samples)
    rank = -(-len(ordered) * percent // 100)  # rounded up
    return ordered[int(rank) - 1]


def median(samples: Sequence[float]) -> float:
    return percentile(samples, 50)
