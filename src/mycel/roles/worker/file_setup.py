"""How a worker gets the files of its tasks: its cache, and where they are laid out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mycel.access.key_files import load_or_create_key
from mycel.blobs.blob_store import BlobStore
from mycel.blobs.kept_outputs import KeptOutputs
from mycel.blobs.task_transfers import TaskFiles
from mycel.blobs.worker_blobs import WorkerBlobs
from mycel.drivers.helper.leftovers import remove_leftovers

if TYPE_CHECKING:
    from mycel.roles.role_process import Program


def caching_of(program: Program) -> WorkerBlobs:
    settings = program.configuration.worker.files
    limit = settings.max_blob_size or None
    folder = program.folder.path / "blobs"
    store = BlobStore(folder, settings.cache_size, limit)
    keep_size = settings.keep_size or settings.cache_size // 2
    promises = KeptOutputs(store, folder, keep_size, settings.keep_hours * 3600.0)
    # Kept, as the blobs are: schedulers that have it may go on to send others here.
    key = load_or_create_key(folder / "ticket.key", "the cache's key")
    return WorkerBlobs(store, program.note, key=key, promises=promises)


def files_of(program: Program, caching: WorkerBlobs) -> TaskFiles:
    """What an earlier worker left of its tasks' folders is removed."""
    root = program.folder.path / "tasks" / "files"
    if root.exists():
        remove_leftovers(root.resolve(), "run-")
    worker = program.configuration.worker
    cache_size = int(worker.files.cache_size)
    limit = min(int(worker.files.max_output_size) or cache_size, cache_size)
    return TaskFiles(caching, root.resolve(), worker.shared_paths, limit)
