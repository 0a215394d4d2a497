"""The keyed hash and the secret of schedulers in tests, and what authenticators they make."""

from __future__ import annotations

from typing import Final

from blake3 import blake3

from mycel.core.authenticators import KeyedHash, Secret, authenticator, stream
from mycel.core.identifiers import AttemptId, JobId, JobNumber, PeerId, boot_of

SECRET: Final = Secret(b"the secret of a test's scheduler")


def keyed(secret: bytes, message: bytes) -> KeyedHash:
    return blake3(message, key=secret)


def proof(
    attempt: int,
    job: int,
    job_id: str,
    index: int,
    holder: str,
    *,
    secret: Secret = SECRET,
    boot: int | None = None,
    owner_epoch: int = 1,
) -> bytes:
    """What the scheduler with this secret gives the holder along with that attempt."""
    made = stream(
        keyed,
        secret,
        owner_epoch=owner_epoch,
        boot=boot_of(attempt) if boot is None else boot,
        holder=PeerId(holder),
        job=JobNumber(job),
        job_id=JobId(job_id),
        index=index,
    )
    return authenticator(made, AttemptId(attempt), index)
