"""Outputs that a worker has promised to keep: `keep = "worker"`.

    keep ─▶ pinned, and a marker beside the cache ─── some days ──▶ a file like any other
      └─ over the limit: refused, before anybody relies on it

    <root>/promised/abcdef…     empty; the time of change is when it was promised

A restart finds the markers again. What is promised takes room from the cache, which is why
there is a limit of its own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from . import digests
from .blob_store import BlobStore
from .digests import Digest
from .errors import NoRoom


class KeptOutputs:
    def __init__(
        self,
        store: BlobStore,
        root: Path,
        bytes_max: int,
        seconds: float,
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._folder = root / "promised"
        self._bytes_max = bytes_max
        self._seconds = seconds
        self._wall = wall
        self._lock = store.lock  # one for both: the store asks under its own
        self._made: dict[Digest, float] = {}
        """When each was promised, the oldest first."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._load()
        store.short_of_room = self.let_go

    def _load(self) -> None:
        found = [(path.stat().st_mtime, path) for path in self._folder.iterdir()]
        for made_at, path in sorted(found):
            digest = Digest(digests.PREFIX + path.name)
            if digest in self._store:
                self._store.pin(digest)
                self._made[digest] = made_at
            else:
                path.unlink()
        self.let_go()

    def keep(self, wanted: Iterable[Digest]) -> None:
        """Durable when it returns. What was promised before is so anew. Raises `NoRoom`."""
        wanted = list(dict.fromkeys(wanted))
        self.let_go()
        with self._lock:
            size = sum(map(self._store.size, {*self._made, *wanted}))
            if size > self._bytes_max:
                raise NoRoom(
                    f"this worker keeps at most {self._bytes_max} bytes of outputs "
                    f"([worker.files] keep_size), and with these it would be {size}"
                )
            now = self._wall()
            for digest in wanted:
                if self._made.pop(digest, None) is None:
                    self._store.pin(digest)
                self._made[digest] = now
                path = self._path(digest)
                path.touch()
                os.utime(path, (now, now))
            descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def let_go(self) -> None:
        """Of what was promised long enough ago."""
        until = self._wall() - self._seconds
        with self._lock:
            for digest, made_at in list(self._made.items()):
                if made_at > until:
                    return
                del self._made[digest]
                self._store.unpin(digest)
                self._path(digest).unlink(missing_ok=True)

    def _path(self, digest: Digest) -> Path:
        return self._folder / digests.hexadecimal(digest)
