"""Where a scheduler's journal lives, and how committed state is read.

Promises that every store keeps:

* `commit` is durable when `done(None)` is called, and in the order of the calls; `done` is
  called once, whatever happens, on the event loop's thread (the in-memory twin: through its
  clock).
* An entry with a value that cannot be stored, or one that breaks a rule of the journal (a second
  terminal state, an attempt that is not above the highest ended one), is left out, and the rest
  of its group is committed: `done(EntriesRefused)`. A task whose end is left out so, and which
  has none yet, ends as failed with the reason `store_fault`, in the same transaction.
* A commit that the disk refuses, or one on an old owner epoch, calls `done(error)`, changes
  nothing, and every later commit fails too: the process must stop.
* Attempts that no boot of this journal can have given (see `core.identifiers`) are no attempts:
  they keep no honest one from ending, and `restore` leaves them out.
* `commit_at_once` is the same on the caller's own thread, where that is quicker than to wake
  another. It says no, and has changed nothing, whenever it had better not or could not: then
  `commit` takes the same entries, and tells what is wrong with them.
* Reads see committed state only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from mycel.core.authenticators import Secret
from mycel.core.identifiers import JobId
from mycel.core.journal import (
    AttemptEnded,
    Entry,
    GroupAdded,
    JobOpened,
    Restored,
    TaskEnded,
)

Done = Callable[[BaseException | None], None]


class Result(msgspec.Struct, frozen=True):
    """A finished task with its place in the order of commits."""

    sequence: int
    ended: TaskEnded


class End(msgspec.Struct, frozen=True):
    """A finished task without what it brought along."""

    sequence: int
    job_id: JobId
    job_name: str
    user: str
    index: int
    state: str
    reason: str
    number: int
    worker: str | None
    exit_code: int | None
    error: str
    ended_at: float
    job_state: str
    """How its job has ended, if this was the job's last task; else empty."""


class Lines(msgspec.Struct, frozen=True):
    """Results as JSON, each with a line of its own."""

    encoded: bytes
    count: int
    last: int
    """The sequence of the last one, or what they were asked after."""


class JobRow(msgspec.Struct, frozen=True):
    opened: JobOpened
    closed: bool
    state: str
    """Empty while the job has not ended."""
    ended_at: float | None
    tasks: int
    succeeded: int
    failed: int
    cancelled: int


class DefinedBlock(msgspec.Struct, frozen=True):
    """Tasks of one group, as they were appended."""

    group: int
    first: int
    count: int
    arguments: bytes
    unsuccessful: tuple[int, ...] = ()
    """The indexes of those that have failed or were cancelled."""


class JobDefinition(msgspec.Struct, frozen=True):
    """All that a job was submitted with."""

    opened: JobOpened
    groups: list[GroupAdded]
    """Further ones than the first, which is in `opened`."""
    blocks: list[DefinedBlock]


class Journal(Protocol):
    """The scheduler's side: written by one process, which holds the lock of its folder."""

    def raise_boot(self) -> int:
        """Durably raises the boot number and returns it. Blocking; once, at the start."""
        ...

    def secret(self) -> Secret:
        """Made once, with the journal, and kept with it. Blocking; once, at the start."""
        ...

    def restore(self) -> Restored:
        """Blocking; once, at the start."""
        ...

    def commit(self, entries: Sequence[Entry], done: Done) -> None: ...
    def commit_at_once(self, entries: Sequence[Entry]) -> bool:
        """True: they are on disk. Only while no `commit` is under way."""
        ...

    def close(self) -> None:
        """Finishes the commits under way. Blocking."""
        ...


class Reader(Protocol):
    """Committed state, for answers that need no live state. Blocking: call in a thread.

    Thread-safe. Lists are at most `limit` long.
    """

    def job(self, job: JobId) -> JobRow | None: ...
    def definition(self, job: JobId) -> JobDefinition | None: ...
    def jobs(self, *, before: JobId | None, limit: int) -> list[JobRow]:
        """Newest first."""
        ...

    def find_jobs(self, prefix: str, limit: int, ending: str = "") -> list[JobId]:
        """Whose ids begin and end with these, in the order of their ids."""
        ...

    def result(self, job: JobId, index: int) -> Result | None: ...
    def results(self, job: JobId, *, after: int, limit: int) -> list[Result]:
        """In commit order, of those with a sequence above `after`; at most some 4 MiB of
        values at a time, but at least one."""
        ...

    def ends(self, *, after: int, limit: int, job: JobId | None = None) -> list[End]:
        """Finished tasks of all jobs, or of one, in commit order."""
        ...

    def sequences(self) -> tuple[int, int]:
        """The highest sequence that was pruned, and the highest that there is or was."""
        ...

    def lines(self, job: JobId, *, after: int, limit: int) -> Lines:
        """The same results, as `store.lines` writes them."""
        ...

    def results_by_index(self, job: JobId, *, first: int, limit: int) -> list[Result]:
        """The finished ones among the tasks `first` … `first + limit - 1`, by index."""
        ...

    def value(self, job: JobId, index: int, *, offset: int, length: int) -> bytes:
        """A piece of a result's value, wherever it lies; empty behind its end."""
        ...

    def ended_attempts(self, job: JobId, index: int) -> list[AttemptEnded]: ...
    def arguments(self, job: JobId, index: int) -> bytes:
        """The JSON of one task's arguments; empty if it has none."""
        ...

    def arguments_by_index(self, job: JobId, *, first: int, limit: int) -> dict[int, bytes]:
        """Those of the tasks `first` … `first + limit - 1`, of whichever have any; at most some
        4 MiB, and none of the tasks behind that."""
        ...
