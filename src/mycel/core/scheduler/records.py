"""The records of a scheduler's tables: workers, leases and attempts.

A worker's record owns the attempts that are out with it and the leases held of it; a lease
knows how many attempts are out under it, and an attempt its task's place.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

from mycel.core.identifiers import AttemptId, LeaseId, PeerId, RequestId
from mycel.core.matching import Member, Pool
from mycel.core.messages import Outcome, Wanted
from mycel.core.model.jobs import Block, Job, TaskKey
from mycel.core.model.prices import cost
from mycel.core.model.resources import Capabilities, Free, Usage
from mycel.core.model.work import Shape
from mycel.core.scheduler.tasks.shape_queue import ShapeQueue, share_of
from mycel.core.scheduler.workers.reliability import WorkerHealth
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
        "lease",
        "number",
        "progress",
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
        worker: Worker,
        lease: Lease | None,
        number: int,
    ) -> None:
        self.id = attempt
        self.key = key
        self.block = block
        self.job: Job = block.job
        self.index = index
        self.worker = worker
        self.lease = lease
        self.number = number
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


class Lease:
    """A lease as its holder sees it."""

    def __init__(
        self,
        worker: Worker,
        lease: LeaseId,
        queue: ShapeQueue,
        slots: int,
        window: int,
        now: float,
        ends_at: float,
        state: LeaseState = LeaseState.HELD,
    ) -> None:
        self.worker = worker
        self.id = lease
        self.queue = queue
        self.slots = slots
        self.window = window
        self.state = state
        self.ends_at = ends_at
        self.held_since = now
        self.idle_since = now
        self.outstanding = 0
        self.target_slots = slots
        """While it yields: what is to be left."""
        self.floor = 0.0
        self.rate = 0.0
        """What its tasks cost at least, and what an hour of one costs."""
        self.wanted: Wanted | None = None
        self.unaccepted: deque[tuple[AttemptId, int, float]] = deque()
        """(first, count, sent at) of assignments that nobody has confirmed yet."""
        self.is_proven = False
        """A task under it has succeeded, so the lease itself is in the journal."""

    @property
    def key(self) -> tuple[PeerId, LeaseId]:
        return (self.worker.peer, self.id)

    @property
    def is_over(self) -> bool:
        return self.state is LeaseState.OVER

    def cost(self, seconds: float) -> float:
        """Of an attempt that took so long."""
        return cost(self.floor, self.rate, seconds) if self.floor or self.rate else 0.0

    def step(self, step: LeaseStep) -> None:
        self.state = LEASE[self.state, step]


class Asked:
    """A request for a lease that has not been answered."""

    __slots__ = ("queue", "request", "slots", "worker")

    def __init__(self, request: RequestId, worker: Worker, queue: ShapeQueue, slots: int) -> None:
        self.request = request
        self.worker = worker
        self.queue = queue
        self.slots = slots


class Call:
    """A known worker that was dialled because tasks of this shape wait."""

    __slots__ = ("shape", "slots")

    def __init__(self, shape: Shape, slots: int) -> None:
        self.shape = shape
        """Not its queue: that may be forgotten, and another in its place, before it answers."""
        self.slots = slots


class Worker:
    """A worker as a scheduler sees it: a hint, until it grants a lease."""

    def __init__(
        self, peer: PeerId, state: WorkerState, health: WorkerHealth | None = None
    ) -> None:
        self.peer = peer
        self.state = state
        self.health = health or WorkerHealth()
        self.boot = 0
        self.name = ""
        self.capabilities = Capabilities()
        self.free = Free()
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
        self.leases: dict[LeaseId, Lease] = {}
        self.attempts: dict[AttemptId, Attempt] = {}
        """In the order in which they were sent: those in front may have started."""
        self.to_acknowledge: list[AttemptId] = []
        self.asked: dict[Shape, Asked] = {}
        self.refused: dict[Shape, str] = {}
        """What it was asked for a moment ago and why it was of no use; the longest refused
        first."""
        self.shunned: set[Shape] = set()
        """Of those, what it failed at and did not say no to: its news change nothing."""
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
        return self.running_for_others + len(self.attempts)

    def bring_up_to_date(self, pool: Pool) -> None:
        if self.member is None:
            return
        pool.set_running(self.member, self.running)
        rate = self.health.success_rate
        if rate is not None:
            pool.measure(self.member, rate, self.relative_seconds)

    @property
    def is_healthy(self) -> bool:
        return self.state is WorkerState.HEALTHY

    @property
    def is_idle(self) -> bool:
        """Healthy, and nothing of it is wanted or owed."""
        busy = self.leases or self.attempts or self.asked or self.to_acknowledge
        return self.is_healthy and not busy

    @property
    def held_slots(self) -> int:
        return sum(lease.slots for lease in self.leases.values())
