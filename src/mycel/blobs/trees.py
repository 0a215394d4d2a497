"""A folder as one blob: a list of its files with their digests.

    fold(folder) ─▶ Tree ─▶ its JSON is a blob ─▶ unfold(tree, target)

A tree comes from somebody else and is believed in nothing: paths stay below the target, there
are no links, devices or special bits, and there is a limit on files and on depth.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec

from mycel.core.model.task_files import is_below

from . import digests
from .blob_store import BlobStore, copy_out
from .digests import Digest
from .errors import BadTree

FILES_MAX: Final = 100_000
TREE_BYTES_MAX: Final = 64 << 20


class TreeFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    digest: str
    size: int
    executable: bool = False


class Tree(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    files: list[TreeFile]
    folders: list[str] = []
    """Those without files in them."""


def encode(tree: Tree) -> bytes:
    return msgspec.json.encode(tree)


def decode(data: bytes) -> Tree:
    try:
        tree = msgspec.json.decode(data, type=Tree)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadTree(f"this is no list of files: {error}") from None
    check(tree)
    return tree


def check(tree: Tree) -> None:
    if len(tree.files) + len(tree.folders) > FILES_MAX:
        raise BadTree(f"a folder may have {FILES_MAX} files, this has {len(tree.files)}")
    seen: set[str] = set()
    for path in [*(file.path for file in tree.files), *tree.folders]:
        _check_path(path)
        if path in seen:
            raise BadTree(f"{path!r} is there twice")
        seen.add(path)
    files = {file.path for file in tree.files}
    for path in seen:
        inside = next((one for one in _above(path) if one in files), None)
        if inside is not None:
            raise BadTree(f"{inside!r} is a file, and {path!r} lies in it")
    for file in tree.files:
        digests.parse(file.digest)
        if file.size < 0:
            raise BadTree(f"{file.path!r} cannot have {file.size} bytes")


def _above(path: str) -> Iterator[str]:
    for parent in PurePosixPath(path).parents:
        if parent.name:
            yield str(parent)


def _check_path(path: str) -> None:
    if not is_below(path):
        raise BadTree(f"{path[:200]!r} is no path below a folder")


def fold(store: BlobStore, folder: Path) -> Tree:
    """Takes all files below a folder into the store."""
    return listed(folder, store.put_file)


def listed(folder: Path, take: Callable[[Path], str]) -> Tree:
    """The list of all files below a folder; `take` is called for each, for its digest. Links are
    not followed: they are refused, because what they mean elsewhere is something else."""
    files: list[TreeFile] = []
    folders: list[str] = []
    for path in _walk(folder):
        name = path.relative_to(folder).as_posix()
        status = path.lstat()
        if stat.S_ISDIR(status.st_mode):
            folders.append(name)
        elif stat.S_ISREG(status.st_mode):
            executable = bool(status.st_mode & stat.S_IXUSR)
            files.append(TreeFile(name, take(path), status.st_size, executable))
        else:
            raise BadTree(f"{path} is a link or a device: only files and folders travel")
        if len(files) + len(folders) > FILES_MAX:
            raise BadTree(f"{folder} has more than {FILES_MAX} files")
    tree = Tree(files, folders)
    check(tree)
    return tree


def _walk(folder: Path) -> Iterator[Path]:
    """Files and links, and folders with nothing in them; in the order of names."""
    entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    for entry in entries:
        path = Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            empty = True
            for below in _walk(path):
                empty = False
                yield below
            if empty:
                yield path
        else:
            yield path


def unfold(store: BlobStore, tree: Tree, target: Path) -> None:
    """Lays a tree out in an empty folder of our own."""
    check(tree)
    for name in tree.folders:
        (target / name).mkdir(parents=True, exist_ok=True)
    for file in tree.files:
        place = target / file.path
        place.parent.mkdir(parents=True, exist_ok=True)
        copy_out(store, Digest(file.digest), place)
        place.chmod(0o755 if file.executable else 0o644)
