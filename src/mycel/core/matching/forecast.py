"""When a worker will have room: from what is free there, and what runs and will end.

ETA 0            it fits now
ETA of seconds   it fits once enough of what runs has ended
None             nobody can tell, or it would not fit into the empty machine
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from mycel.core.model.resources import Capabilities, Free, Requirements, millis

from .slot_counts import gpus_suiting, has_room, total_of

RUNNING_MAX: Final = 4096
"""So many of the attempts that run on one worker are looked at."""
_OVERDUE_SHARE: Final = 0.1
"""What takes longer than usual is expected to take a tenth longer still."""


class RunningTask(NamedTuple):
    need: Requirements
    seconds_left: float


def seconds_left(usual: float | None, limit: float | None, elapsed: float) -> float | None:
    """How much longer a task may take that has run for so long; None if nobody can tell.
    `limit` is its time-out."""
    if usual is None:
        return None if limit is None else max(0.0, limit - elapsed)
    left = max(usual - elapsed, _OVERDUE_SHARE * elapsed)
    return left if limit is None else min(left, max(0.0, limit - elapsed))


def eta_seconds(
    need: Requirements, capabilities: Capabilities, free: Free, running: Iterable[RunningTask]
) -> float | None:
    """When one such task will fit, if nothing else comes."""
    if has_room(need, capabilities, free):
        return 0.0
    if not has_room(need, capabilities, total_of(capabilities)):
        return None
    ending = sorted(running, key=lambda one: one.seconds_left)[:RUNNING_MAX]
    for task in ending:
        free = _after(free, capabilities, task.need)
        if has_room(need, capabilities, free):
            return task.seconds_left
    return None


def _after(free: Free, capabilities: Capabilities, ended: Requirements) -> Free:
    """What is free once such a task has ended; never more than there is."""
    total = total_of(capabilities)
    given = dict(ended.custom)
    there = dict(total.custom)
    return Free(
        cpu_millis=min(total.cpu_millis, free.cpu_millis + millis(ended.cpu_cores)),
        memory=min(total.memory, free.memory + ended.min_memory),
        disk=min(total.disk, free.disk + ended.disk),
        gpu_millis=_gpus_after(free.gpu_millis, capabilities, ended),
        custom=tuple(
            (name, min(there.get(name, 0.0), amount + given.get(name, 0.0)))
            for name, amount in free.custom
        ),
    )


def _gpus_after(
    free: tuple[int, ...], capabilities: Capabilities, ended: Requirements
) -> tuple[int, ...]:
    """The fullest of those that suit it are given back: which they were, nobody is told."""
    wanted = ended.gpus
    if wanted is None:
        return free
    left = list(free)
    owed = millis(wanted.count)
    suiting = gpus_suiting(wanted, capabilities.gpus)
    for index in sorted(suiting, key=lambda one: (left[one], one)):
        back = min(owed, 1000 - left[index])
        left[index] += back
        owed -= back
    return tuple(left)
