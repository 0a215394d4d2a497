"""What the machines are told. Events are facts: they have happened.

A scheduler hears of clients (`Submit` … `Forget`), of workers (`LinkUp` … `DialFailed`) and
of time (`Tick`, `WallClock`); a worker of schedulers, of its drivers and of time.
"""

from __future__ import annotations

import msgspec

from mycel.core.model.derivation import Derived
from mycel.core.model.jobs import Specification
from mycel.core.model.resources import Capabilities, ServedModel, Usage
from mycel.core.model.work import Finished

from .authenticators import Secret
from .identifiers import AttemptId, JobId, LaneId, PeerId, RequestId
from .journal import Restored
from .machine_settings import SchedulerSettings
from .messages import CheckpointPart, ControlMessage, Outcome, Text, WorkMessage
from .principal import Principal


class Event(msgspec.Struct, frozen=True):
    """Base of all events."""


# Time, for both


class Tick(Event, frozen=True):
    """`wake_at` has come."""


class WallClock(Event, frozen=True):
    """`unix_offset` is Unix time minus the machine's clock; told at the start and when it has
    moved."""

    unix_offset: float


# Links, for both


class LinkUp(Event, frozen=True):
    peer: PeerId
    heard_by: str = ""
    """How this node came to know the peer."""
    principal: Principal = Principal()


class LinkDown(Event, frozen=True):
    peer: PeerId
    cause: str


class Received(Event, frozen=True):
    peer: PeerId
    message: WorkMessage | ControlMessage
    arrived_at: float


class HeartbeatReceived(Event, frozen=True):
    peer: PeerId
    peer_clock: float
    arrived_at: float


class SilenceNoticed(Event, frozen=True):
    """No byte for longer than a check may take; told again while it lasts."""

    peer: PeerId
    seconds: float


class DialFailed(Event, frozen=True):
    peer: PeerId
    refused: bool
    """Something answered at a direct address that nobody listens there."""


class CheckAnswered(Event, frozen=True):
    """A worker without a link has given a sign of life."""

    peer: PeerId
    seconds: float
    """There and back."""
    hears_knocks: bool | None = None
    """Whether it answered a knock, or had to be dialled; None if nobody knocked."""


class CheckPutOff(Event, frozen=True):
    """There is no room to dial it."""

    peer: PeerId
    after_knocks: bool
    """That nobody has answered."""


class RoundTrip(Event, frozen=True):
    peer: PeerId
    seconds: float


class DataHeld(Event, frozen=True):
    """A worker has this file, or this folder's list, in its cache. It may drop it any time: a
    hint."""

    peer: PeerId
    digest: str
    size: int = 0
    """In bytes; 0 if that is not known."""
    seconds: float = 0.0
    """What it took to move it there from here; 0 if it was not."""


# Discovery, for the scheduler


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of a worker that is not linked. Its signature was checked; whether it still
    is so, nobody knows before it is called."""

    peer: PeerId
    boot: int
    sequence: int
    """Rises with each record of the same worker."""
    published_at: float
    """Unix time, by the worker's own clock."""
    valid_seconds: float
    source: str
    """Such as `dht`."""
    capabilities: Capabilities
    addresses: tuple[str, ...]
    name: str = ""
    software_version: str = ""


class WorkersSeen(Event, frozen=True):
    sightings: list[Sighting]


class WorkerWithdrawn(Event, frozen=True):
    """Its record says that it has stopped in order."""

    peer: PeerId


class WorkerIsLocal(Event, frozen=True):
    """It runs on the scheduler's own machine."""

    peer: PeerId
    same_node: bool = False
    """In its own process, even."""


# The journal, for the scheduler


class Restart(Event, frozen=True):
    """First of all events: the new boot number and what the journal holds."""

    boot: int
    restored: Restored
    secret: Secret
    """Keys the authenticators of attempts."""


class Reconfigure(Event, frozen=True):
    """The owner has changed the settings. The length of leases stays: workers know it."""

    settings: SchedulerSettings


# Clients of a scheduler. Each is answered by one `Reply` with its `request`.


class Submit(Event, frozen=True):
    """Opens a job; with `count` it brings its first batch along."""

    request: RequestId
    job_id: JobId
    name: str
    user: str
    specification: Specification
    count: int
    arguments: bytes
    """A JSON array with `count` elements, or nothing."""
    close: bool
    """No further batch will come."""
    idempotency_key: str = ""
    body_digest: bytes = b""
    require_satisfiable: bool = False
    wait: bool = False
    """Answer with the task once it has ended; for a job of one task."""
    derived: Derived | None = None
    """Of a job with several groups or parts, instead of specification, count and arguments."""
    dry_run: bool = False
    """Change nothing, and answer with what would come of it."""


class Append(Event, frozen=True):
    request: RequestId
    job_id: JobId
    batch: int
    count: int
    arguments: bytes
    stage: str = ""
    """Which of the job's stages gets them; the first one if empty."""


class CloseJob(Event, frozen=True):
    request: RequestId
    job_id: JobId


class CancelJob(Event, frozen=True):
    request: RequestId
    job_id: JobId


class CancelTask(Event, frozen=True):
    request: RequestId
    job_id: JobId
    index: int


class ReadTask(Event, frozen=True):
    request: RequestId
    job_id: JobId
    index: int


class WaitTask(Event, frozen=True):
    """Answered when the task has ended."""

    request: RequestId
    job_id: JobId
    index: int


class WaitJob(Event, frozen=True):
    """Answered when the job has ended."""

    request: RequestId
    job_id: JobId


class Forget(Event, frozen=True):
    """Nobody waits for the answer to `request` any more."""

    request: RequestId


class ReadJob(Event, frozen=True):
    request: RequestId
    job_id: JobId


class ReadLiveTasks(Event, frozen=True):
    """The tasks `first` … `first + limit - 1` of a job that have not ended."""

    request: RequestId
    job_id: JobId
    first: int
    limit: int


class ExplainTask(Event, frozen=True):
    request: RequestId
    job_id: JobId
    index: int


class ReadWorkers(Event, frozen=True):
    request: RequestId


class ReadServices(Event, frozen=True):
    request: RequestId


class ReadFigures(Event, frozen=True):
    request: RequestId


class CloseWorker(Event, frozen=True):
    """Somebody who may wants a worker to take no new work, or to take some again. Answered when
    the worker has."""

    request: RequestId
    worker: str
    """Its peer id, its name, or an unambiguous beginning of either."""
    on: bool
    user: str = ""
    token: bytes = b""
    hand_back_after_seconds: float | None = None


class Listen(Event, frozen=True):
    """Whether anybody wants to be told what happens."""

    on: bool


# Drivers of a worker


class RunsStarted(Event, frozen=True):
    attempts: list[tuple[AttemptId, float]]


class RunsFinished(Event, frozen=True):
    finished: list[Finished]


class RunsReturned(Event, frozen=True):
    lane: LaneId
    attempts: list[AttemptId]


class RunsStreamed(Event, frozen=True):
    pieces: list[tuple[AttemptId, bytes]]


class RunsWrote(Event, frozen=True):
    texts: list[Text]


class RunsProgressed(Event, frozen=True):
    """The latest that attempts have reported of themselves."""

    reports: list[tuple[AttemptId, bytes]]


class RunCheckpointed(Event, frozen=True):
    """A piece of an attempt's latest checkpoint is to go to its scheduler."""

    part: CheckpointPart


class RunWantsCheckpoint(Event, frozen=True):
    attempt: AttemptId
    offset: int


class RunsWithdrawn(Event, frozen=True):
    attempts: list[AttemptId]


class SpoolLoaded(Event, frozen=True):
    """First of a worker's events: its boot number and the outcomes that nobody has
    acknowledged yet, by scheduler."""

    boot: int
    outcomes: dict[PeerId, list[Outcome]]


class Reachable(Event, frozen=True):
    """Where others can dial this worker, from now on."""

    addresses: tuple[str, ...]


class Serving(Event, frozen=True):
    """The models that this worker serves from now on: all of them."""

    models: tuple[ServedModel, ...]


class Revoked(Event, frozen=True):
    """The swarm's owner has ended tokens, by the ids of their blocks."""

    ids: frozenset[bytes]


class UsageChanged(Event, frozen=True):
    """What of the worker's machine is in use now."""

    usage: Usage


class Shut(Event, frozen=True):
    """The worker takes no new work until the cause is gone."""

    cause: str
    """One of a few words, such as `owner`: a worker may be shut by several."""
    reason: str
    """For people, after "it takes no new work:"."""
    hand_back_after_seconds: float | None = None
    """What still runs then is stopped and handed back; None lets it finish."""


class Reopen(Event, frozen=True):
    cause: str


class Drain(Event, frozen=True):
    """The worker stops now: grant nothing, hand back what runs, keep what is not
    acknowledged."""
