"""What to reserve for tasks that name no resources: what their kind was seen to use.

A kind is what tasks run: a function, a command as it was submitted, an image. Of each the most
that one of its tasks used is kept, in coarse steps, so that the shape of a job does not change
with every run; what needs no more than one core and little memory is not kept at all.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec

from mycel.core.journal import ProfileSeen
from mycel.core.model.resources import Requirements
from mycel.core.model.work import Work

KINDS_MAX: Final = 1_000
CORES_MAX: Final = 4096
"""No task is believed to have used more."""
KIND_CHARACTERS_MAX: Final = 500
LITTLE_MEMORY_BYTES: Final = 200 << 20
"""Reserved for nobody: an idle interpreter is not much smaller."""
HEADROOM: Final = 1.25
SHORT_SECONDS: Final = 0.5
"""A task that ran no longer says nothing about cores."""


def kind_of(work: Work) -> str:
    what = work.function or work.image or work.model
    return f"{work.driver} {what} {' '.join(work.command)}"[:KIND_CHARACTERS_MAX]


def memory_step(peak_bytes: int) -> int:
    """With some headroom, up to the next power of two; 0 if it is not worth a reservation."""
    if peak_bytes < LITTLE_MEMORY_BYTES:
        return 0
    return 1 << math.ceil(math.log2(peak_bytes * HEADROOM))


def cores_step(cpu_seconds: float, seconds: float) -> int:
    if seconds < SHORT_SECONDS:
        return 1
    return min(CORES_MAX, max(1, math.ceil(cpu_seconds / seconds - 0.3)))


def tells_of_needs(peak_bytes: int, seconds: float) -> bool:
    """Most tasks are too small and short to say anything, and many."""
    return peak_bytes >= LITTLE_MEMORY_BYTES or (peak_bytes > 0 and seconds >= SHORT_SECONDS)


class Profiles:
    def __init__(self) -> None:
        self._seen: dict[str, ProfileSeen] = {}
        """The one that changed last is at the end."""

    def restore(self, seen: list[ProfileSeen]) -> None:
        self._seen = {one.kind: one for one in sorted(seen, key=lambda one: one.seen_at)}

    def of(self, work: Work) -> Requirements | None:
        """What its kind was seen to use; None if that is nothing special."""
        if not self._seen:
            return None
        seen = self._seen.get(kind_of(work))
        if seen is None:
            return None
        return Requirements(cpu_cores=float(seen.cpu_cores), min_memory=seen.memory)

    def observe(
        self, work: Work, peak_bytes: int, cpu_seconds: float, seconds: float, now_unix: float
    ) -> ProfileSeen | None:
        """What is to be written down, if this task used more than its kind was known to."""
        memory, cores = memory_step(peak_bytes), cores_step(cpu_seconds, seconds)
        if not memory and cores == 1:
            return None
        kind = kind_of(work)
        before = self._seen.get(kind)
        if before is not None:
            memory, cores = max(memory, before.memory), max(cores, before.cpu_cores)
            if (memory, cores) == (before.memory, before.cpu_cores):
                return None
            del self._seen[kind]
        elif len(self._seen) >= KINDS_MAX:
            del self._seen[next(iter(self._seen))]
        seen = self._seen[kind] = ProfileSeen(kind, memory, cores, now_unix)
        return seen


def with_profile(asked: Requirements, profile: Requirements) -> Requirements:
    """The resources of a profile, with the constraints that were asked for."""
    return msgspec.structs.replace(
        asked, cpu_cores=profile.cpu_cores, min_memory=profile.min_memory
    )
