"""Who was given an attempt: makes authenticators, and judges those that are shown.

    in this boot       the tables know what was sent, and to whom: nothing else is believed
    of earlier boots   what shows the authenticator of exactly this attempt, task and worker

An honest worker may list what is outdated: its task has ended meanwhile, or the attempt was given
up. Such an entry still shows a right authenticator. A wrong one is a forgery, apart from what a
worker has kept for a journal that is lost. So a few of them cost a worker nothing but those
attempts; many shut it out for a while.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum, auto
from typing import Final

import msgspec

from mycel.core.authenticators import KeyedHash, authenticator, page_of, stream
from mycel.core.effects import Hangup
from mycel.core.identifiers import AttemptId, JobNumber, PeerId, boot_of
from mycel.core.messages import HeldAttempt, Outcome
from mycel.core.model.jobs import Block
from mycel.core.principal import accounts
from mycel.core.scheduler.state import State

FORGERIES_MAX: Final = 1000
"""In `ACCOUNT_SECONDS`; of those who joined by one invite as many times that as they have shares. A
worker that shows more is shut out, and the rest is not looked at: a message with 60,000 of them
costs no more than one with these."""
ACCOUNT_SECONDS: Final = 60.0
ACCOUNTS_MAX: Final = 1024
REASON: Final = "it shows results and tasks that this scheduler never gave it"


class Verdict(Enum):
    GENUINE = auto()
    """This scheduler has sent that attempt of that task to that worker, in this boot or before."""
    UNKNOWN = auto()
    """Nobody can tell: there is no such task, or no longer."""
    FORGED = auto()


class Account(msgspec.Struct):
    """What one peer, or one family, has shown since `began_at`."""

    began_at: float
    count: int = 0


class Authentication:
    def __init__(self, state: State) -> None:
        self._state = state
        self._key: tuple[object, ...] = ()
        self._stream: KeyedHash | None = None
        self._accounts: dict[str, Account] = {}

    def stream(self, block: Block, index: int, boot: int, holder: PeerId) -> KeyedHash:
        """What the authenticators of this job's attempts are read from, for the page of `index`.
        Those of one job and worker come one after another, so that it is rarely another one."""
        job = block.job
        key = (holder, job.number, boot, block.owner_epoch, page_of(index))
        if self._stream is None or key != self._key:
            state = self._state
            self._key = key
            self._stream = stream(
                state.keyed,
                state.secret,
                owner_epoch=block.owner_epoch,
                boot=boot,
                holder=holder,
                job=job.number,
                job_id=job.id,
                index=index,
            )
        return self._stream

    def verdict(
        self, holder: PeerId, attempt: AttemptId, job: JobNumber, index: int, shown: bytes
    ) -> Verdict:
        found = self._state.jobs.get(job)
        block = None if found is None else found.block_of(index)
        if block is None:
            return Verdict.UNKNOWN
        source = self.stream(block, index, boot_of(attempt), holder)
        is_right = _are_equal(authenticator(source, attempt, index), shown)
        return Verdict.GENUINE if is_right else Verdict.FORGED

    def forged_of(
        self, holder: PeerId, shown: Iterable[HeldAttempt | Outcome], now: float
    ) -> list[AttemptId]:
        """Those with a wrong authenticator, each as often as it is shown so; at most as many as
        the peer may show before it is shut out."""
        forged: list[AttemptId] = []
        left = self._left(holder, now)
        for one in shown:
            if len(forged) >= left:
                break
            verdict = self.verdict(holder, one.attempt, one.job, one.index, one.authenticator)
            if verdict is Verdict.FORGED:
                forged.append(one.attempt)
        return forged

    def refuse(self, holder: PeerId, forged: list[AttemptId], now: float) -> bool:
        """Counts them, and tells of the first ones in a minute. True: it is too much."""
        state = self._state
        state.forgeries_refused += len(forged)
        if self._account(holder, now).count == 0:
            worker = state.workers.get(holder)
            name = "" if worker is None else worker.name
            count, first = len(forged), forged[0]
            state.note("forgeries_refused", peer=holder, name=name, count=count, first=first)
            state.tell("worker.forged", now, worker=holder, name=name, count=count)
        for name, _ in self._accounts_of(holder):
            account = self._account(name, now)
            account.count += len(forged)
            self._accounts[name] = account
            if len(self._accounts) > ACCOUNTS_MAX:
                del self._accounts[next(iter(self._accounts))]
        return self._left(holder, now) <= 0

    def is_shut_out(self, holder: PeerId, now: float) -> bool:
        return bool(self._accounts) and self._left(holder, now) <= 0

    def shut_out(self, holder: PeerId) -> None:
        self._state.emit(Hangup(holder, REASON, is_offence=True))

    def _accounts_of(self, holder: PeerId) -> Iterator[tuple[str, int]]:
        return accounts(holder, self._state.principal_of(holder).family, FORGERIES_MAX)

    def _left(self, holder: PeerId, now: float) -> int:
        """How many more it may show before it is shut out."""
        found = self._accounts_of(holder)
        return min(most - self._account(name, now).count for name, most in found)

    def _account(self, name: str, now: float) -> Account:
        found = self._accounts.get(name)
        if found is None or now >= found.began_at + ACCOUNT_SECONDS:
            return Account(now)
        return found


def _are_equal(one: bytes, other: bytes) -> bool:
    """Takes as long for any two of the same length: nobody finds one byte after the other."""
    if len(one) != len(other):
        return False
    return int.from_bytes(one, "big") ^ int.from_bytes(other, "big") == 0
