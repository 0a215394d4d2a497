"""How a worker stands at the moment, in whole numbers: small changes change none of them, so
that a stream of load reports leaves the indexes alone.

    load     by the metric that is set, what was just assigned included
    history  success rate over completion time, 1 being usual for its tasks, in steps of 2.4 %
    burden   what speaks against it whatever the task, in seconds, as `score` adds them up
    waste    what of it a task would leave unused: for `best`, the least fragmentation
"""

from __future__ import annotations

from math import log
from typing import Final

from mycel.core.model.resources import USAGE_STEPS, Capabilities, Free, Requirements, Usage, millis

from .indexes import bucket_of
from .slot_counts import left_after, total_of

LOAD_STEPS: Final = USAGE_STEPS
_STEP: Final = log(1.1) / 4
_SCORE_BOUNDS: Final = (1e-6, 1e6)
EQUAL_STEPS: Final = 4
"""Histories within 10 % are equal."""
_SMALL_BYTES: Final = 1 << 33
"""Below 8 GiB nothing is saved by looking closer."""


class Member:
    """A worker in the pool."""

    __slots__ = (
        "assigned",
        "available",
        "bandwidth",
        "capabilities",
        "expected",
        "free",
        "key",
        "linked",
        "local",
        "rtt_seconds",
        "running",
        "score",
        "seen_at",
        "slot",
        "source",
        "total",
        "usage",
    )

    def __init__(self, key: str, slot: int, capabilities: Capabilities) -> None:
        self.key = key
        self.slot = slot
        self.capabilities = capabilities
        self.linked = False
        self.local = False
        """It is in the scheduler's own process or on its machine."""
        self.available = True
        """Healthy, and takes new work."""
        self.rtt_seconds: float | None = None
        self.bandwidth = 0.0
        """Bytes a second, as files were moved there lately; 0 if none were."""
        self.total = total_of(capabilities)
        """All of it, as if nothing were booked."""
        self.free = self.total
        """As it says itself; of one that is not linked, all."""
        self.running = 0
        self.assigned: dict[int, tuple[Requirements, int]] = {}
        """What it was asked for and has not answered yet: requirements and slots by request."""
        self.expected = self.free
        """What is free once it grants what it was asked for."""
        self.score: float | None = None
        self.source = ""
        """Who told of it: `registered`, `dht`…"""
        self.seen_at = 0.0
        self.usage: Usage | None = None
        """What of its machine is in use, by whomever; None if it does not say."""

    @property
    def tasks(self) -> int:
        return self.running + sum(slots for _, slots in self.assigned.values())

    def foresee(self) -> None:
        """What is expected to be free, after a change of what is free or assigned."""
        expected = _sound(self.free, self.capabilities)
        for requirements, slots in self.assigned.values():
            expected = left_after(requirements, self.capabilities, expected, slots)
        self.expected = expected


def _sound(free: Free, capabilities: Capabilities) -> Free:
    """What a worker says is free may not fit what it says it has: nothing is assumed then."""
    count = len(capabilities.gpus)
    if len(free.gpu_millis) == count:
        return free
    padded = (*free.gpu_millis[:count], *(0,) * (count - len(free.gpu_millis)))
    return Free(free.cpu_millis, free.memory, free.disk, padded, free.custom)


# Load


def task_count(member: Member) -> int:
    return bucket_of(member.tasks, 2)


def cpu_usage(member: Member) -> int:
    """What is booked, or what is in use, if that is more: others may use the machine too."""
    total = millis(member.capabilities.cpu_cores)
    booked = _usage(total, member.expected.cpu_millis)
    return booked if member.usage is None else max(booked, member.usage.cpu)


def memory_usage(member: Member) -> int:
    booked = _usage(member.capabilities.memory, member.expected.memory)
    return booked if member.usage is None else max(booked, member.usage.memory)


def _usage(total: int, free: int) -> int:
    used = max(0, total - free)
    return LOAD_STEPS * used // total if total > 0 else LOAD_STEPS


LOAD_METRICS: Final = {
    "task-count": task_count,
    "cpu-usage": cpu_usage,
    "memory-usage": memory_usage,
}


# History


def score_of(success_rate: float, relative_seconds: float) -> float:
    """`relative_seconds`: how long its tasks took, 1 being the mean of each task's shape."""
    low, high = _SCORE_BOUNDS
    return min(high, max(low, success_rate / max(low, relative_seconds)))


def history_level(score: float) -> int:
    return round(log(score) / _STEP)


def mean_level(scores: float, count: int) -> int:
    """Where those stand that were not measured."""
    return history_level(max(_SCORE_BOUNDS[0], scores / count)) if count else 0


# What would be wasted


def waste_floor(need: int) -> int:
    """Twice and four times this is one and two steps of waste; in powers of two."""
    return max(need, _SMALL_BYTES).bit_length()
