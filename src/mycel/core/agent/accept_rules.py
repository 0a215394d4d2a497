"""Which of the waiting jobs the agent submits now. Rules by name; further ones are plug-ins.

A rule only orders and picks. That no more than `room` elements are out at once, and that nobody
waits for ever, the machine sees to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from .attempts import AttemptName
from .batch_jobs import ClusterJob


class WaitingJob(msgspec.Struct, frozen=True):
    attempt: AttemptName
    job: ClusterJob
    waited_seconds: float


class Room(msgspec.Struct, frozen=True):
    elements: int
    """So many more may be handed to the batch system."""
    idle_cores: int
    """Less what was submitted and has not begun."""


AcceptRule = Callable[[Sequence[WaitingJob], Room], Sequence[AttemptName]]
"""Gets the jobs in the order of their arrival."""


def fifo(waiting: Sequence[WaitingJob], room: Room) -> list[AttemptName]:
    """In order; a large one holds up those behind it."""
    return list(_while_there_is_room(waiting, room))


def priority(waiting: Sequence[WaitingJob], room: Room) -> list[AttemptName]:
    """The most important first; among equals in order."""
    ordered = sorted(waiting, key=lambda one: -one.job.priority)
    return list(_while_there_is_room(ordered, room))


def fits_now(waiting: Sequence[WaitingJob], room: Room) -> list[AttemptName]:
    """Only what idle cores are there for, so that the batch system's queue stays short."""
    picked, elements, cores = [], room.elements, room.idle_cores
    for one in waiting:
        count = len(one.job.indexes)
        if count <= elements and one.job.cores <= cores:
            picked.append(one.attempt)
            elements -= count
            cores -= one.job.cores
    return picked


def _while_there_is_room(waiting: Sequence[WaitingJob], room: Room) -> Iterator[AttemptName]:
    left = room.elements
    for one in waiting:
        left -= len(one.job.indexes)
        if left < 0:
            return
        yield one.attempt


ACCEPT_RULES: Final[Mapping[str, AcceptRule]] = {
    "fifo": fifo,
    "fits-now": fits_now,
    "priority": priority,
}
