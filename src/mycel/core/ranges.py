"""What numbers, texts and lists of messages, records and the journal may be.

What is beyond these is no value of ours, and a message with one no message. They are checked
where it is read, so that nobody reckons with infinity and nothing is too large for a row: SQLite
has integers of 64 bits with a sign. `tests/properties/test_ranges.py` finds a field without one.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

# Numbers

Finite = Annotated[float, Meta(ge=-1e18, le=1e18)]
Amount = Annotated[float, Meta(ge=0.0, le=1e15)]
Moment = Annotated[float, Meta(ge=-1e12, le=1e12)]
"""Unix time, or a reading of a clock."""
SIZE_MAX: Final = 1 << 62
"""The sum of two of them still fits into a row."""
Size = Annotated[int, Meta(ge=0, le=SIZE_MAX)]
"""Bytes, and what counts on without end."""
Balance = Annotated[int, Meta(ge=-SIZE_MAX, le=SIZE_MAX)]
"""What is left of something: below nothing where more is booked than there is."""
MEMORY_MAX: Final = 1 << 50
Memory = Annotated[int, Meta(ge=0, le=MEMORY_MAX)]
"""Bytes that a task had: a multiple of it is reserved for the next one."""
Count = Annotated[int, Meta(ge=0, le=1_000_000)]
"""Of things that somebody may go through one by one."""
Some = Annotated[int, Meta(ge=1, le=1_000_000)]
"""The same, where there is at least one."""
Share = Annotated[int, Meta(ge=-1, le=1_000)]
"""In sixteenths; -1 is unknown."""
ORDINAL_MAX: Final = (1 << 31) - 1
Ordinal = Annotated[int, Meta(ge=0, le=ORDINAL_MAX)]
"""Attempts of a task, batches of a job, versions."""
INDEX_MAX: Final = (1 << 32) - 1
Index = Annotated[int, Meta(ge=0, le=INDEX_MAX)]
"""Of a task in its job."""
Priority = Annotated[int, Meta(ge=-1_000_000, le=1_000_000)]
EXIT_CODE_MIN: Final = -(1 << 31)
EXIT_CODE_MAX: Final = (1 << 32) - 1
ExitCode = Annotated[int, Meta(ge=EXIT_CODE_MIN, le=EXIT_CODE_MAX)]
StreamNumber = Annotated[int, Meta(ge=1, le=2)]
"""1 is standard output, 2 standard error."""

# Texts

WORD_CHARACTERS_MAX: Final = 64
Word = Annotated[str, Meta(max_length=WORD_CHARACTERS_MAX)]
"""One of a few that we know, such as a state."""
Name = Annotated[str, Meta(max_length=1024)]
REASON_CHARACTERS_MAX: Final = 8 << 10
Reason = Annotated[str, Meta(max_length=REASON_CHARACTERS_MAX)]
ERROR_CHARACTERS_MAX: Final = 32 << 10
ErrorText = Annotated[str, Meta(max_length=ERROR_CHARACTERS_MAX)]
JournalText = Annotated[str, Meta(max_length=2 * ERROR_CHARACTERS_MAX)]
"""An error, and what a scheduler adds to it."""
Address = Annotated[str, Meta(max_length=1024)]
Path = Annotated[str, Meta(max_length=4096)]
LongText = Annotated[str, Meta(max_length=16 << 20)]
"""What a user brings along: as long as the frame or request that it comes in."""

# Bytes

Digest = Annotated[bytes, Meta(max_length=64)]
Token = Annotated[bytes, Meta(max_length=64 << 10)]
Data = Annotated[bytes, Meta(max_length=16 << 20)]
"""As long as a frame."""
LongData = Annotated[bytes, Meta(max_length=1 << 30)]
"""What is kept in a row or in the spool: as long as SQLite takes."""

# How many

FEW: Final = Meta(max_length=1024)
"""Addresses, labels, devices."""
MANY: Final = Meta(max_length=1_000_000)
"""Attempts, outcomes, tasks."""

Names = Annotated[tuple[Name, ...], FEW]
Addresses = Annotated[tuple[Address, ...], FEW]
Paths = Annotated[tuple[Path, ...], MANY]

_NOTE: Final = "\n... {} characters are left out ...\n"


def bounded(text: str, characters_max: int) -> str:
    """The text as others take it: its head and tail if it is too long, and without halves of
    surrogate pairs, which no frame and no row can hold."""
    if len(text) > characters_max:
        half = max(0, characters_max - len(_NOTE) - 20) // 2
        text = text[:half] + _NOTE.format(len(text) - 2 * half) + text[len(text) - half :]
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            text = text.encode("utf-8", "replace").decode()
    return text
