"""A scheduler's real machine over a real journal, workers that were given tasks, and forgers who
have seen everything that went over the wire.

    boot 1   tasks go out; some end, some are handed back, the rest is out when it is killed
    boot 2   the same journal; nobody has come yet
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from mycel.core.authenticators import AUTHENTICATOR_BYTES, KeyedHash
from mycel.core.effects import Effect, Record, Send, SendAhead
from mycel.core.events import Event, LinkDown, Received, Restart, Submit, WallClock
from mycel.core.identifiers import (
    BOOT_MAX,
    AttemptId,
    JobId,
    JobNumber,
    LeaseId,
    PeerId,
    RequestId,
    fenced,
    ulid,
)
from mycel.core.invariants import check_scheduler
from mycel.core.journal import AttemptEnded, Entry, TaskEnded
from mycel.core.machine_settings import BreakerSettings, SchedulerSettings
from mycel.core.messages import (
    WIRE_VERSION,
    Assign,
    HeldAttempt,
    Outcome,
    Register,
    Results,
    Returned,
    WorkMessage,
)
from mycel.core.model.jobs import Specification
from mycel.core.model.resources import Capabilities, Ledger, Requirements
from mycel.core.model.work import Work
from mycel.core.scheduler import Scheduler
from tests.adapters.store_harness import Harness, commit_soundly
from tests.core.keys import keyed

WORKERS: Final = tuple(PeerId(f"worker-{number}") for number in range(3))
MALLORY: Final = PeerId("mallory")
MACHINE: Final = Capabilities(cpu_cores=400.0, memory=1 << 34, drivers=("process",))
WORK: Final = Specification(Work("process", command=("true",)), Requirements(cpu_cores=1.0))
JOBS: Final = 3
TASKS: Final = 60
GENUINE: Final = b'"genuine"'
FORGED: Final = b'"forged"'


class Given(msgspec.Struct, frozen=True):
    """An attempt as its worker got it: everything that an authenticator depends on."""

    worker: PeerId
    attempt: AttemptId
    job: JobNumber
    index: int
    lease: LeaseId
    authenticator: bytes

    def held(self) -> HeldAttempt:
        return HeldAttempt(
            self.attempt, self.job, self.index, self.lease, 1, None, self.authenticator
        )

    def outcome(self, value: bytes = GENUINE) -> Outcome:
        return Outcome(
            self.attempt,
            self.job,
            self.index,
            "succeeded",
            value,
            authenticator=self.authenticator,
        )


class Counted:
    def __init__(self, court: Court, made: KeyedHash) -> None:
        self._court = court
        self._made = made

    def digest(self, length: int = 32, *, seek: int = 0) -> bytes:
        self._court.hashed += 1
        return self._made.digest(length, seek=seek)


class Court:
    """One scheduler, killed and started again over the same journal."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.now = 0.0
        self.entries: list[Entry] = []
        self.effects: list[Effect] = []
        self.given: list[Given] = []
        self.hashed = 0
        """How many authenticators the scheduler has made or checked."""
        self._jobs = 0
        self.closed_for = ""
        """Workers that come take no new work: all that they have they had before."""
        self.boot()

    def boot(self) -> None:
        store = self.harness.store
        self.machine = Scheduler(
            SchedulerSettings(
                retention_tasks=1 << 30, breaker=BreakerSettings(newcomer_tasks=1000)
            ),
            digest=lambda value: b"",
            keyed=lambda secret, message: Counted(self, keyed(secret, message)),
            random=lambda: 0.5,
        )
        self.tell(WallClock(1.7e9))
        self.tell(Restart(store.raise_boot(), store.restore(), store.secret()))

    def kill(self) -> None:
        self.harness.reopen()
        self.closed_for = "it is drained"

    def tell(self, event: Event) -> list[Effect]:
        effects = self.machine.handle(event, self.now)
        check_scheduler(self.machine)
        self.effects = effects
        entries = [
            one for effect in effects if isinstance(effect, Record) for one in effect.entries
        ]
        if entries:
            commit_soundly(self.harness, entries)
            self.entries += entries
        for effect in effects:
            if isinstance(effect, Send | SendAhead) and isinstance(effect.message, Assign):
                self.given += given_by(effect.peer, effect.message)
        return effects

    def hear(self, peer: PeerId, message: WorkMessage) -> list[Effect]:
        return self.tell(Received(peer, message, self.now))

    def come(
        self,
        peer: PeerId,
        held: list[HeldAttempt] | None = None,
        outcomes: list[Outcome] | None = None,
    ) -> list[Effect]:
        free = Ledger(MACHINE).free
        register = Register(
            version=WIRE_VERSION,
            boot=1,
            clock=0.0,
            name=peer,
            capabilities=MACHINE,
            free=free,
            addresses=(),
            leases=[],
            attempts=held or [],
            outcomes=outcomes or [],
            closed_for=self.closed_for,
        )
        return self.hear(peer, register)

    def leave(self, peer: PeerId) -> None:
        self.tell(LinkDown(peer, "the peer closed it"))

    def submit(self, count: int, need: Requirements | None = None) -> JobId:
        self._jobs += 1
        job = ulid(self._jobs, bytes(10))
        work = WORK if need is None else Specification(WORK.work, need)
        request = RequestId(self._jobs)
        self.tell(Submit(request, job, "", "owner", work, count, b"", close=True))
        return job

    def ends(self) -> list[TaskEnded | AttemptEnded]:
        return [one for one in self.entries if isinstance(one, TaskEnded | AttemptEnded)]

    def out(self) -> list[Given]:
        """What is with workers now."""
        current = self.machine.state.attempts
        return [one for one in self.given if one.attempt in current]


def given_by(peer: PeerId, assign: Assign) -> Iterator[Given]:
    for bundle in assign.bundles:
        for place, index in enumerate(bundle.indices):
            begin = place * AUTHENTICATOR_BYTES
            shown = bundle.authenticators[begin : begin + AUTHENTICATOR_BYTES]
            attempt = AttemptId(bundle.first + place)
            yield Given(peer, attempt, bundle.job, index, assign.lease, shown)


class Past(msgspec.Struct, frozen=True):
    """What came of the attempts of boot 1."""

    out: list[Given]
    """With their workers when the scheduler was killed."""
    ended: list[Given]
    """Their tasks have ended, or another attempt may follow."""


def first_boot(court: Court) -> Past:
    for worker in WORKERS:
        court.come(worker)
    for _ in range(JOBS):
        court.submit(TASKS)
    sent = court.out()
    assert {one.worker for one in sent} == set(WORKERS), "all workers have got some"
    succeeded, failed, returned = sent[::8], sent[1::8], sent[2::8]
    for one in succeeded:
        court.hear(one.worker, Results(0.0, [one.outcome()], []))
    for one in failed:
        broken = msgspec.structs.replace(one.outcome(), state="failed", value=b"")
        court.hear(one.worker, Results(0.0, [broken], []))
    for one in returned:
        court.hear(one.worker, Returned([one.attempt], []))
    court.kill()
    return Past(court.out(), [*succeeded, *failed])


def changed(one: Given, **fields: object) -> Given:
    return msgspec.structs.replace(one, **fields)


def forgeries(
    one: Given, others: list[Given], foreign: dict[tuple[int, int], bytes], boot: int
) -> Iterator[tuple[str, Given]]:
    """Every way to claim something with, or instead of, this genuine authenticator, each shown by
    the attempt's own worker unless it says otherwise; `boot` is the scheduler's present one.

    `foreign` has the authenticators that another scheduler has made for the same numbers.
    """
    shown, counter = one.authenticator, one.attempt & ((1 << 40) - 1)
    yield "another attempt", changed(one, attempt=AttemptId(one.attempt + 1))
    yield "a later attempt", changed(one, attempt=AttemptId(one.attempt + 100_000))
    yield "another task", changed(one, index=(one.index + 1) % TASKS)
    yield "another job", changed(one, job=next(o.job for o in others if o.job != one.job))
    for later in (boot, boot + 1, BOOT_MAX):
        yield "another boot", changed(one, attempt=AttemptId(fenced(later, counter)))
    for peer in (*WORKERS, MALLORY):
        if peer != one.worker:
            yield "another worker", changed(one, worker=peer)
    yield "nothing", changed(one, authenticator=b"")
    yield "truncated", changed(one, authenticator=shown[:-1])
    yield "its beginning", changed(one, authenticator=shown[:4])
    yield "extended", changed(one, authenticator=shown + b"\0")
    yield "twice", changed(one, authenticator=shown * 2)
    for bit in (0, 63, 127):
        flipped = int.from_bytes(shown, "big") ^ 1 << bit
        yield "a flipped bit", changed(one, authenticator=flipped.to_bytes(len(shown), "big"))
    yield "zeros", changed(one, authenticator=bytes(len(shown)))
    for other in others:
        if other.attempt != one.attempt:
            yield "another's authenticator", changed(one, authenticator=other.authenticator)
    yield "another scheduler's", changed(one, authenticator=foreign[one.job, one.index])
