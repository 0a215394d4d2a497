"""Uploads and downloads of blobs: only what is missing, going on where they broke off."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

import msgspec

from . import errors
from .errors import ConnectionLost, JobFileError, NotFound
from .job_inputs import Source, place_in

if TYPE_CHECKING:
    from .client import Client
    from .responses import Task

ASKED_AT_ONCE: Final = 10_000
SIDE_BY_SIDE: Final = 4
TRIES_MAX: Final = 5

Moved = Callable[[int, int], None]
"""Is told how many bytes have been moved, and how many there are."""


class _Missing(msgspec.Struct):
    missing: list[str]


class _Counter:
    def __init__(self, total: int, tell: Moved | None) -> None:
        self._total = total
        self._tell = tell
        self._lock = threading.Lock()
        self.moved = 0

    def add(self, count: int) -> None:
        with self._lock:
            self.moved += count
            if self._tell is not None:
                self._tell(self.moved, self._total)


class Transfers:
    """Of one client."""

    def __init__(self, client: Client) -> None:
        self._client = client

    # To the scheduler

    def upload(self, sources: Mapping[str, Source], tell: Moved | None = None) -> int:
        """How many bytes were sent: those that the scheduler had not."""
        missing = self._missing(list(sources))
        total = sum(_size(sources[digest]) for digest in missing)
        counter = _Counter(total, tell)
        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            list(pool.map(lambda digest: self._put(digest, sources[digest], counter), missing))
        return total

    def _missing(self, digests: list[str]) -> list[str]:
        found: list[str] = []
        for first in range(0, len(digests), ASKED_AT_ONCE):
            asked = {"digests": digests[first : first + ASKED_AT_ONCE]}
            answer = self._client.post("/api/v1/blobs/missing", asked)
            found += msgspec.convert(answer, _Missing).missing
        return found

    def _put(self, digest: str, source: Source, counter: _Counter) -> None:
        size = _size(source)
        offset = 0
        for last in (*(False,) * (TRIES_MAX - 1), True):
            try:
                with _open(source) as file:
                    file.seek(offset)
                    self._send(digest, file, offset, size, counter)
                return
            except ConnectionLost:
                if last:
                    raise
                offset = self._client.upload_offset(digest)

    def _send(self, digest: str, file: BinaryIO, offset: int, size: int, counter: _Counter) -> None:
        with self._client.connection() as connection:
            target = f"/api/v1/blobs/{digest}"
            answer = connection.upload(target, file, offset, size, counter.add)
            if answer.status >= 400:
                raise errors.from_answer(answer.status, answer.body, None)

    # From the scheduler

    def read(self, digest: str) -> bytes:
        kept = io.BytesIO()
        self._receive(digest, kept, _Counter(0, None))
        return kept.getvalue()

    def outputs(self, task: Task, directory: Path, tell: Moved | None = None) -> list[Path]:
        """Lays what a task has left below a folder; what is there already is not fetched."""
        from mycel.blobs import digests, trees
        from mycel.blobs.errors import BadTree

        if task.outputs is None:
            raise NotFound(404, "Not found", f"task {task.id} declares no outputs")
        if task.state != "succeeded" or not task.outputs.digest:
            raise NotFound(404, "Not found", f"task {task.id} is {task.state}: it left nothing")
        try:
            tree = trees.decode(self.read(task.outputs.digest))
        except NotFound as error:
            raise _gone(task, error) from error
        except BadTree as error:
            raise JobFileError(f"the outputs of {task.id} are refused: {error}") from error
        directory.mkdir(parents=True, exist_ok=True)
        places = [(file, place_in(directory, file.path)) for file in tree.files]
        wanted = [
            (file, place)
            for file, place in places
            if place.is_symlink()
            or not place.is_file()
            or place.stat().st_size != file.size
            or (file.size and digests.of_file(place) != file.digest)
        ]
        counter = _Counter(sum(file.size for file, _ in wanted), tell)

        def fetch(one: tuple[trees.TreeFile, Path]) -> None:
            file, place = one
            self._fetch(file.digest, place, counter)
            place.chmod(0o755 if file.executable else 0o644)

        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            try:
                list(pool.map(fetch, wanted))
            except NotFound as error:
                raise _gone(task, error) from error
        return [place for _, place in places]

    def _fetch(self, digest: str, place: Path, counter: _Counter) -> None:
        from mycel.blobs import digests

        if place.is_dir() and not place.is_symlink():
            raise JobFileError(f"{place} is a folder, and an output has that name")
        part = place.with_name(f".{place.name[:100]}.{os.getpid()}.part")
        try:
            with part.open("xb") as file:
                self._receive(digest, file, counter)
            found = digests.of_file(part) if part.stat().st_size else digests.of_bytes(b"")
            if found != digest:
                raise ConnectionLost(f"what came as {place.name} is not what was sent")
            part.replace(place)
        finally:
            part.unlink(missing_ok=True)

    def _receive(self, digest: str, file: BinaryIO, counter: _Counter) -> None:
        for last in (*(False,) * (TRIES_MAX - 1), True):
            try:
                with self._client.connection() as connection:
                    target = f"/api/v1/blobs/{digest}"
                    for piece in connection.download(target, file.tell()):
                        file.write(piece)
                        counter.add(len(piece))
                return
            except ConnectionLost:
                if last:
                    raise


def _gone(task: Task, error: NotFound) -> NotFound:
    left = task.outputs
    count = 0 if left is None else left.files
    return NotFound(
        404,
        "Not found",
        f"task {task.id} left {count} files, which its scheduler has no longer, because they were "
        f"removed or left behind by an export without files: {error.detail}",
    )


def _size(source: Source) -> int:
    return len(source) if isinstance(source, bytes) else source.stat().st_size


def _open(source: Source) -> BinaryIO:
    return io.BytesIO(source) if isinstance(source, bytes) else source.open("rb")
