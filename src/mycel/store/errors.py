"""What can go wrong with a store, and who can do something about it.

    StoreError
    ├── StoreUnusable       it cannot be opened; the operator can help
    │   ├── StoreMissing        its folder does not exist
    │   ├── StoreUnreadable     this user may not read or write it
    │   ├── StoreForeign        the file is no database, or not one of ours
    │   ├── StoreCorrupt        the file is ours, and damaged
    │   ├── StoreTooNew         a newer Mycel wrote it
    │   └── StoreBusy           another process holds it
    ├── ExportUnusable      an export is damaged or none; whoever sends it can help
    ├── DiskRefused         the disk is full, read-only or broken; the operator can help
    ├── OwnershipLost       the block's owner epoch is another one: another scheduler has it
    ├── RuleBroken          an entry contradicts the journal: a fault of Mycel's own
    │   ├── TaskUnknown         no block has such a task
    │   ├── AlreadyEnded        the task or the job has its terminal state
    │   ├── AttemptOutdated     the attempt is not above the highest ended one
    │   ├── ValueIncomplete     the file with a result's value is not all there
    │   └── ValueUnusable       a part of a value cannot be where it says
    ├── EntriesRefused      a group is on disk, but for some entries
    └── JournalBroken       an earlier commit failed, or the store was closed

`concerns_entry_alone` divides what can go wrong with a commit in two. A value that no row can
hold, or a rule that is broken, costs the entry: the others are committed, and `EntriesRefused`
tells. Everything else is the disk's, and the process must stop: a retry never helps.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mycel.core.journal import EntryRefused


class StoreError(Exception):
    """The root of the tree."""


class StoreUnusable(StoreError):
    """It cannot be opened as it is."""


class StoreMissing(StoreUnusable):
    """Its folder does not exist."""


class StoreUnreadable(StoreUnusable):
    """The operating system does not let this user read and write it."""


class StoreForeign(StoreUnusable):
    """The file is something else than the database that is expected there."""


class StoreCorrupt(StoreUnusable):
    """The database is damaged."""


class StoreTooNew(StoreUnusable):
    """It was written by a newer version of Mycel."""


class StoreBusy(StoreUnusable):
    """Another process holds the database."""


class ExportUnusable(StoreError):
    """What should be an export of a journal is none, or is damaged."""


class DiskRefused(StoreError):
    """The disk did not take what was written."""


class OwnershipLost(StoreError):
    """The block belongs to another owner epoch: another scheduler took it over."""


class RuleBroken(StoreError):
    """An entry contradicts what the journal already says: a fault of Mycel's own."""


class TaskUnknown(RuleBroken):
    """No block has such a task."""


class AlreadyEnded(RuleBroken):
    """A terminal state never changes."""


class AttemptOutdated(RuleBroken):
    """A later attempt of the task has ended."""


class ValueIncomplete(RuleBroken):
    """The parts of a value that were kept are not what its task's end says."""

    def __init__(self, found: int, expected: int) -> None:
        super().__init__(f"of a value of {expected} bytes, {found} were kept")


class ValueUnusable(RuleBroken):
    """A part of a value says that it is where no file can have it."""


class EntriesRefused(StoreError):
    """The group is on disk, but for these entries. The process goes on."""

    def __init__(self, refused: Sequence[EntryRefused]) -> None:
        super().__init__("; ".join(one.error for one in refused[:3]))
        self.refused = refused


class JournalBroken(StoreError):
    """An earlier commit failed or the store was closed: nothing more can be written."""

    def __init__(self, cause: BaseException | None) -> None:
        why = "it was closed" if cause is None else f"an earlier commit failed: {cause}"
        super().__init__(f"the journal takes no more entries, because {why}")


_VALUES_AND_RULES: Final = (
    sqlite3.DataError,
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
)


def concerns_entry_alone(error: BaseException) -> bool:
    """Whether what an entry raised says nothing of the disk and of other entries."""
    if isinstance(error, StoreError):
        return isinstance(error, RuleBroken)
    if isinstance(error, sqlite3.Error):
        return isinstance(error, _VALUES_AND_RULES)
    return isinstance(error, Exception) and not isinstance(error, OSError | MemoryError)


_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_NO_ACCESS: Final = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH})
_RESTORE_HINT: Final = (
    "move it and the -wal and -shm files beside it away to start afresh, or put a backup there"
)


def corrupt(path: Path, detail: str) -> StoreCorrupt:
    return StoreCorrupt(f"the database {path} is damaged ({detail}): {_RESTORE_HINT}")


def foreign(path: Path, detail: str) -> StoreForeign:
    return StoreForeign(f"{path} {detail}: {_RESTORE_HINT}")


def translated(error: sqlite3.Error, path: Path) -> StoreError:
    """The error of our tree that says what SQLite's means for whoever runs Mycel."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code == sqlite3.SQLITE_NOTADB:
        return foreign(path, "is not an SQLite database")
    if code == sqlite3.SQLITE_CORRUPT:
        return corrupt(path, str(error))
    if code in _BUSY:
        return StoreBusy(f"another process holds {path}: stop it first")
    if code in _NO_ACCESS:
        return StoreUnreadable(
            f"{path} cannot be opened ({error}): let this user read and write it and its folder"
        )
    if code == sqlite3.SQLITE_FULL:
        return DiskRefused(f"the disk is full, {path} cannot grow: make room and start again")
    if code == sqlite3.SQLITE_READONLY:
        return DiskRefused(f"{path} is read-only: make it and its folder writable")
    if code == sqlite3.SQLITE_IOERR:
        return DiskRefused(f"the disk failed at {path} ({error}): check it, then start again")
    return StoreError(f"SQLite refused what Mycel asked of {path}: {error}")
