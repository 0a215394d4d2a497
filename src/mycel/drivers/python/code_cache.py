"""Modules that functions brought along: fetched once, and kept for the next call.

An archive stays a zip file, which Python imports from as it is; nobody here opens it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Final, Protocol

import msgspec

from mycel.blobs.errors import BlobError
from mycel.blobs.folder_removal import remove_tree
from mycel.core.model.work import Run, Work
from mycel.drivers.preparation import Unavailable

ARCHIVE_BYTES_MAX: Final = 1 << 30
CACHE_BYTES_MAX: Final = 2 << 30


class CodeSource(Protocol):
    """What moves files: `blobs.task_transfers.TaskFiles`."""

    async def fetch_to(self, digest: str, run: Run, target: Path) -> int: ...


class CodeCache:
    """A `Preparation`. `root` belongs to it alone, and begins empty."""

    def __init__(self, root: Path, source: CodeSource) -> None:
        remove_tree(root)
        root.mkdir(parents=True)
        self._root = root.resolve()
        self._source = source
        self._ready: dict[str, int] = {}
        """Sizes by digest, the least recently used first."""
        self._in_use: Counter[str] = Counter()
        self._last_applied: tuple[Work | None, Work] = (None, Work("none"))

    def need_of(self, run: Run) -> str:
        call = run.work.call
        return "" if call is None else call.code

    def applied(self, run: Run) -> Run | None:
        code = self.need_of(run)
        size = self._ready.pop(code, None)
        if size is None:
            return None
        self._ready[code] = size
        self._in_use[code] += 1
        path = str(self._path(code))
        return msgspec.structs.replace(
            run, work=self._applied_work(run.work, path), readable=(*run.readable, path)
        )

    def _applied_work(self, work: Work, path: str) -> Work:
        """The same for all runs that share theirs: drivers put what is alike together."""
        if self._last_applied[0] is not work:
            assert work.call is not None
            call = msgspec.structs.replace(work.call, path=path)
            self._last_applied = (work, msgspec.structs.replace(work, call=call))
        return self._last_applied[1]

    def released(self, need: str) -> None:
        self._in_use[need] -= 1

    async def obtain(self, run: Run) -> None:
        code = self.need_of(run)
        try:
            size = await self._source.fetch_to(code, run, self._path(code))
        except (BlobError, OSError) as error:
            why = f"the modules of its function cannot be had: {error}"
            raise Unavailable(why, driver_fault=True) from error
        if size > ARCHIVE_BYTES_MAX:
            await asyncio.to_thread(self._path(code).unlink)
            raise Unavailable(f"the modules of its function have {size:,} bytes, which is too much")
        self._ready[code] = size
        await self._make_room(code)

    async def close(self) -> None:
        await asyncio.to_thread(remove_tree, self._root)

    async def _make_room(self, newest: str) -> None:
        for code in list(self._ready):
            if sum(self._ready.values()) <= CACHE_BYTES_MAX:
                return
            if code != newest and not self._in_use[code]:
                del self._ready[code]
                await asyncio.to_thread(self._path(code).unlink, missing_ok=True)

    def _path(self, code: str) -> Path:
        return self._root / f"{code.removeprefix('blake3:')}.zip"
