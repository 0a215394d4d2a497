"""Names of things, as types.

Users see ids as text: a job's is a ULID in lower case, a task's is `<job>.<n>`. Inside,
attempts and registrations are integers: the boot number of whoever made them above a counter,
so that a later boot's are always greater.
"""

from __future__ import annotations

from typing import Annotated, Final, NewType

from msgspec import Meta

COUNTER_BITS: Final = 40
COUNTER_MAX: Final = (1 << COUNTER_BITS) - 1
BOOT_MAX: Final = (1 << 22) - 1
FENCED_MAX: Final = BOOT_MAX << COUNTER_BITS | COUNTER_MAX
"""Below 2^62: so many attempts follow the last one that a bundle may begin with that no number
is too large for a row."""

_Fenced = Annotated[int, Meta(ge=0, le=FENCED_MAX)]
Boot = Annotated[int, Meta(ge=0, le=BOOT_MAX)]

PeerId = NewType("PeerId", Annotated[str, Meta(max_length=256)])
JobId = NewType("JobId", Annotated[str, Meta(max_length=64)])
JobNumber = NewType("JobNumber", _Fenced)
"""A job's row number in the journal, `boot << 40 | n` too: never used twice, not even when the
job that had it was lost with its scheduler before it was journalled."""
AttemptId = NewType("AttemptId", _Fenced)
"""`boot << 40 | n` of the scheduler that sent it; within one owner epoch it only grows."""
LeaseId = NewType("LeaseId", _Fenced)
"""`boot << 40 | n` of the worker: the epoch of its registration with a scheduler. 0 is none."""
ShapeNumber = NewType("ShapeNumber", Annotated[int, Meta(ge=1, le=FENCED_MAX)])
"""Under which a scheduler has introduced a shape to a worker."""
LaneId = NewType("LaneId", _Fenced)
RequestId = NewType("RequestId", _Fenced)

_ULID_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_ULID_PAIRS: Final = tuple(one + other for one in _ULID_ALPHABET for other in _ULID_ALPHABET)
ULID_LENGTH: Final = 26


def fenced(boot: int, counter: int) -> int:
    """One integer in which a later boot beats every counter of an earlier one."""
    assert 0 < boot <= BOOT_MAX, "boot number out of range"
    assert 0 < counter <= COUNTER_MAX, "counter out of range"
    return boot << COUNTER_BITS | counter


def first_of_boot(boot: int) -> int:
    """What all numbers of this boot are above, and all of earlier boots below."""
    return boot << COUNTER_BITS


def boot_of(fenced_id: int) -> int:
    return fenced_id >> COUNTER_BITS


def ulid(milliseconds: int, randomness: bytes) -> JobId:
    """48 bits of time and 80 bits of randomness, in Crockford's base 32."""
    assert len(randomness) == 10
    value = (milliseconds & (1 << 48) - 1) << 80 | int.from_bytes(randomness, "big")
    return JobId("".join([_ULID_PAIRS[value >> shift & 1023] for shift in range(120, -1, -10)]))


def is_job_id(text: str) -> bool:
    return len(text) == ULID_LENGTH and text[0] <= "7" and all(c in _ULID_ALPHABET for c in text)


def task_id(job: JobId, index: int) -> str:
    return f"{job}.{index}"


def parse_task_id(text: str) -> tuple[JobId, int] | None:
    """The job and the index that a task id names, or nothing if it is none."""
    job, dot, index = text.partition(".")
    if not dot or not is_job_id(job) or not index.isascii() or not index.isdigit():
        return None
    if len(index) > 10 or (index[0] == "0" and index != "0"):
        return None
    return JobId(job), int(index)
