"""The records of a worker's tables: grants with their lanes, attempts, and what each
scheduler has not acknowledged yet."""

from __future__ import annotations

from collections import deque

from mycel.core.identifiers import AttemptId, JobId, JobNumber, LaneId, LeaseId, PeerId, RequestId
from mycel.core.machine_settings import WorkerSettings
from mycel.core.messages import Outcome, Request
from mycel.core.model.resources import Booking, Free, Usage
from mycel.core.model.work import Shape, Work
from mycel.core.rights import Rights
from mycel.core.states import GRANT, GrantState, GrantStep


class Held:
    """An attempt that this worker holds."""

    __slots__ = (
        "arguments",
        "authenticator",
        "grant",
        "handed_back",
        "id",
        "index",
        "job",
        "job_id",
        "killed",
        "lane",
        "number",
        "run",
        "started_at",
        "work",
    )

    def __init__(
        self,
        run: AttemptId,
        attempt: AttemptId,
        grant: Grant,
        job: JobNumber,
        job_id: JobId,
        index: int,
        number: int,
        work: Work,
        arguments: bytes,
        authenticator: bytes,
    ) -> None:
        self.run = run
        """This worker's own number for it: attempts of two schedulers may have the same id."""
        self.id = attempt
        self.grant = grant
        self.job = job
        self.job_id = job_id
        self.index = index
        self.number = number
        self.work = work
        self.arguments = arguments
        self.authenticator = authenticator
        """For its scheduler alone: drivers and tasks never see it."""
        self.lane: Lane | None = None
        self.started_at: float | None = None
        self.killed = False
        self.handed_back = False
        """It was stopped for this worker's sake, and goes back to its scheduler."""


class Lane:
    """One slot of a grant, and the slice of the machine that it has booked."""

    __slots__ = ("booking", "held", "id", "is_long", "opened")

    def __init__(self, lane: LaneId, booking: Booking) -> None:
        self.id = lane
        self.booking = booking
        self.held = 0
        """Attempts that the driver has for this lane."""
        self.is_long = False
        """What runs in it has outlived 50 ms: nothing should wait behind it."""
        self.opened = False


class Grant:
    """A lease as the worker that granted it sees it."""

    def __init__(
        self, lease: LeaseId, scheduler: PeerId, shape: Shape, lanes: list[Lane], ends_at: float
    ) -> None:
        self.id = lease
        self.scheduler = scheduler
        self.shape = shape
        self.lanes = lanes
        self.ends_at = ends_at
        self.state = GrantState.GRANTED
        self.waiting: deque[Held] = deque()
        self.rights = Rights()
        """What it was granted on."""
        self.mean_seconds: float | None = None
        self.rate = 0.0
        """What an hour of one of its tasks costs."""

    @property
    def slots(self) -> int:
        return len(self.lanes)

    @property
    def is_open(self) -> bool:
        return self.state is GrantState.GRANTED

    @property
    def is_long(self) -> bool:
        """Long tasks have all of its lanes."""
        return all(lane.is_long for lane in self.lanes)

    def step(self, step: GrantStep) -> None:
        self.state = GRANT[self.state, step]

    def measure(self, seconds: float) -> None:
        if self.mean_seconds is None:
            self.mean_seconds = seconds
        else:
            self.mean_seconds += 0.2 * (seconds - self.mean_seconds)

    def prefetch(self, settings: WorkerSettings) -> int:
        """How many attempts should wait in each lane, so that a few milliseconds of work do."""
        if self.mean_seconds is None:
            return 1
        is_process = self.shape.driver == "process"
        wanted = settings.process_prefetch_seconds if is_process else settings.prefetch_seconds
        cost = self.mean_seconds + settings.prefetch_overhead_seconds
        return min(settings.prefetch_max, int(wanted / cost))

    def window(self, settings: WorkerSettings) -> int:
        """However quick its tasks were so far: nothing waits behind one that takes long."""
        depth = 1 + self.prefetch(settings)
        return sum(1 if lane.is_long else depth for lane in self.lanes)


class OpenRequest:
    """A request that does not fit now: it is answered when it does, or when time is up."""

    __slots__ = ("answer_by", "request", "rights", "scheduler")

    def __init__(
        self, scheduler: PeerId, request: Request, rights: Rights, answer_by: float
    ) -> None:
        self.scheduler = scheduler
        self.request = request
        self.rights = rights
        self.answer_by = answer_by

    @property
    def id(self) -> tuple[PeerId, RequestId]:
        return (self.scheduler, self.request.request)


class Unacknowledged:
    __slots__ = ("outcome", "since", "spooled")

    def __init__(self, outcome: Outcome, since: float, spooled: bool) -> None:
        self.outcome = outcome
        self.since = since
        self.spooled = spooled


class SchedulerRecord:
    """What a worker knows of one scheduler."""

    def __init__(self, peer: PeerId) -> None:
        self.peer = peer
        self.is_up = False
        self.is_welcome = False
        """It has answered our registration. Before that it is told no load: what goes by another
        stream could overtake the registration, which would then undo it."""
        self.is_behind = False
        """There was something to tell before it was welcome."""
        self.held: dict[AttemptId, Held] = {}
        self.outcomes: dict[AttemptId, Unacknowledged] = {}
        self.told: Free | None = None
        """What it believes to be free of this worker; None if it is to be told the whole…"""
        self.told_usage: Usage | None = None
        """…and to be in use."""
