"""The records of a scheduler's tables: workers and attempts.

A worker's record owns the attempts that are out with it, its registration and the book of its
slots; an attempt knows its task's place, and whose slots it is out in.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

from mycel.core.identifiers import AttemptId, LeaseId, PeerId
from mycel.core.matching import Member, Pool
from mycel.core.messages import Outcome
from mycel.core.model.jobs import Block, Job, TaskKey
from mycel.core.model.resources import Capabilities, Usage
from mycel.core.model.work import Shape
from mycel.core.scheduler.tasks.shape_queue import ShapeQueue, share_of
from mycel.core.scheduler.workers.reliability import WorkerHealth
from mycel.core.scheduler.workers.slot_books import Book, Slots, room_of
from mycel.core.states import (
    ATTEMPT,
    LEASE,
    TASK,
    WORKER,
    AttemptState,
    AttemptStep,
    LeaseState,
    LeaseStep,
    TaskState,
    TaskStep,
    WorkerState,
    WorkerStep,
)

AGE_SECONDS_MAX: Final = 1e9
"""Longer ago nothing can have begun that is still of interest."""


def believed(moment: float, now: float) -> float:
    """A time that a worker names, if it can be: clients are shown it, as a date."""
    return moment if now - AGE_SECONDS_MAX <= moment <= now else now


class Attempt:
    __slots__ = (
        "block",
        "id",
        "index",
        "job",
        "key",
        "number",
        "progress",
        "sent_at",
        "slots",
        "started_at",
        "state",
        "task_state",
        "was_long",
        "worker",
    )

    def __init__(
        self,
        attempt: AttemptId,
        key: TaskKey,
        block: Block,
        index: int,
        slots: Slots,
        number: int,
        sent_at: float,
    ) -> None:
        self.id = attempt
        self.key = key
        self.block = block
        self.job: Job = block.job
        self.index = index
        self.worker: Worker = slots.worker
        self.slots = slots
        self.number = number
        self.sent_at = sent_at
        """Or taken over, by an attempt of an earlier boot."""
        self.started_at: float | None = None
        self.state = AttemptState.ASSIGNED
        self.task_state = TaskState.LEASED
        self.progress = b""
        """JSON: what it has reported last."""
        self.was_long = False
        """It was told to have started: something may be kept of it beside the journal."""

    def start(self, started_at: float, now: float) -> None:
        self.state = ATTEMPT[self.state, AttemptStep.START]
        self.was_long = True
        if self.task_state is TaskState.LEASED:
            self.task_state = TASK[self.task_state, TaskStep.START]
        self.started_at = believed(started_at, now)

    def end(self, step: AttemptStep, task_step: TaskStep) -> None:
        self.state = ATTEMPT[self.state, step]
        self.task_state = TASK[self.task_state, task_step]


class Hasher(Protocol):
    def update(self, data: bytes, /) -> object: ...
    def digest(self) -> bytes: ...


class Fetching:
    """A value that comes piece by piece."""

    __slots__ = ("asked_at", "attempt", "clock_offset", "hasher", "outcome", "received")

    def __init__(
        self, attempt: Attempt, outcome: Outcome, clock_offset: float, hasher: Hasher
    ) -> None:
        self.attempt = attempt
        self.outcome = outcome
        self.clock_offset = clock_offset
        self.hasher = hasher
        self.received = 0
        self.asked_at: float | None = None
        """When a part of it was last asked for."""


class Call:
    """A known worker that was dialled because tasks of this shape wait."""

    __slots__ = ("shape", "slots")

    def __init__(self, shape: Shape, slots: int) -> None:
        self.shape = shape
        """Not its queue: that may be forgotten, and another in its place, before it answers."""
        self.slots = slots


class Registration:
    """A worker's, by which it may be booked: the scheduler's lease of it."""

    __slots__ = ("ends_at", "id", "state")

    def __init__(self, lease: LeaseId, ends_at: float, state: LeaseState = LeaseState.HELD) -> None:
        self.id = lease
        self.ends_at = ends_at
        self.state = state

    @property
    def is_held(self) -> bool:
        return self.state is LeaseState.HELD

    def step(self, step: LeaseStep) -> None:
        self.state = LEASE[self.state, step]


class Worker:
    """A worker as a scheduler sees it."""

    def __init__(
        self, peer: PeerId, state: WorkerState, health: WorkerHealth | None = None
    ) -> None:
        self.peer = peer
        self.state = state
        self.health = health or WorkerHealth()
        self.boot = 0
        self.name = ""
        self.capabilities = Capabilities()
        self.accepting = True
        self.usage: Usage | None = None
        """What of its machine is in use, by whomever; None if it does not say."""
        self.closed_for = ""
        """Why it is not accepting."""
        self.addresses: tuple[str, ...] = ()
        self.software_version = ""
        self.rtt_seconds: float | None = None
        self.last_heard: float | None = None
        self.missed = 0
        self.registration: Registration | None = None
        """None while it has none, and may not be booked."""
        self.book = Book()
        self.attempts: dict[AttemptId, Attempt] = {}
        """In the order in which they were sent: those in front may have started."""
        self.to_acknowledge: list[AttemptId] = []
        self.unaccepted: deque[tuple[AttemptId, int, float]] = deque()
        """(first, count, sent at) of assignments that nobody has confirmed yet."""
        self.excluded: dict[Shape | str, str] = {}
        """Shapes and users for which it is left out for a while, and why."""
        self.freed_by: ShapeQueue | None = None
        """Which shape had the slot that is free now…"""
        self.has_news = True
        """…or it has more than a free slot: all that wait are looked at."""
        self.lacks_room: set[Shape] = set()
        """Of those, the shapes that it had no room for."""
        self.member: Member | None = None
        """Its place in the pool, once it has said what it can do."""
        self.running_for_others = 0
        """Attempts of other schedulers, when it last spoke of its load."""
        self.compared = 0
        """Tasks whose duration was compared with the usual one of their shape."""
        self.relative_seconds = 1.0
        """How long its tasks take, 1 being usual for each of their shapes."""
        self.facts: dict[str, tuple[str, float]] = {}
        """Presence, capabilities and load: who said so, and when."""

    def step(self, step: WorkerStep) -> None:
        self.state = WORKER[self.state, step]

    def compare(self, relative: float, count: int) -> None:
        """So many tasks took so long, 1 being usual."""
        self.compared += count
        share = share_of(count, self.compared)
        self.relative_seconds += share * (relative - self.relative_seconds)

    @property
    def running(self) -> int:
        return self.running_for_others + self.book.out

    def bring_up_to_date(self, pool: Pool) -> None:
        if self.member is None:
            return
        rate = self.health.success_rate
        if rate is not None:
            pool.measure(self.member, rate, self.relative_seconds)
        pool.report(self.member, room_of(self), self.running, self.usage)

    @property
    def is_healthy(self) -> bool:
        return self.state is WorkerState.HEALTHY

    @property
    def may_be_booked(self) -> bool:
        registered = self.registration is not None and self.registration.is_held
        return self.is_healthy and self.accepting and registered

    @property
    def is_idle(self) -> bool:
        """Healthy, and nothing of it is wanted or owed."""
        return self.is_healthy and not self.attempts and not self.to_acknowledge
