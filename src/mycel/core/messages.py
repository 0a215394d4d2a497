"""What a scheduler and a worker say to each other.

Every message travels on one of two streams between the same two peers: what concerns
attempts and held leases on the *work* stream, where order matters; negotiation and news on
the *control* stream, so that a full work stream delays neither. A link is both streams; when
one breaks, the link is gone, and a worker starts the next one with `Register`.

Times are readings of the sender's own clock and are only ever echoed or compared with other
readings of the same clock. Fields are only ever added at the end, with a default.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from .identifiers import AttemptId, JobId, JobNumber, LeaseId, RequestId
from .resources import Amounts, Capabilities, Free, Usage
from .work import Shape, Work

WIRE_VERSION: Final = 1
MESSAGE_BYTES: Final = 8 << 20
"""Arguments, or results, that make a message longer than this go into the next one, unless
one alone is; a frame may be twice as long."""


class Message(msgspec.Struct, frozen=True, array_like=True):
    """Base of all messages; the subclasses carry the tag that names them on the wire."""


class Window(msgspec.Struct, frozen=True, array_like=True):
    """How many attempts a lease's holder may have out at once: slots and prefetch."""

    lease: LeaseId
    size: int


# Worker to scheduler, on the work stream


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """How an attempt ended. Kept by the worker until it is acknowledged."""

    attempt: AttemptId
    job: JobNumber
    index: int
    state: str
    value: bytes = b""
    digest: bytes = b""
    """blake3 over the exact bytes of `value`."""
    exit_code: int | None = None
    error: str = ""
    driver_fault: bool = False
    stdout: bytes = b""
    stderr: bytes = b""
    started_at: float = 0.0
    ended_at: float = 0.0
    number: int = 1
    crashed: bool = False
    """It took its interpreter along."""
    value_size: int = 0
    """Not 0 if the value is too long for a message: `value` is empty then, and is fetched."""
    peak_memory: int = 0
    """Bytes; 0 if it was not measured."""
    cpu_seconds: float = 0.0

    @property
    def size(self) -> int:
        """About how long it is on the wire."""
        parts = (self.value, self.error, self.stdout, self.stderr)
        return 200 + sum(map(len, parts))


class HeldAttempt(msgspec.Struct, frozen=True, array_like=True):
    attempt: AttemptId
    job: JobNumber
    index: int
    lease: LeaseId
    number: int
    started_at: float | None
    """None while it waits in its lane, as far as the worker knows."""


class HeldLease(msgspec.Struct, frozen=True, array_like=True):
    lease: LeaseId
    shape: Shape
    slots: int
    window: int
    floor: float = 0.0
    rate: float = 0.0


class Register(Message, frozen=True, tag="register"):
    """First on every link: who this worker is, and all that it has of this scheduler's.

    Outcomes that would make it too long are listed among the attempts, and follow in `Results`.
    """

    version: int
    boot: int
    clock: float
    name: str
    capabilities: Capabilities
    free: Free
    addresses: tuple[str, ...]
    leases: list[HeldLease]
    attempts: list[HeldAttempt]
    outcomes: list[Outcome]
    software_version: str = ""
    heard_by: str = ""
    """How it has heard of this scheduler: by gossip, from a gateway, by a call."""
    closed_for: str = ""
    """Why it takes no new work; empty while it does."""
    usage: Usage | None = None
    """What of its machine is in use; None if it does not look."""


class Described(Message, frozen=True, tag="described"):
    """The worker can do other things than when it registered, as it serves another model, or
    can be dialled elsewhere."""

    capabilities: Capabilities
    free: Free
    addresses: tuple[str, ...] = ()
    """Empty: as before."""


class Accepted(Message, frozen=True, tag="accepted"):
    """The attempts `first` … `first + count - 1` have arrived."""

    lease: LeaseId
    first: AttemptId
    count: int


class Refused(Message, frozen=True, tag="refused"):
    """They have arrived and will not be run: the lease is gone."""

    first: AttemptId
    count: int
    lease: LeaseId
    reason: str


class Started(Message, frozen=True, tag="started"):
    """These outlived 50 ms; quicker ones are never announced."""

    clock: float
    attempts: list[tuple[AttemptId, float]]


class Results(Message, frozen=True, tag="results"):
    clock: float
    outcomes: list[Outcome]
    windows: list[Window]


class ResultPart(Message, frozen=True, tag="result_part"):
    """The answer to `Fetch`; without data if the worker does not have that outcome."""

    attempt: AttemptId
    offset: int
    data: bytes


class Returned(Message, frozen=True, tag="returned"):
    """Not started, and no longer held: free to be sent elsewhere under a fresh number."""

    attempts: list[AttemptId]
    windows: list[Window]
    reason: str = ""
    """Not empty: they may have started, and were stopped for this; they do not count."""


class Streamed(Message, frozen=True, tag="streamed"):
    """What attempts that run have brought forth so far, piece by piece: for whoever listens
    now. Never kept and never sent again; the outcome says how it ended."""

    pieces: list[tuple[AttemptId, bytes]]


class Text(msgspec.Struct, frozen=True, array_like=True):
    """A stretch of what an attempt has written."""

    attempt: AttemptId
    stream: int
    """1 is standard output, 2 standard error."""
    offset: int
    """In bytes from the stream's beginning: what was left out shows as a gap."""
    data: bytes


class Written(Message, frozen=True, tag="written"):
    """What attempts that take long have written. Told as it comes and never again: the outcome
    brings it all."""

    texts: list[Text]


class Progressed(Message, frozen=True, tag="progressed"):
    """What attempts have reported of themselves, the latest only: JSON, as `reports.Report`."""

    reports: list[tuple[AttemptId, bytes]]


class CheckpointPart(Message, frozen=True, tag="checkpoint_part"):
    """A piece of an attempt's latest checkpoint, answered by `CheckpointTaken`. From a scheduler
    the answer to `CheckpointWanted`; `size` is 0 if the task has none."""

    attempt: AttemptId
    version: int
    """Counts the checkpoints of an attempt."""
    offset: int
    size: int
    """Of the whole."""
    digest: bytes
    """blake3 of the whole."""
    data: bytes


class CheckpointTaken(Message, frozen=True, tag="checkpoint_taken"):
    """So much of that version has arrived: go on there. `is_kept` once the whole is on disk."""

    attempt: AttemptId
    version: int
    upto: int
    is_kept: bool


class CheckpointWanted(Message, frozen=True, tag="checkpoint_wanted"):
    """An attempt asks for the last checkpoint of its task, from `offset` on."""

    attempt: AttemptId
    offset: int


class LeaseOver(Message, frozen=True, tag="lease_over"):
    """The lease has ended at the worker; what still runs under it runs on."""

    lease: LeaseId
    reason: str


def announced(outcome: Outcome, inline_bytes_max: int) -> Outcome:
    """As it is told first: a long value stays behind until it is fetched."""
    if len(outcome.value) <= inline_bytes_max:
        return outcome
    return msgspec.structs.replace(outcome, value=b"", value_size=len(outcome.value))


def in_parts(outcomes: Iterable[Outcome]) -> Iterator[list[Outcome]]:
    """Lists that each fit into one message."""
    part: list[Outcome] = []
    size = 0
    for outcome in outcomes:
        size += outcome.size
        if part and size > MESSAGE_BYTES:
            yield part
            part, size = [], outcome.size
        part.append(outcome)
    if part:
        yield part


# Scheduler to worker, on the work stream


class Welcome(Message, frozen=True, tag="welcome"):
    """The answer to `Register`: what the worker should forget."""

    version: int
    boot: int
    lease_seconds: float
    unknown_leases: list[LeaseId]
    kill: list[AttemptId]


class Bundle(msgspec.Struct, frozen=True, array_like=True):
    """Attempts of one job. The i-th is number `first + i`."""

    first: AttemptId
    job: JobNumber
    job_id: JobId
    owner_epoch: int
    work: Work
    indices: list[int]
    numbers: list[int]
    arguments: list[bytes]
    """JSON, one per attempt; empty if the job has none."""


class Assign(Message, frozen=True, tag="assign"):
    lease: LeaseId
    bundles: list[Bundle]


class Withdraw(Message, frozen=True, tag="withdraw"):
    """Give back what has not started; the answer is `Returned`."""

    attempts: list[AttemptId]


class Kill(Message, frozen=True, tag="kill"):
    attempts: list[AttemptId]


class Acknowledge(Message, frozen=True, tag="acknowledge"):
    """These outcomes are committed, or nobody wants them: forget them."""

    attempts: list[AttemptId]


class Fetch(Message, frozen=True, tag="fetch"):
    """Send so much of the value of an outcome that was announced with its size."""

    attempt: AttemptId
    offset: int
    length: int


class Renew(Message, frozen=True, tag="renew"):
    """`echo` is the worker's own clock as its last heartbeat carried it."""

    echo: float
    leases: list[LeaseId]


class Dismiss(Message, frozen=True, tag="dismiss"):
    """Nothing is wanted of this worker now: close the link, and come back after so long, or
    when called."""

    come_back_seconds: float
    reason: str = ""
    """Why the worker cannot be of use at all, if it cannot: for whoever runs it."""


class Release(Message, frozen=True, tag="release"):
    """So many slots of the lease go back; the lease ends with its last slot."""

    lease: LeaseId
    slots: int


# On the control stream


class Request(Message, frozen=True, tag="request"):
    request: RequestId
    shape: Shape
    slots: int
    token: bytes = b""
    """By what right: of the shape's user, bound to the scheduler that asks."""
    expected_seconds: float = 0.0
    """How long such tasks usually take; 0 if nobody knows."""


class Offer(Message, frozen=True, tag="offer"):
    """The answer to a request. A yes carries the lease itself, so that negotiation costs one
    round trip; who does not want it any more releases it."""

    request: RequestId
    yes: bool
    reason: str = ""
    eta_seconds: float = 0.0
    """With a yes: how long until such a task starts. With a no: when there may be room."""
    cost: float = 0.0
    """Of one task, as long as it is expected to take."""
    lease: LeaseId | None = None
    slots: int = 0
    window: int = 0
    clock: float = 0.0
    capacity: int = 0
    """How many more such tasks fit beside these."""
    floor: float = 0.0
    """Each attempt under the lease costs at least this…"""
    rate: float = 0.0
    """…or so much an hour, as long as the lease lasts."""


class Wanted(Message, frozen=True, tag="wanted"):
    """Somebody's request does not fit beside this lease."""

    lease: LeaseId
    slots: int
    priority: int
    ours: bool
    """The request came from the holder of the lease itself."""


class Load(Message, frozen=True, tag="load"):
    """What of the worker is free now, as a whole."""

    free: Free
    running: int
    accepting: bool = True
    closed_for: str = ""
    usage: Usage | None = None


class LoadChange(Message, frozen=True, tag="load_change"):
    """What has changed since `Register`, or since the last of these; None is as before."""

    running: int
    accepting: bool = True
    cpu_millis: int | None = None
    memory: int | None = None
    disk: int | None = None
    gpu_millis: tuple[int, ...] | None = None
    custom: Amounts | None = None
    closed_for: str = ""
    """Why it is not accepting."""
    usage: Usage | None = None

    def applied_to(self, free: Free) -> Free:
        changes = {
            name: value for name in FREE_FIELDS if (value := getattr(self, name)) is not None
        }
        return msgspec.structs.replace(free, **changes)


FREE_FIELDS: Final = ("cpu_millis", "memory", "disk", "gpu_millis", "custom")


def load_change(
    before: Free, now: Free, running: int, closed_for: str = "", usage: Usage | None = None
) -> LoadChange:
    """`usage` only if it has changed."""
    changes = {
        name: getattr(now, name)
        for name in FREE_FIELDS
        if getattr(now, name) != getattr(before, name)
    }
    return LoadChange(running, not closed_for, closed_for=closed_for, usage=usage, **changes)


class Close(Message, frozen=True, tag="close"):
    """Somebody wants this worker to take no new work, or some again; the answer is `Closed`."""

    request: RequestId
    on: bool
    user: str
    hand_back_after_seconds: float | None = None
    token: bytes = b""
    """By what right: of that user, bound to the scheduler that asks."""


class Closed(Message, frozen=True, tag="closed"):
    request: RequestId
    objection: str
    """Not empty: nothing was changed."""
    accepting: bool
    closed_for: str = ""


# Between any node and a gateway, on the control stream


class PeerRecord(msgspec.Struct, frozen=True, array_like=True):
    peer: str
    roles: tuple[str, ...]
    addresses: tuple[str, ...]


class Join(Message, frozen=True, tag="join"):
    version: int
    me: PeerRecord


class Peers(Message, frozen=True, tag="peers"):
    peers: list[PeerRecord]


class Announcement(Message, frozen=True, tag="announcement"):
    """Gossip: a scheduler says where it is."""

    me: PeerRecord
    sequence: int = 0
    """Makes each one different: gossip drops what it has seen within the last minute."""


# Between any two nodes, on a signal stream


class Ping(Message, frozen=True, tag="ping"):
    """Answered at once, so that the way there and back can be measured."""

    number: int


class Pong(Message, frozen=True, tag="pong"):
    number: int


class Summons(Message, frozen=True, tag="summons"):
    """A scheduler wants a link with this worker, now."""


WorkMessage = (
    Register
    | Accepted
    | Refused
    | Started
    | Results
    | Returned
    | Streamed
    | Written
    | Progressed
    | CheckpointPart
    | CheckpointTaken
    | CheckpointWanted
    | LeaseOver
    | Welcome
    | Assign
    | Withdraw
    | Kill
    | Acknowledge
    | Renew
    | Release
    | Dismiss
    | ResultPart
    | Fetch
    | Described
)
ControlMessage = Request | Offer | Wanted | Load | LoadChange | Close | Closed | Join | Peers
SignalMessage = Ping | Pong | Summons
