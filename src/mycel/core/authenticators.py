"""Authenticators: how a scheduler recognises, after a restart, an attempt that it sent itself.

    secret ─┐
            ├─▶ keyed hash of (owner_epoch, boot, holder, job, job id, page) ─▶ an endless stream
    task ───┘                             (n, index) ─▶ 16 bytes of it: the attempt's authenticator

Starts of attempts are not journalled, so a restarted scheduler cannot look up what it has sent.
It recomputes the authenticator instead: nobody without the secret can make one, and one that was
given out is worth nothing for another attempt, task, boot or holder.

The stream is made once per bundle; each attempt then costs one short read from it. A hash of its
own for each attempt costs four times as much.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Final, Protocol

from msgspec import Meta

from .identifiers import COUNTER_MAX, AttemptId, JobId, JobNumber, PeerId

AUTHENTICATOR_BYTES: Final = 16
SECRET_BYTES: Final = 32
Authenticator = Annotated[bytes, Meta(max_length=AUTHENTICATOR_BYTES)]
"""Empty where nobody has given one."""
Authenticators = Annotated[bytes, Meta(max_length=AUTHENTICATOR_BYTES * 1_000_000)]
"""Of several attempts, one after the other."""
_SHIFT: Final = AUTHENTICATOR_BYTES.bit_length() - 1
_PAGE_BITS: Final = 20
_PAGE_MASK: Final = (1 << _PAGE_BITS) - 1
"""A stream has 2^64 bytes: 2^40 attempts of one boot, and as many indices as are left. Beyond
those the job goes on in another stream, its next page."""


class Secret(bytes):
    """Keys the authenticators. It does not show itself, wherever it is printed."""

    def __repr__(self) -> str:
        return "<secret>"

    __str__ = __repr__


class KeyedHash(Protocol):
    def digest(self, length: int = ..., *, seek: int = ...) -> bytes: ...


Keyed = Callable[[bytes, bytes], KeyedHash]
"""(secret, message): such as `blake3(message, key=secret)`."""


def stream(
    keyed: Keyed,
    secret: Secret,
    *,
    owner_epoch: int,
    boot: int,
    holder: PeerId,
    job: JobNumber,
    job_id: JobId,
    index: int,
) -> KeyedHash:
    """From which the authenticators of this job's attempts at this holder are read, for all
    indices on the same page as `index`.

    The job's id is part of it beside its number: a journal that was restored from a copy gives
    the same numbers again.
    """
    page = index >> _PAGE_BITS
    told = f"mycel attempt\n{owner_epoch}\n{boot}\n{holder}\n{job}\n{job_id}\n{page}"
    return keyed(secret, told.encode())


def page_of(index: int) -> int:
    return index >> _PAGE_BITS


def authenticator(of: KeyedHash, attempt: AttemptId, index: int) -> bytes:
    return authenticators(of, attempt, (index,))


def authenticators(of: KeyedHash, first: AttemptId, indices: Sequence[int]) -> bytes:
    """Of the attempts `first`, `first + 1`, … at tasks of one page, one after the other."""
    digest = of.digest
    return b"".join(
        [
            digest(AUTHENTICATOR_BYTES, seek=(n << _PAGE_BITS | index & _PAGE_MASK) << _SHIFT)
            for n, index in enumerate(indices, first & COUNTER_MAX)
        ]
    )
