"""What tasks have written so far, in files beside the journal.

    journal.db.live/<job id>/<index>.<attempt>     stretches: stream, offset, length, bytes

A file outlives its worker and this process: if nothing else is left of an attempt, its logs
are. It is not synced, since the end of the task brings the whole, and it is bounded: of a task,
and of all together, where the oldest go first.
"""

from __future__ import annotations

import contextlib
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

TASK_BYTES_MAX: Final = 20 << 20
ALL_BYTES_MAX: Final = 1 << 30
_HEAD: Final = struct.Struct("<BQI")

Task = tuple[str, int]
"""Job id and index."""


class Stretch(msgspec.Struct, frozen=True):
    number: int
    """Of the attempt."""
    stream: int
    offset: int
    data: bytes


class _Kept:
    def __init__(self) -> None:
        self.bytes_by_attempt: dict[int, int] = {}

    @property
    def size(self) -> int:
        return sum(self.bytes_by_attempt.values())


class LiveLogs:
    def __init__(
        self,
        journal: Path,
        *,
        task_bytes_max: int = TASK_BYTES_MAX,
        all_bytes_max: int = ALL_BYTES_MAX,
    ) -> None:
        self._folder = journal.with_name(f"{journal.name}.live")
        self._task_bytes_max = task_bytes_max
        self._all_bytes_max = all_bytes_max
        self._kept: dict[Task, _Kept] = {}
        """The longest unwritten first, as far as this process knows."""
        self._size = 0
        self._find()

    def _find(self) -> None:
        for path in sorted(self._folder.glob("*/*"), key=lambda one: one.stat().st_mtime):
            index, _, number = path.name.partition(".")
            if not (path.name.isascii() and index.isdigit() and number.isdigit()):
                continue
            kept = self._kept.setdefault((path.parent.name, int(index)), _Kept())
            kept.bytes_by_attempt[int(number)] = path.stat().st_size
            self._size += path.stat().st_size

    def write(self, job: str, index: int, stretch: Stretch) -> bool:
        """False if it is not kept: the task has written too much, or the disk is full."""
        kept = self._kept.pop((job, index), None) or _Kept()
        self._kept[job, index] = kept
        if kept.size + _HEAD.size + len(stretch.data) > self._task_bytes_max:
            return False
        record = _HEAD.pack(stretch.stream, stretch.offset, len(stretch.data)) + stretch.data
        path = self._path(job, index, stretch.number)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab") as file:
                file.write(record)
        except OSError:
            return False
        written = kept.bytes_by_attempt.get(stretch.number, 0) + len(record)
        kept.bytes_by_attempt[stretch.number] = written
        self._size += len(record)
        while self._size > self._all_bytes_max and len(self._kept) > 1:
            self._remove(next(iter(self._kept)))
        return True

    def read(self, job: str, index: int, attempt: int | None = None) -> list[Stretch]:
        """Of one attempt, the latest if none is named."""
        kept = self._kept.get((job, index))
        if kept is None:
            return []
        number = max(kept.bytes_by_attempt, default=0) if attempt is None else attempt
        if number not in kept.bytes_by_attempt:
            return []
        with contextlib.suppress(OSError):
            return list(_stretches(number, self._path(job, index, number).read_bytes()))
        return []

    def indices(self, job: str) -> list[int]:
        """The tasks of a job of which something is kept."""
        return sorted(index for one, index in self._kept if one == job)

    def drop(self, job: str, index: int) -> None:
        """The journal has all that the task wrote."""
        if (job, index) in self._kept:
            self._remove((job, index))

    def forget(self, job: str) -> None:
        for task in [one for one in self._kept if one[0] == job]:
            self._remove(task)
        shutil.rmtree(self._folder / job, ignore_errors=True)

    def _remove(self, task: Task) -> None:
        kept = self._kept.pop(task)
        self._size -= kept.size
        for number in kept.bytes_by_attempt:
            self._path(*task, number).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # others of its job are still there
            (self._folder / task[0]).rmdir()

    def _path(self, job: str, index: int, number: int) -> Path:
        return self._folder / job / f"{index}.{number}"


def _stretches(number: int, data: bytes) -> Iterator[Stretch]:
    position = 0
    while position + _HEAD.size <= len(data):
        stream, offset, length = _HEAD.unpack_from(data, position)
        position += _HEAD.size + length
        if position > len(data):
            return  # a crash came in between
        yield Stretch(number, stream, offset, data[position - length : position])


def joined(stretches: list[Stretch], stream: int) -> bytes:
    """One stream as text; what is missing in it is said."""
    parts: list[bytes] = []
    end = 0
    for one in stretches:
        if one.stream == stream:
            if one.offset > end:
                parts.append(b"\n... %d bytes left out ...\n" % (one.offset - end))
            parts.append(one.data)
            end = one.offset + len(one.data)
    return b"".join(parts)
