"""Checkpoints of tasks that have not ended: the last whole one of each, in files.

    journal.db.checkpoints/<job id>/<index>            the last whole one: a head, then its bytes
                                    <index>.part       one that is on its way

A piece is taken if it goes on where the last one ended, and the whole replaces the one before
only when its digest is right and it is on disk. All of it happens in a thread: the bytes may be
many. The twin in memory serves simulations.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Protocol

import msgspec
from blake3 import blake3

from mycel.core.messages import CheckpointPart

CHECKPOINT_BYTES_MAX: Final = 64 << 20
PART_BYTES: Final = 512 << 10
_DIGEST_BYTES: Final = 32


class Taken(msgspec.Struct, frozen=True):
    upto: int
    """Where the next piece should begin."""
    is_kept: bool


class Found(msgspec.Struct, frozen=True):
    """A piece of what is kept; `size` is 0 if nothing is."""

    size: int = 0
    digest: bytes = b""
    data: bytes = b""


class Checkpoints(Protocol):
    """Answers come by the callback, maybe later, on the caller's own thread."""

    def keep(
        self, job: str, index: int, part: CheckpointPart, done: Callable[[Taken], None]
    ) -> None: ...
    def read(self, job: str, index: int, offset: int, done: Callable[[Found], None]) -> None: ...
    def drop(self, job: str, index: int) -> None: ...
    def forget(self, job: str) -> None: ...
    def sweep(self, is_live: Callable[[str, int], bool]) -> None:
        """Removes what a crash has left of tasks that have ended."""
        ...


class _Coming:
    """One that is on its way."""

    def __init__(self, part: CheckpointPart) -> None:
        self.source = (part.attempt, part.version)
        self.size = 0
        self.hasher = blake3()


class CheckpointFiles:
    def __init__(self, journal: Path, answer: Callable[[Callable[[], None]], object]) -> None:
        """`answer` runs something on the caller's own thread."""
        self._folder = journal.with_name(f"{journal.name}.checkpoints")
        self._answer = answer
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoints")
        self._coming: dict[tuple[str, int], _Coming] = {}

    def keep(
        self, job: str, index: int, part: CheckpointPart, done: Callable[[Taken], None]
    ) -> None:
        def work() -> None:
            taken = self._take(job, index, part)
            self._answer(lambda: done(taken))

        self._thread.submit(work)

    def read(self, job: str, index: int, offset: int, done: Callable[[Found], None]) -> None:
        def work() -> None:
            found = self._read(job, index, offset)
            self._answer(lambda: done(found))

        self._thread.submit(work)

    def drop(self, job: str, index: int) -> None:
        if self._folder.is_dir():  # nothing at all is the usual case
            self._thread.submit(self._drop, job, index)

    def forget(self, job: str) -> None:
        if self._folder.is_dir():
            self._thread.submit(shutil.rmtree, self._folder / job, ignore_errors=True)

    def sweep(self, is_live: Callable[[str, int], bool]) -> None:
        for path in list(self._folder.glob("*/*")):
            index = path.name.partition(".")[0]
            if index.isdigit() and not is_live(path.parent.name, int(index)):
                self.drop(path.parent.name, int(index))

    def close(self) -> None:
        self._thread.shutdown(wait=True)

    # In the thread

    def _take(self, job: str, index: int, part: CheckpointPart) -> Taken:
        if not 0 < part.size <= CHECKPOINT_BYTES_MAX or part.offset + len(part.data) > part.size:
            return Taken(0, is_kept=False)
        place = (job, index)
        coming = self._coming.get(place)
        if coming is None or coming.source != (part.attempt, part.version):
            coming = self._coming[place] = _Coming(part)
        if part.offset != coming.size:
            return Taken(coming.size, is_kept=False)
        path = self._path(job, index)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.with_suffix(".part").open("r+b" if part.offset else "wb") as file:
                file.seek(_DIGEST_BYTES + part.offset if part.offset else 0)
                file.write(part.data if part.offset else part.digest[:_DIGEST_BYTES] + part.data)
            coming.hasher.update(part.data)
            coming.size += len(part.data)
            return self._finish(place, coming, part, path)
        except OSError:  # a full disk: the worker tries again, and the one before stays
            self._coming.pop(place, None)
            return Taken(0, is_kept=False)

    def _finish(
        self, place: tuple[str, int], coming: _Coming, part: CheckpointPart, path: Path
    ) -> Taken:
        if coming.size < part.size:
            return Taken(coming.size, is_kept=False)
        del self._coming[place]
        if coming.hasher.digest() != part.digest:
            path.with_suffix(".part").unlink()
            return Taken(0, is_kept=False)
        descriptor = os.open(path.with_suffix(".part"), os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        path.with_suffix(".part").replace(path)
        return Taken(part.size, is_kept=True)

    def _read(self, job: str, index: int, offset: int) -> Found:
        try:
            with self._path(job, index).open("rb") as file:
                size = os.fstat(file.fileno()).st_size - _DIGEST_BYTES
                digest = file.read(_DIGEST_BYTES)
                file.seek(_DIGEST_BYTES + offset)
                return Found(size, digest, file.read(PART_BYTES))
        except OSError:
            return Found()

    def _drop(self, job: str, index: int) -> None:
        self._coming.pop((job, index), None)
        path = self._path(job, index)
        path.unlink(missing_ok=True)
        path.with_suffix(".part").unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # others of its job have some
            path.parent.rmdir()

    def _path(self, job: str, index: int) -> Path:
        return self._folder / job / str(index)


class MemoryCheckpoints:
    def __init__(self) -> None:
        self.kept: dict[tuple[str, int], tuple[bytes, bytes]] = {}
        """Digest and bytes."""
        self._coming: dict[tuple[str, int], tuple[tuple[int, int], bytes]] = {}

    def keep(
        self, job: str, index: int, part: CheckpointPart, done: Callable[[Taken], None]
    ) -> None:
        source, before = self._coming.get((job, index), ((0, 0), b""))
        if source != (part.attempt, part.version):
            before = b""
        if part.offset == len(before):
            before += part.data
        self._coming[job, index] = ((part.attempt, part.version), before)
        is_kept = len(before) == part.size
        if is_kept:
            del self._coming[job, index]
            self.kept[job, index] = (part.digest, before)
        done(Taken(len(before), is_kept))

    def read(self, job: str, index: int, offset: int, done: Callable[[Found], None]) -> None:
        digest, data = self.kept.get((job, index), (b"", b""))
        done(Found(len(data), digest, data[offset : offset + PART_BYTES]))

    def drop(self, job: str, index: int) -> None:
        self.kept.pop((job, index), None)
        self._coming.pop((job, index), None)

    def forget(self, job: str) -> None:
        for place in [one for one in self.kept if one[0] == job]:
            self.drop(*place)

    def sweep(self, is_live: Callable[[str, int], bool]) -> None:
        for place in [one for one in self.kept if not is_live(*one)]:
            self.drop(*place)

    def crash(self) -> None:
        """What is on its way is lost with the process."""
        self._coming.clear()
