"""What a worker does about the files of one task: fetch and lay out, gather and bring home."""

from __future__ import annotations

import asyncio
import mimetypes
import os
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from mycel.core.identifiers import PeerId
from mycel.core.model.task_files import Input, checked, files_in, mentions_files, with_paths
from mycel.core.model.work import Run

from . import trees, work_folder
from .blob_messages import Put
from .blob_store import BlobStore, copy_out
from .digests import Digest
from .transfer import in_thread
from .trees import Tree
from .worker_blobs import TransferOwner, WorkerBlobs

OUTPUT_BYTES_MAX: Final = 10 * 10**9
"""Of one task."""
VALUE_FILE: Final = ".mycel-result"
"""As an interpreter calls it."""
MOVING_MAX: Final = 8
"""Blobs of one task under way at once."""


class GatheredOutputs(msgspec.Struct, frozen=True):
    tree: Tree
    cpu_seconds: float = 0.0


class TaskFiles:
    """`root` belongs to it alone."""

    def __init__(
        self,
        caching: WorkerBlobs,
        root: Path,
        shared_paths: Sequence[str] = (),
        output_bytes_max: int = OUTPUT_BYTES_MAX,
    ) -> None:
        self._caching = caching
        self._output_bytes_max = output_bytes_max
        self._root = root
        self._shared_paths = tuple(shared_paths)
        root.mkdir(parents=True, exist_ok=True)

    async def prepare(self, run: Run) -> Run:
        """The same run with a working folder that has its inputs. Raises `BadFile`, `BlobError`,
        `NotShared`, `OSError`."""
        inputs, arguments = _inputs_of(run)
        owner = TransferOwner(PeerId(run.scheduler), run.assigned)
        folder = self._root / f"run-{run.attempt}"
        caching = self._caching
        pinned: list[Digest] = []
        try:
            named = (Digest(one.digest) for one in inputs if one.digest)
            await self._fetch(named, owner, pinned)
            for one in inputs:
                if one.tree:
                    tree = await self._read_tree(Digest(one.digest))
                    await self._fetch((Digest(file.digest) for file in tree.files), owner, pinned)
            await in_thread(caching.threads, lambda: self._lay_out(inputs, folder))
        finally:
            for digest in pinned:
                caching.store.unpin(digest)
        shared = tuple(one.shared for one in inputs if one.shared)
        return msgspec.structs.replace(
            run,
            folder=str(folder),
            arguments=arguments,
            readable=(*run.readable, *shared),
        )

    async def _fetch(
        self, wanted: Iterable[Digest], owner: TransferOwner, pinned: list[Digest]
    ) -> None:
        turns = asyncio.Semaphore(MOVING_MAX)

        async def fetch(digest: Digest) -> None:
            async with turns:
                await self._caching.fetch(digest, owner)
                pinned.append(digest)

        missing = dict.fromkeys(one for one in wanted if one not in pinned)
        try:
            async with asyncio.TaskGroup() as group:
                for digest in missing:
                    group.create_task(fetch(digest))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _read_tree(self, digest: Digest) -> Tree:
        store = self._caching.store
        return await in_thread(self._caching.threads, lambda: work_folder.read_tree(store, digest))

    def _lay_out(self, inputs: Sequence[Input], folder: Path) -> None:
        work_folder.remove(folder)
        folder.mkdir(0o700)
        work_folder.lay_out(self._caching.store, inputs, folder, self._shared_paths)

    async def fetch_to(self, digest: str, run: Run, target: Path) -> int:
        """A copy of a blob that a run names, for all to read; its size. Raises `BlobError`,
        `OSError`."""
        caching, blob = self._caching, Digest(digest)
        await caching.fetch(blob, TransferOwner(PeerId(run.scheduler), run.assigned))
        try:
            await in_thread(caching.threads, lambda: _copy(caching.store, blob, target))
            return caching.store.size(blob)
        finally:
            caching.store.unpin(blob)

    async def send_value(self, run: Run, folder: Path) -> tuple[Digest, int]:
        """Takes a value that a call has left in a folder to the scheduler's disk. Raises
        `BlobError`, `BadTree`, `OSError`."""
        caching, stop = self._caching, threading.Event()

        def take() -> Digest:
            place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                limit = min(self._output_bytes_max, caching.store.blob_bytes_max)
                file = Path(VALUE_FILE)
                digest = caching.store.put_file(file, place, bytes_max=limit, stop=stop)
                caching.store.pin(digest)
                (folder / file).unlink()
                return digest
            finally:
                os.close(place)

        digest = await in_thread(caching.threads, take, stop)
        try:
            size = caching.store.size(digest)
            owner = TransferOwner(PeerId(run.scheduler), run.assigned)
            await caching.push(digest, Put(digest, size, run.assigned), owner)
        finally:
            caching.store.unpin(digest)
        if not run.folder:  # it was made for the value alone
            await in_thread(caching.threads, lambda: work_folder.remove(folder))
        return digest, size

    async def gather(self, run: Run) -> GatheredOutputs:
        """Takes what the run declares as outputs into the cache, pinned until it is brought home
        or let go. Cancelled, it ends at once. Raises `BlobError`, `OSError`."""
        caching, outputs = self._caching, run.work.outputs
        assert outputs is not None
        patterns, folder = outputs.patterns, Path(run.folder)
        gathering = work_folder.GatherLimits(self._output_bytes_max)

        made: list[Tree] = []

        def take() -> GatheredOutputs:
            began = time.thread_time()
            tree = work_folder.gather(caching.store, patterns, folder, gathering)
            made.append(tree)
            return GatheredOutputs(tree, time.thread_time() - began)

        try:
            return await in_thread(caching.threads, take, gathering.stop)
        except asyncio.CancelledError:
            for tree in made:  # it was through at that very moment
                work_folder.unpin(caching.store, tree.files)
            raise

    async def bring_home(self, run: Run, gathered: GatheredOutputs) -> None:
        """Returns when it is on the scheduler's disk. Raises `BlobError`, `OSError`."""
        assert run.work.outputs is not None
        try:
            await self._bring_home(gathered.tree, run.work.outputs.keep, run)
        finally:
            work_folder.unpin(self._caching.store, gathered.tree.files)

    async def _bring_home(self, tree: Tree, keep: str, run: Run) -> None:
        caching = self._caching
        owner = TransferOwner(PeerId(run.scheduler), run.assigned)
        turns = asyncio.Semaphore(MOVING_MAX)

        async def push(digest: Digest, size: int) -> None:
            async with turns:
                await caching.push(digest, Put(digest, size, run.assigned), owner)

        if keep != "worker":
            sizes = {Digest(file.digest): file.size for file in tree.files}
            try:
                async with asyncio.TaskGroup() as group:
                    for digest, size in sizes.items():
                        group.create_task(push(digest, size))
            except BaseExceptionGroup as errors:
                raise errors.exceptions[0] from None
        elif caching.promises is not None:
            promises = caching.promises
            names = [Digest(file.digest) for file in tree.files]
            await in_thread(caching.threads, lambda: promises.keep(names))
        encoded = trees.encode(tree)
        listed = await in_thread(caching.threads, lambda: caching.store.put(encoded))
        with caching.store.pinned(listed):
            last = Put(listed, len(encoded), run.assigned, is_list=True, keep=keep)
            await caching.push(listed, last, owner)

    async def discard(self, run: Run) -> None:
        """Its folder is not needed any more."""
        folder = self._root / f"run-{run.attempt}"
        stop = threading.Event()
        await in_thread(self._caching.threads, lambda: work_folder.remove(folder, stop), stop)


def _copy(store: BlobStore, digest: Digest, target: Path) -> None:
    part = target.with_name(f"{target.name}.part")
    part.unlink(missing_ok=True)
    copy_out(store, digest, part)
    part.chmod(0o644)
    part.replace(target)


def _inputs_of(run: Run) -> tuple[list[Input], bytes]:
    """What it needs, and its arguments with paths instead of files."""
    inputs = list(run.work.inputs)
    arguments = run.arguments
    if mentions_files(arguments):
        given = msgspec.json.decode(arguments)
        inputs += files_in(given)
        named = with_paths(given)
        if run.work.driver == "model" and isinstance(named, str):
            # The whole input is a file: a model is given what is in it.
            named = {"blob": named, "media_type": mimetypes.guess_type(named)[0]}
        arguments = msgspec.json.encode(named)
    return list(dict.fromkeys(checked(one) for one in inputs)), arguments
