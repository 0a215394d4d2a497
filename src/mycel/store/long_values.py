"""Values that are too long for a row, as files beside the database.

    journal.db.values/<job number>/<index>.<attempt>

Every part is on disk before the commit of its group, so a file is whole before the commit of
the task's end that refers to it. A crash leaves at most files that nobody refers to: they are
removed at the next start.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from .errors import DiskRefused, ValueIncomplete, ValueUnusable

_BEYOND_FILES: Final = frozenset({errno.EFBIG, errno.EINVAL, errno.EOVERFLOW})
"""What the operating system says of a place that no file can have."""

Place = tuple[int, int, int]
"""Job number, index, attempt."""


class ValueFiles:
    def __init__(self, journal: Path) -> None:
        self.folder = journal.with_name(f"{journal.name}.values")

    def path(self, job: int, index: int, attempt: int) -> Path:
        return self.folder / str(job) / f"{index}.{attempt}"

    def write(self, job: int, index: int, attempt: int, offset: int, data: bytes) -> None:
        """The first part starts the file anew; each is durable when this returns."""
        path = self.path(job, index, attempt)
        try:
            if offset == 0:
                self._make_folder(path.parent)
            flags = os.O_WRONLY | os.O_CLOEXEC | (os.O_CREAT | os.O_TRUNC if offset == 0 else 0)
            descriptor = os.open(path, flags, 0o600)
            try:
                written = 0
                while written < len(data):
                    written += os.pwrite(descriptor, data[written:], offset + written)
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)
            if offset == 0:
                _sync_folder(path.parent)
        except (OverflowError, ValueError) as error:
            raise ValueUnusable(f"a part at {offset} of {path}: {error}") from error
        except OSError as error:
            if error.errno in _BEYOND_FILES:
                raise ValueUnusable(f"a part at {offset} of {path}: {error.strerror}") from error
            raise DiskRefused(
                f"{path} cannot be written ({error.strerror}): make room, then start again"
            ) from error

    def _make_folder(self, folder: Path) -> None:
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            _sync_folder(self.folder)
            _sync_folder(self.folder.parent)

    def seal(self, job: int, index: int, attempt: int, size: int) -> None:
        """Whether the file is what a task's end says of it."""
        path = self.path(job, index, attempt)
        found = path.stat().st_size if path.exists() else 0
        if found != size:
            raise ValueIncomplete(found, size)

    def read(self, job: int, index: int, attempt: int, offset: int, length: int) -> bytes:
        with self.path(job, index, attempt).open("rb") as file:
            return os.pread(file.fileno(), length, offset)

    def remove_job(self, job: int) -> None:
        shutil.rmtree(self.folder / str(job), ignore_errors=True)

    def remove_orphans(self, wanted: Collection[Place]) -> int:
        """How many files there were that nothing refers to."""
        removed = 0
        for folder in self.folder.iterdir() if self.folder.is_dir() else ():
            for path in folder.iterdir() if folder.is_dir() else ():
                if self.place_of(path) not in wanted:
                    path.unlink()
                    removed += 1
            if not any(folder.iterdir()):
                folder.rmdir()
        return removed

    def places(self) -> Iterator[Place | None]:
        """Of every file that is there."""
        for path in self.folder.glob("*/*"):
            yield self.place_of(path)

    @staticmethod
    def place_of(path: Path) -> Place | None:
        index, _, attempt = path.name.partition(".")
        try:
            return int(path.parent.name), int(index), int(attempt)
        except ValueError:
            return None


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
