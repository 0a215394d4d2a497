"""What can be set of an agent."""

from __future__ import annotations

from typing import Final

import msgspec

LEASE_SECONDS_MIN: Final = 600.0
"""A cluster's jobs outlive its agent, and an agent is restarted more often than a cluster."""


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    lease_seconds: float = LEASE_SECONDS_MIN
    look_seconds: float = 5.0
    """Between looks at the queue. Each is a request that all users of the cluster share."""
    retry_seconds: float = 10.0
    """After the batch system did not do what it was asked."""
    report_seconds: float = 30.0
    """An outcome that nobody acknowledges is reported again."""
    patience_seconds: float = 3600.0
    """What has waited here for so long, before it was submitted, goes back to its origin."""
    settle_seconds: float = 60.0
    """Network file systems show new files so much later at most."""
    submissions_max: int = 5
    """Of one attempt, to a batch system that loses it each time."""
    out_max: int = 1_000
    """Elements in the batch system at once."""
    waiting_max: int = 10_000
    forgotten_max: int = 100_000
    """Names of ended attempts, so that a late message starts none of them again."""
    questions_max: int = 100
