"""A folder of blobs with a limit: what is used least recently goes first, what is in use stays.

    begin ─▶ Incoming.write … ─▶ finish      verified, durable, then visible under its digest
                     └─ broken off: the part stays, and the next `begin` goes on from there

    <root>/objects/ab/cdef…     whole blobs; the time of change is the time of last use
    <root>/partial/abcdef…      what has arrived of others

One process owns the folder; its threads may share the store, and each `Incoming` is one
thread's at a time. Nothing here knows of the network.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from blake3 import blake3

from mycel._native import begin_write_back

from . import digests
from .digests import Digest
from .errors import BadTree, BlobTooLarge, NoRoom, NoSuchBlob, TransferStopped, WrongContent

if TYPE_CHECKING:
    from mycel._native import Slice

CHUNK_BYTES: Final = 1 << 20
WRITE_BACK_BYTES: Final = 8 << 20
_CLONE: Final = 0x40049409
"""FICLONE, of Linux."""


class BlobStore:
    def __init__(
        self, root: Path, bytes_max: int, blob_bytes_max: int | None = None, *, evicts: bool = True
    ) -> None:
        """Without `evicts` nothing goes unless it is removed: a full store takes no more."""
        self._objects = root / "objects"
        self._partial = root / "partial"
        self.limit(bytes_max, blob_bytes_max)
        self._evicts = evicts
        self.lock = threading.RLock()
        self._sizes: OrderedDict[Digest, int] = OrderedDict()
        """Least recently used first."""
        self._pins: Counter[Digest] = Counter()
        self._incoming: dict[Digest, Incoming] = {}
        self._whole = 0
        self._reserved = 0
        self.short_of_room: Callable[[], None] = lambda: None
        """Is called before anything is evicted: somebody may unpin what is not needed."""
        for folder in (self._objects, self._partial):
            folder.mkdir(parents=True, exist_ok=True)
        self._load()

    def limit(self, bytes_max: int, blob_bytes_max: int | None = None) -> None:
        """Also later: what is there already stays."""
        self._bytes_max = bytes_max
        self._blob_bytes_max = min(blob_bytes_max or bytes_max, bytes_max)

    def _load(self) -> None:
        found = []
        for path in self._objects.glob("??/*"):
            status = path.stat()
            digest = Digest(digests.PREFIX + path.parent.name + path.name)
            found.append((status.st_mtime_ns, digest, status.st_size))
        for _, digest, size in sorted(found):
            self._sizes[digest] = size
            self._whole += size
        self._reserved = sum(path.stat().st_size for path in self._partial.iterdir())
        with contextlib.suppress(NoRoom):  # the limit may be lower than it was
            self._make_room(0)

    # Reading

    @property
    def bytes_kept(self) -> int:
        """Whole blobs, and what has arrived of others."""
        return self._whole + self._reserved

    def __contains__(self, digest: Digest) -> bool:
        return digest in self._sizes

    def digests(self) -> list[Digest]:
        with self.lock:
            return list(self._sizes)

    def arrived(self, digest: Digest) -> int:
        """How much there is of one that broke off."""
        path = self._partial / digests.hexadecimal(digest)
        return path.stat().st_size if path.exists() else 0

    def size(self, digest: Digest) -> int:
        return self._sizes[self._known(digest)]

    def path(self, digest: Digest) -> Path:
        """Where it lies. Pin it for as long as the path is used."""
        with self.lock:
            self._touch(self._known(digest))
            return self._place(digest)

    @contextlib.contextmanager
    def reading(self, digest: Digest, offset: int = 0) -> Iterator[BinaryIO]:
        with self.pinned(digest), self.path(digest).open("rb") as file:
            file.seek(offset)
            yield file

    @contextlib.contextmanager
    def pinned(self, digest: Digest) -> Iterator[None]:
        self.pin(digest)
        try:
            yield
        finally:
            self.unpin(digest)

    def pin(self, digest: Digest) -> None:
        """It is in use until as many `unpin` follow."""
        with self.lock:
            self._pins[self._known(digest)] += 1

    def unpin(self, digest: Digest) -> None:
        with self.lock:
            assert self._pins[digest] > 0, "unpinned more often than pinned"
            self._pins[digest] -= 1
            if not self._pins[digest]:
                del self._pins[digest]

    # Writing

    def put(self, data: bytes) -> Digest:
        digest = digests.of_bytes(data)
        if digest not in self._sizes:
            with self.begin(digest, len(data)) as incoming:
                incoming.write(data[incoming.offset :])
                incoming.finish()
        return digest

    def put_file(
        self,
        path: Path,
        folder: int | None = None,
        *,
        bytes_max: int | None = None,
        stop: threading.Event | None = None,
    ) -> Digest:
        """A plain file, in a folder that is open: what a link leads to, or a device says, is not
        taken. No more is read of it than it has now. Raises `BadTree` for one that changes
        meanwhile or has more than `bytes_max`, and `TransferStopped` soon after `stop` is set."""
        with _open_plain(path, folder) as file:
            size = os.fstat(file.fileno()).st_size
            if bytes_max is not None and size > bytes_max:
                raise BadTree(f"{path.name!r} has grown to {size} bytes, which is too much")
            found = blake3()
            for chunk in _chunks(file, size, stop):
                found.update(chunk)
            digest = Digest(digests.PREFIX + found.hexdigest())
            if digest not in self._sizes:
                self._take(digest, file, size, stop)
        return digest

    def _take(
        self, digest: Digest, file: BinaryIO, size: int, stop: threading.Event | None
    ) -> None:
        try:
            with self.begin(digest, size) as incoming:
                file.seek(incoming.offset)
                for chunk in _chunks(file, size - incoming.offset, stop):
                    incoming.write(chunk)
                incoming.finish()
        except TransferStopped:
            self.drop_partial(digest)  # nobody goes on with it
            raise

    def begin(self, digest: Digest, size: int) -> Incoming:
        """Takes a blob in; `offset` of what is returned says how much of it is here already."""
        self.check_size(digest, size)
        with self.lock:
            if digest in self._incoming:
                raise NoRoom(f"{digest} is arriving already: wait for it")
            path = self._partial / digests.hexadecimal(digest)
            here = path.stat().st_size if path.exists() else 0
            if here > size:
                path.unlink()
                self._reserved -= here
                here = 0
            self._make_room(size - here)
            self._reserved += size - here
            incoming = self._incoming[digest] = Incoming(self, digest, size, path)
            return incoming

    @property
    def blob_bytes_max(self) -> int:
        """Of one blob."""
        return self._blob_bytes_max

    def check_size(self, digest: Digest, size: int) -> None:
        if not 0 <= size <= self._blob_bytes_max:
            raise BlobTooLarge(
                f"{digest} has {size} bytes, and {self._blob_bytes_max} are the limit for one"
            )

    def drop_partial(self, digest: Digest) -> None:
        """What has arrived of it is not to be gone on from."""
        with self.lock:
            path = self._partial / digests.hexadecimal(digest)
            if digest not in self._incoming and path.exists():
                self._reserved -= path.stat().st_size
                path.unlink()

    def remove(self, digest: Digest) -> None:
        with self.lock:
            if self._pins[digest]:
                raise NoRoom(f"{digest} is in use")
            self._whole -= self._sizes.pop(self._known(digest))
            self._place(digest).unlink(missing_ok=True)

    # For `Incoming`

    def finished(self, incoming: Incoming, path: Path) -> None:
        place = self._place(incoming.digest)
        place.parent.mkdir(exist_ok=True)
        path.replace(place)
        _sync_folder(place.parent)
        with self.lock:
            self._sizes[incoming.digest] = incoming.size
            self._whole += incoming.size
            self._reserved -= incoming.size
            del self._incoming[incoming.digest]

    def broken_off(self, incoming: Incoming, here: int) -> None:
        with self.lock:
            self._reserved -= incoming.size - here
            del self._incoming[incoming.digest]

    # Keeping the limit

    def _make_room(self, size: int) -> None:
        excess = self.bytes_kept + size - self._bytes_max
        if excess <= 0:
            return
        self.short_of_room()
        for path in list(self._partial.iterdir()):  # nobody may ever come back for those
            digest = Digest(digests.PREFIX + path.name)
            if excess > 0 and digest not in self._incoming:
                freed = path.stat().st_size
                path.unlink()
                self._reserved -= freed
                excess -= freed
        unused = [digest for digest in self._sizes if self._evicts and not self._pins[digest]]
        for digest in unused:
            if excess <= 0:
                return
            excess -= self._sizes[digest]
            self.remove(digest)
        if excess > 0:
            raise NoRoom(
                f"there is no room for {size} bytes: {self._bytes_max} are the limit, and the "
                "rest is in use"
            )

    def _known(self, digest: Digest) -> Digest:
        if digest not in self._sizes:
            raise NoSuchBlob(f"{digest} is not here")
        return digest

    def _touch(self, digest: Digest) -> None:
        self._sizes.move_to_end(digest)
        os.utime(self._place(digest))

    def _place(self, digest: Digest) -> Path:
        name = digests.hexadecimal(digest)
        return self._objects / name[:2] / name[2:]


class Incoming:
    """A blob on its way in. As a context manager: whatever happens, the store's book is right."""

    def __init__(self, store: BlobStore, digest: Digest, size: int, path: Path) -> None:
        self.digest = digest
        self.size = size
        self._store = store
        self._path = path
        self._hash = blake3()
        self._file = path.open("ab")
        self._is_open = True
        self.offset = 0
        self._begun = 0
        """So far the disk has been told to begin: what is left for the end is little."""
        with path.open("rb") as here:
            while chunk := here.read(CHUNK_BYTES):
                self._hash.update(chunk)
                self.offset += len(chunk)

    def __enter__(self) -> Incoming:
        return self

    def __exit__(self, *failure: object) -> None:
        if self._is_open:
            self.break_off()

    def write(self, data: bytes | memoryview | Slice) -> None:
        if self.offset + len(data) > self.size:
            self._discard()
            raise WrongContent(f"{self.digest} was said to have {self.size} bytes, and has more")
        with self._on_full_disk():
            self._file.write(data)
        self._hash.update(data)
        self.offset += len(data)
        if self.offset - self._begun >= WRITE_BACK_BYTES:
            begin_write_back(self._file.fileno(), self._begun, self.offset - self._begun)
            self._begun = self.offset

    def finish(self) -> None:
        if self.offset != self.size or self._hash.hexdigest() != digests.hexadecimal(self.digest):
            short = f"{self.offset} of {self.size} bytes" if self.offset < self.size else "bytes"
            self._discard()
            raise WrongContent(f"what arrived as {self.digest} ({short}) is something else")
        with self._on_full_disk():
            self._file.flush()
            os.fsync(self._file.fileno())
        self._file.close()
        self._is_open = False
        self._store.finished(self, self._path)

    @contextlib.contextmanager
    def _on_full_disk(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            with contextlib.suppress(OSError):  # what it could not write, it tries again
                self._discard()
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise NoRoom(f"the disk is full: {self.digest} needs {self.size} bytes") from error
            raise

    def break_off(self) -> None:
        """What is here stays, for whoever goes on."""
        self._is_open = False
        self._store.broken_off(self, self.offset)
        self._file.close()

    def _discard(self) -> None:
        self._is_open = False
        self._path.unlink(missing_ok=True)
        self._store.broken_off(self, 0)
        self._file.close()


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _chunks(file: BinaryIO, size: int, stop: threading.Event | None) -> Iterator[bytes]:
    """The next `size` bytes of a file that should end there."""
    left = size
    while left:
        if stop is not None and stop.is_set():
            raise TransferStopped("nobody wants it any more")
        chunk = file.read(min(CHUNK_BYTES, left))
        if not chunk:
            break
        left -= len(chunk)
        yield chunk
    if left or file.read(1):
        raise BadTree("a file changed while it was read: a task's outputs stay as they are")


def _open_plain(path: Path, folder: int | None) -> BinaryIO:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError as error:
        raise BadTree(f"{path.name!r} cannot be taken: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BadTree(f"{path.name!r} is no plain file: only files and folders travel")
    return os.fdopen(descriptor, "rb")


def copy_out(store: BlobStore, digest: Digest, target: Path) -> None:
    """A copy that whoever gets it may change: of the blocks where the file system shares them
    until then, else of the bytes. A link would let a task change what others get."""
    with store.pinned(digest):
        path = store.path(digest)
        with path.open("rb") as source, target.open("xb") as copy:
            try:
                fcntl.ioctl(copy.fileno(), _CLONE, source.fileno())
            except OSError:
                shutil.copyfileobj(source, copy, CHUNK_BYTES)
