"""The records of a worker's tables: registrations, lanes, attempts, and what each scheduler has
not acknowledged yet."""

from __future__ import annotations

from collections import deque

from mycel.core.identifiers import AttemptId, JobId, JobNumber, LaneId, LeaseId, PeerId, ShapeNumber
from mycel.core.machine_settings import WorkerSettings
from mycel.core.messages import Outcome, Window
from mycel.core.model.resources import Booking, Free, Usage
from mycel.core.model.work import Shape, Work
from mycel.core.rights import Rights
from mycel.core.states import GRANT, GrantState, GrantStep


class Objection:
    """Why something is refused."""

    __slots__ = ("code", "reason")

    def __init__(self, code: str, reason: str) -> None:
        self.code = code
        self.reason = reason


class Registration:
    """The right of one scheduler to book this worker, as the worker sees it."""

    def __init__(self, lease: LeaseId, ends_at: float) -> None:
        self.id = lease
        self.ends_at = ends_at
        self.state = GrantState.GRANTED

    @property
    def is_open(self) -> bool:
        return self.state is GrantState.GRANTED

    def step(self, step: GrantStep) -> None:
        self.state = GRANT[self.state, step]


class Held:
    """An attempt that this worker holds."""

    __slots__ = (
        "arguments",
        "authenticator",
        "budget",
        "handed_back",
        "id",
        "index",
        "is_cost_limited",
        "job",
        "job_id",
        "killed",
        "lane",
        "lanes",
        "lease",
        "number",
        "run",
        "started_at",
        "work",
    )

    def __init__(
        self,
        run: AttemptId,
        attempt: AttemptId,
        lanes: ShapeLanes,
        lease: LeaseId,
        job: JobNumber,
        job_id: JobId,
        index: int,
        number: int,
        work: Work,
        arguments: bytes,
        authenticator: bytes,
        budget: float | None = None,
    ) -> None:
        self.run = run
        """This worker's own number for it: attempts of two schedulers may have the same id."""
        self.id = attempt
        self.lanes = lanes
        self.lease = lease
        """The registration under which it came."""
        self.job = job
        self.job_id = job_id
        self.index = index
        self.number = number
        self.work = work
        self.arguments = arguments
        self.authenticator = authenticator
        """For its scheduler alone: drivers and tasks never see it."""
        self.budget = budget
        """What it may cost at the most."""
        self.is_cost_limited = False
        """Its time-out is what it can pay for."""
        self.lane: Lane | None = None
        self.started_at: float | None = None
        self.killed = False
        self.handed_back = False
        """It was stopped for this worker's sake, and goes back to its scheduler."""

    @property
    def scheduler(self) -> PeerId:
        return self.lanes.scheduler


class Lane:
    """One slot of a shape, and the slice of the machine that it has booked."""

    __slots__ = ("booking", "held", "id", "idle_since", "is_long", "opened", "rate")

    def __init__(self, lane: LaneId, booking: Booking, rate: float) -> None:
        self.id = lane
        self.booking = booking
        self.rate = rate
        """What an hour in it costs."""
        self.held = 0
        """Attempts that the driver has for this lane."""
        self.is_long = False
        """What runs in it has outlived 50 ms: nothing should wait behind it."""
        self.opened = False
        self.idle_since = 0.0


class ShapeLanes:
    """The lanes that run one shape of one scheduler's tasks. Those that are idle stay warm and
    booked until something else needs the room."""

    def __init__(self, scheduler: PeerId, shape: Shape) -> None:
        self.scheduler = scheduler
        self.shape = shape
        self.number = ShapeNumber(1)
        """As its scheduler has introduced it last."""
        self.rights = Rights()
        """By which its tasks run."""
        self.objection: Objection | None = None
        """Why no more of them are taken."""
        self.lanes: list[Lane] = []
        self.slots = 1
        """How many its scheduler has booked."""
        self.waiting: deque[Held] = deque()
        self.mean_seconds: float | None = None

    @property
    def key(self) -> tuple[PeerId, Shape]:
        return (self.scheduler, self.shape)

    @property
    def busy(self) -> list[Lane]:
        return [lane for lane in self.lanes if lane.held]

    @property
    def is_long(self) -> bool:
        """Long tasks have all of its busy lanes."""
        return all(lane.is_long for lane in self.lanes if lane.held)

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

    def window(self, settings: WorkerSettings) -> Window:
        """However quick its tasks were so far: nothing waits behind one that takes long."""
        long = sum(lane.is_long for lane in self.lanes)
        return Window(self.number, 1 + self.prefetch(settings), long)


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
        self.registration: Registration | None = None
        self.shapes: dict[ShapeNumber, ShapeLanes] = {}
        """As this scheduler has introduced them since it was last registered with."""
        self.is_up = False
        self.is_welcome = False
        """It has answered our registration. Before that it is told no load: what goes by another
        stream could overtake the registration, which would then undo it."""
        self.is_behind = False
        """There was something to tell before it was welcome."""
        self.waits_for_room = False
        """It was refused something for want of room…"""
        self.has_room = False
        """…and something was given back since."""
        self.held: dict[AttemptId, Held] = {}
        self.outcomes: dict[AttemptId, Unacknowledged] = {}
        self.told: Free | None = None
        """What it believes to be there for it; None if it is to be told the whole…"""
        self.told_usage: Usage | None = None
        """…and to be in use…"""
        self.told_closed_for = ""
        """…and why nothing is taken."""
        self.told_at = -1.0e9

    @property
    def lease(self) -> LeaseId:
        """Of the registration that is open; 0 if none is."""
        one = self.registration
        return one.id if one is not None and one.is_open else LeaseId(0)
