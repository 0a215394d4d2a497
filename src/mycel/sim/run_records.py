"""What a run of the reference engine is given, and what it notes."""

from __future__ import annotations

from dataclasses import dataclass

from .entities import NS_PER_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a run needs besides servers and jobs."""

    seed: int = 1
    schedulers: int = 1
    detection_ns: int = 500 * NS_PER_MS
    """After this long a dead server is known to be dead, and an unanswered message is given up."""
    keeps_progress: bool = False
    """Whether a preempted task goes on where it was."""
    sample_ns: int = 0
    """How often to note utilisation and queues; 0 for never."""


@dataclass(slots=True)
class Counters:
    messages: int = 0
    completions: int = 0
    bytes: int = 0
    undelivered: int = 0
    preemptions: int = 0
    losses: int = 0
    events: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """The cluster at one moment."""

    time_ns: int
    cores_busy_milli: int
    gpus_busy_milli: int
    tasks_running: int
    tasks_waiting: int
    servers_up: int
    gpus_stranded_milli: int
    """Free GPU shares on servers without a free core: nothing can use them."""
    switch_bits: dict[str, float]
    """What job data each switch has carried so far."""
