"""On the work stream: registrations and attempts, where order matters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated

import msgspec

from mycel.core.authenticators import AUTHENTICATOR_BYTES, Authenticator, Authenticators
from mycel.core.identifiers import AttemptId, Boot, JobId, JobNumber, LeaseId, ShapeNumber
from mycel.core.model.resources import Capabilities, Free, Usage
from mycel.core.model.work import Shape, Work
from mycel.core.ranges import (
    FEW,
    MANY,
    Addresses,
    Amount,
    Count,
    Data,
    Digest,
    ErrorText,
    ExitCode,
    Finite,
    Index,
    LongData,
    Memory,
    Name,
    Ordinal,
    Reason,
    Size,
    Some,
    StreamNumber,
    Token,
    Word,
)

from .message import MESSAGE_BYTES, Message, PartBytes


class Window(msgspec.Struct, frozen=True, array_like=True):
    """How many attempts of a shape a scheduler may have out in each of its slots here."""

    shape: ShapeNumber
    depth: Some
    """One that runs, and those that may wait behind it."""
    long: Count = 0
    """In so many of the slots something long runs, behind which nothing should wait."""


# Worker to scheduler, on the work stream


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """How an attempt ended. Kept by the worker until it is acknowledged."""

    attempt: AttemptId
    job: JobNumber
    index: Index
    state: Word
    value: LongData = b""
    digest: Digest = b""
    """blake3 over the exact bytes of `value`."""
    exit_code: ExitCode | None = None
    error: ErrorText = ""
    driver_fault: bool = False
    stdout: Data = b""
    stderr: Data = b""
    started_at: Finite = 0.0
    ended_at: Finite = 0.0
    number: Ordinal = 1
    crashed: bool = False
    """It took its interpreter along."""
    value_size: Size = 0
    """Not 0 if the value is too long for a message: `value` is empty then, and is fetched."""
    peak_memory: Memory = 0
    """Bytes; 0 if it was not measured."""
    cpu_seconds: Amount = 0.0
    authenticator: Authenticator = b""
    """As the assignment brought it: after a restart it alone proves that the attempt was sent."""
    code: Word = ""
    """Why it failed, see `core.model.failures`; empty if it did not."""
    cost: Amount = 0.0
    """What its worker asks for it."""

    @property
    def size(self) -> int:
        """About how long it is on the wire."""
        parts = (self.value, self.error, self.stdout, self.stderr)
        return 200 + sum(map(len, parts))


class HeldAttempt(msgspec.Struct, frozen=True, array_like=True):
    attempt: AttemptId
    job: JobNumber
    index: Index
    lease: LeaseId
    """The registration under which it was sent."""
    number: Ordinal
    started_at: Finite | None
    """None while it waits in its lane, as far as the worker knows."""
    authenticator: Authenticator = b""


class Register(Message, frozen=True, tag="register"):
    """First on every link: who this worker is, and all that it has of this scheduler's. The
    scheduler may book it from now on, until `lease` ends.

    Outcomes that would make it too long are listed among the attempts, and follow in `Results`.
    """

    version: Ordinal
    boot: Boot
    clock: Finite
    name: Name
    capabilities: Capabilities
    free: Free
    """Free, or this scheduler's own: all but what others have booked."""
    addresses: Addresses
    leases: Annotated[list[Ordinal], FEW]
    """Empty. Version 2 had leases here: one without any is told that it is too old."""
    attempts: Annotated[list[HeldAttempt], MANY]
    outcomes: Annotated[list[Outcome], MANY]
    software_version: Name = ""
    heard_by: Name = ""
    """How it has heard of this scheduler: by gossip, from a gateway, by a call."""
    closed_for: Reason = ""
    """Why it takes no new work; empty while it does."""
    usage: Usage | None = None
    """What of its machine is in use; None if it does not look."""
    lease: LeaseId = LeaseId(0)
    """The epoch of this registration: the same as before a lost link, unless it has ended."""


class Described(Message, frozen=True, tag="described"):
    """The worker can do other things than when it registered, as it serves another model, or
    can be dialled elsewhere."""

    capabilities: Capabilities
    free: Free
    addresses: Addresses = ()
    """Empty: as before."""
    load_follows: bool = False
    """A whole `LoadChange` says what is free. It goes by the stream of all those, which can
    overtake this one and be overtaken by it: `free` is for schedulers that do not know this."""


class Accepted(Message, frozen=True, tag="accepted"):
    """The attempts `first` … `first + count - 1` have arrived."""

    first: AttemptId
    count: Count


class Refused(Message, frozen=True, tag="refused"):
    """They have arrived and will not be run. `refusals` says what the codes mean."""

    attempts: Annotated[list[AttemptId], MANY]
    code: Word
    reason: Reason
    room: Free | None = None
    """What is free, or this scheduler's own, if that is why."""
    windows: Annotated[tuple[Window, ...], MANY] = ()


class Started(Message, frozen=True, tag="started"):
    """These outlived 50 ms; quicker ones are never announced."""

    clock: Finite
    attempts: Annotated[list[tuple[AttemptId, Finite]], MANY]
    windows: Annotated[tuple[Window, ...], MANY] = ()
    """Nothing should be sent to wait behind them."""


class Results(Message, frozen=True, tag="results"):
    clock: Finite
    outcomes: Annotated[list[Outcome], MANY]
    windows: Annotated[list[Window], MANY]


class ResultPart(Message, frozen=True, tag="result_part"):
    """The answer to `Fetch`; without data if the worker does not have that outcome."""

    attempt: AttemptId
    offset: Size
    data: Data


class Returned(Message, frozen=True, tag="returned"):
    """Not started, and no longer held: free to be sent elsewhere under a fresh number."""

    attempts: Annotated[list[AttemptId], MANY]
    windows: Annotated[list[Window], MANY]
    reason: Reason = ""
    """Not empty: they may have started, and were stopped for this; they do not count."""


class Streamed(Message, frozen=True, tag="streamed"):
    """What attempts that run have brought forth so far, piece by piece: for whoever listens
    now. Never kept and never sent again; the outcome says how it ended."""

    pieces: Annotated[list[tuple[AttemptId, Data]], MANY]


class Text(msgspec.Struct, frozen=True, array_like=True):
    """A stretch of what an attempt has written."""

    attempt: AttemptId
    stream: StreamNumber
    """1 is standard output, 2 standard error."""
    offset: Size
    """In bytes from the stream's beginning: what was left out shows as a gap."""
    data: Data


class Written(Message, frozen=True, tag="written"):
    """What attempts that take long have written. Told as it comes and never again: the outcome
    brings it all."""

    texts: Annotated[list[Text], MANY]


class Progressed(Message, frozen=True, tag="progressed"):
    """What attempts have reported of themselves, the latest only: JSON, as `reports.Report`."""

    reports: Annotated[list[tuple[AttemptId, Data]], MANY]


class CheckpointPart(Message, frozen=True, tag="checkpoint_part"):
    """A piece of an attempt's latest checkpoint, answered by `CheckpointTaken`. From a scheduler
    the answer to `CheckpointWanted`; `size` is 0 if the task has none."""

    attempt: AttemptId
    version: Ordinal
    """Counts the checkpoints of an attempt."""
    offset: Size
    size: Size
    """Of the whole."""
    digest: Digest
    """blake3 of the whole."""
    data: Data


class CheckpointTaken(Message, frozen=True, tag="checkpoint_taken"):
    """So much of that version has arrived: go on there. `is_kept` once the whole is on disk."""

    attempt: AttemptId
    version: Ordinal
    upto: Size
    is_kept: bool


class CheckpointWanted(Message, frozen=True, tag="checkpoint_wanted"):
    """An attempt asks for the last checkpoint of its task, from `offset` on."""

    attempt: AttemptId
    offset: Size


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

    version: Ordinal
    boot: Boot
    lease_seconds: Amount
    unknown_leases: Annotated[list[LeaseId], MANY]
    """Of wire version 2."""
    kill: Annotated[list[AttemptId], MANY]


class Introduce(Message, frozen=True, tag="introduce"):
    """Tasks of this shape will come: what they need, and by what right. Said once for a shape
    and registration, before the first of them; the worker answers only if it refuses one."""

    lease: LeaseId
    number: ShapeNumber
    """How assignments name the shape."""
    shape: Shape
    token: Token = b""
    """Of the shape's user, bound to the scheduler that asks."""
    expected_seconds: Amount = 0.0
    """How long such tasks usually take; 0 if nobody knows."""


class Bundle(msgspec.Struct, frozen=True, array_like=True):
    """Attempts of one job. The i-th is number `first + i`."""

    first: AttemptId
    job: JobNumber
    job_id: JobId
    owner_epoch: Size
    work: Work
    indices: Annotated[list[Index], MANY]
    numbers: Annotated[list[Ordinal], MANY]
    arguments: Annotated[list[Data], MANY]
    """JSON, one per attempt; empty if the job has none."""
    authenticators: Authenticators = b""
    """`AUTHENTICATOR_BYTES` for each attempt, one after the other. The worker keeps them for this
    scheduler, and shows them to nobody else. Without them it loses its results, and no more, when
    the scheduler restarts."""

    spent: Annotated[list[Amount], MANY] = []
    """What earlier attempts of each have cost, if that is limited; empty if it is not."""

    @property
    def is_sound(self) -> bool:
        count = len(self.indices)
        if len(self.spent) not in (0, count):
            return False
        if len(self.authenticators) not in (0, count * AUTHENTICATOR_BYTES):
            return False
        return 0 < count == len(self.numbers) and len(self.arguments) in (0, count)


class Assign(Message, frozen=True, tag="assign"):
    lease: LeaseId
    shape: ShapeNumber
    slots: Some
    """How many the scheduler has booked for the shape, with this message: what does not fit
    into as many waits behind others."""
    bundles: Annotated[list[Bundle], MANY]

    def __post_init__(self) -> None:
        if not self.bundles or not all(bundle.is_sound for bundle in self.bundles):
            raise ValueError("an assignment has attempts, and its bundles as many of everything")


class Withdraw(Message, frozen=True, tag="withdraw"):
    """Give back what has not started; the answer is `Returned`."""

    attempts: Annotated[list[AttemptId], MANY]


class Kill(Message, frozen=True, tag="kill"):
    attempts: Annotated[list[AttemptId], MANY]


class Acknowledge(Message, frozen=True, tag="acknowledge"):
    """These outcomes are committed, or nobody wants them: forget them."""

    attempts: Annotated[list[AttemptId], MANY]


class Fetch(Message, frozen=True, tag="fetch"):
    """Send so much of the value of an outcome that was announced with its size."""

    attempt: AttemptId
    offset: Size
    length: PartBytes


class Renew(Message, frozen=True, tag="renew"):
    """`echo` is the worker's own clock as its last heartbeat carried it."""

    echo: Finite
    lease: LeaseId
    """0 if it knows of none: the worker then registers anew."""


class Dismiss(Message, frozen=True, tag="dismiss"):
    """Nothing is wanted of this worker now: close the link, and come back after so long, or
    when called."""

    come_back_seconds: Amount
    reason: Reason = ""
    """Why the worker cannot be of use at all, if it cannot: for whoever runs it."""
