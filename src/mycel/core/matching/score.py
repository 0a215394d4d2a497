"""What speaks for and against a worker, in seconds.

A task goes to where it is expected to be done first, where money, risk and waste count as time
too. The algorithm `best` orders workers by the sum of these terms:

| term            | seconds                                                                    |
|-----------------|----------------------------------------------------------------------------|
| `wait`          | until it has room                                                          |
| `contention`    | the share of it that is taken × what the task takes × `contention`         |
| `history`       | how much longer than usual its tasks take, with those it has to repeat     |
| `price`         | what the task would cost × `price_seconds`                                 |
| `transfer`      | bytes of the task's files that are not there ÷ the measured bandwidth      |
| `round_trips`   | its RTT × `round_trips`                                                     |
| `start`         | what a cold environment takes, and `link_seconds` without a link           |
| `fragmentation` | the GPUs and memory it would leave unused × what the task takes            |

The first five are of the worker and the shape, so that indexes can keep workers in about this
order; `transfer` is of the single task, and orders the first few of them anew.
"""

from __future__ import annotations

from math import log2
from typing import Final, NamedTuple

import msgspec

from mycel.core.model.prices import price_of, share_taken
from mycel.core.model.resources import USAGE_STEPS, Requirements
from mycel.core.ranges import Amount

from .rank_terms import Member, waste_floor

RERANKED: Final = 16
"""So many of those that indexes put first are ordered by all their terms."""
EXPECTED_SECONDS: Final = 1.0
"""What a task is expected to take if nobody knows."""
RTT_SECONDS: Final = 0.05
"""Of a worker that was not measured."""
BANDWIDTH: Final = 10_000_000.0
"""Bytes a second, likewise."""
_HISTORY_MAX: Final = 10.0
"""However bad its history, no worker counts as more than ten times as slow."""
_WASTE_STEPS: Final = 4


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """What a term counts; 0 leaves it out."""

    price_seconds: Amount = 3600.0
    """So many seconds of waiting are worth one unit of price."""
    contention: Amount = 0.1
    """A task on a machine that others fill takes so much longer, as a share."""
    history: Amount = 1.0
    transfer: Amount = 1.0
    round_trips: Amount = 2.0
    """There with the task, back with the result."""
    start_seconds: Amount = 0.02
    """To start the first task of a kind on a worker…"""
    prepare_seconds: Amount = 2.0
    """…and if it brings packages or an image along."""
    link_seconds: Amount = 0.2
    """To call a worker without a link."""
    fragmentation: Amount = 0.2


class Terms(NamedTuple):
    """In seconds, weighted."""

    wait: float = 0.0
    contention: float = 0.0
    history: float = 0.0
    price: float = 0.0
    transfer: float = 0.0
    round_trips: float = 0.0
    start: float = 0.0
    fragmentation: float = 0.0

    @property
    def total(self) -> float:
        return sum(self)


def terms_of(
    member: Member,
    need: Requirements,
    weights: Weights,
    *,
    expected_seconds: float | None,
    wait_seconds: float = 0.0,
    bytes_missing: int = 0,
    start_seconds: float = 0.0,
) -> Terms:
    """Of one task that needs so much, on this worker."""
    takes = EXPECTED_SECONDS if expected_seconds is None else expected_seconds
    has = member.capabilities
    taken = share_taken(member.total, member.expected)
    return Terms(
        wait_seconds,
        weights.contention * max(_crowd(member, taken), _named_taken(member, need)) * takes,
        weights.history * takes * _slower(member.score),
        weights.price_seconds * price_of(has.price, need, taken, takes),
        weights.transfer * bytes_missing / (member.bandwidth or BANDWIDTH),
        weights.round_trips * _rtt(member),
        start_seconds + (0.0 if member.linked else weights.link_seconds),
        weights.fragmentation * takes * waste(member, need) / _WASTE_STEPS,
    )


def burden(member: Member, weights: Weights) -> int:
    """What speaks against it for a task of one core and a second, in steps of 19 % above a few
    milliseconds: small changes change no index."""
    taken = share_taken(member.total, member.expected)
    seconds = (
        weights.contention * _crowd(member, taken)
        + weights.history * _slower(member.score)
        + weights.price_seconds * price_of(member.capabilities.price, _REFERENCE, taken, 1.0)
        + weights.round_trips * _rtt(member)
        + (0.0 if member.linked else weights.link_seconds)
    )
    level = round(_STEPS * log2(1.0 + abs(seconds) / _STEP_SECONDS))
    return level if seconds >= 0.0 else -level  # who is quicker than usual makes up for much


_REFERENCE: Final = Requirements(cpu_cores=1.0, min_memory=10**9)
_STEPS: Final = 4
"""To each doubling."""
_STEP_SECONDS: Final = 0.001


def _crowd(member: Member, taken: float) -> float:
    """How much of it is in use, by whomever."""
    usage = member.usage
    return taken if usage is None else max(taken, usage.cpu / USAGE_STEPS)


def _named_taken(member: Member, need: Requirements) -> float:
    """How much is taken of the named resources that the task needs, such as a model's slots."""
    if not need.custom:
        return 0.0
    total, free = dict(member.total.custom), dict(member.expected.custom)
    shares = [1.0 - free.get(name, 0.0) / total[name] for name, _ in need.custom if total.get(name)]
    return max(shares, default=0.0)


def _slower(score: float | None) -> float:
    """0 for the usual pace and for those that were not measured, 1 for twice as slow."""
    return 0.0 if score is None else min(_HISTORY_MAX, 1.0 / score) - 1.0


def _rtt(member: Member) -> float:
    return RTT_SECONDS if member.rtt_seconds is None else member.rtt_seconds


def waste(member: Member, need: Requirements) -> int:
    """0 to 6: what of it such a task would leave unused. GPUs count twice as much as memory."""
    has = member.capabilities
    memory = _steps(has.memory, need.min_memory)
    largest = max((gpu.memory for gpu in has.gpus), default=0)
    if need.gpus is None:
        return memory + (4 if has.gpus else 0)
    return memory + 2 * _steps(largest, need.gpus.memory)


def _steps(has: int, need: int) -> int:
    """0 below twice what is needed, 1 below four times, else 2."""
    floor = waste_floor(need)
    return (has >= 1 << floor) + (has >= 1 << (floor + 1))
