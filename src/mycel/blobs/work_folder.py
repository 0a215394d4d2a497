"""A task's working folder: inputs are laid out in it before the task, outputs gathered after it.

The task's own word counts for nothing here: it may have left links, devices, or a million files.
All calls block.
"""

from __future__ import annotations

import itertools
import os
import re
import stat
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from mycel.core.model.resources import size
from mycel.core.model.task_files import DEPTH_MAX, Input, is_below

from . import trees
from .blob_store import BlobStore, copy_out
from .digests import Digest
from .errors import BadTree, TransferStopped
from .folder_removal import remove_tree
from .trees import Tree, TreeFile

ENTRIES_MAX: Final = 1_000_000
"""Looked at in a working folder."""


class NotShared(Exception):
    """This worker does not offer that path; another may."""


def lay_out(
    store: BlobStore, inputs: Sequence[Input], folder: Path, shared_paths: Sequence[str]
) -> None:
    """Into an empty folder of ours. All blobs are here, and pinned. Raises `BadTree`,
    `NotShared`."""
    try:
        for one in inputs:
            if one.digest:
                _lay_blob(store, one, folder)
        for one in inputs:  # last: nothing is ever written through a link
            if one.shared:
                _lay_link(one, folder, shared_paths)
    except FileExistsError as error:
        name = Path(str(error.filename2 or error.filename)).name
        raise BadTree(f"two inputs are to lie at {name!r}") from error
    except NotADirectoryError as error:
        name = Path(str(error.filename)).name
        raise BadTree(f"one input is to lie in another, at {name!r}") from error


def _lay_blob(store: BlobStore, one: Input, folder: Path) -> None:
    target = folder if one.path == "." else folder / one.path
    if not one.tree:
        target.parent.mkdir(parents=True, exist_ok=True)
        copy_out(store, Digest(one.digest), target)
        target.chmod(0o755 if one.executable else 0o644)
        return
    target.mkdir(parents=True, exist_ok=True)
    trees.unfold(store, read_tree(store, Digest(one.digest)), target)


def read_tree(store: BlobStore, digest: Digest) -> Tree:
    if store.size(digest) > trees.TREE_BYTES_MAX:
        raise BadTree(f"{digest} is too long for a list of files")
    with store.reading(digest) as file:
        return trees.decode(file.read())


def _lay_link(one: Input, folder: Path, shared_paths: Sequence[str]) -> None:
    source = Path(one.shared).resolve()
    allowed = (Path(path).resolve() for path in shared_paths)
    if not any(source == path or path in source.parents for path in allowed):
        raise NotShared(
            f"this worker does not share {one.shared}: its owner can allow it by "
            "[worker] shared_paths"
        )
    if not source.exists():
        raise NotShared(f"{one.shared} is not there on this worker")
    target = folder / one.path
    target.parent.mkdir(parents=True, exist_ok=True)
    if folder.resolve() not in (target.parent.resolve(), *target.parent.resolve().parents):
        raise BadTree(f"{one.path!r} would lie in another shared path")
    target.symlink_to(source)


class GatherLimits(msgspec.Struct, frozen=True):
    """How the outputs of one task are taken in."""

    bytes_max: int
    """Of all its files together, by their apparent sizes: a sparse file is read like any other."""
    stop: threading.Event = msgspec.field(default_factory=threading.Event)
    """Set when nobody wants them any more."""


def gather(
    store: BlobStore, patterns: Sequence[str], folder: Path, gathering: GatherLimits
) -> Tree:
    """Takes what fits the patterns into the store, each pinned for the caller to unpin. Sizes are
    looked at first, all of them, and nothing is read of what is too much. Raises `BadTree` where
    a pattern finds nothing, or nothing that can be taken, and `TransferStopped`."""
    chosen = [(pattern, pattern_of(pattern)) for pattern in patterns]
    _check_sizes(store, chosen, folder, gathering)
    unfound = dict.fromkeys(patterns)
    files: list[TreeFile] = []
    left = gathering.bytes_max
    try:
        for name, place, entry in _entries(folder, gathering.stop):
            fitting = [pattern for pattern, expression in chosen if expression.match(name)]
            if not fitting:
                continue
            for pattern in fitting:
                unfound.pop(pattern, None)
            files.append(_taken(store, name, place, entry, left, gathering.stop))
            left -= files[-1].size
            if len(files) > trees.FILES_MAX:
                raise BadTree(f"the task left more than {trees.FILES_MAX:,} files as outputs")
        if unfound:
            missing = ", ".join(repr(pattern) for pattern in unfound)
            raise BadTree(f"the task left no file that fits {missing}, which it declares as output")
    except BaseException:
        unpin(store, files)
        raise
    return Tree(files)


def _check_sizes(
    store: BlobStore,
    chosen: Sequence[tuple[str, re.Pattern[str]]],
    folder: Path,
    gathering: GatherLimits,
) -> None:
    total = 0
    for name, _, entry in _entries(folder, gathering.stop):
        if not any(expression.match(name) for _, expression in chosen):
            continue
        status = entry.stat(follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode):
            continue  # refused when it is taken
        if status.st_size > store.blob_bytes_max:
            raise BadTree(
                f"the output {name[:200]!r} has {size(status.st_size)}, and the limit for a file "
                f"is {size(store.blob_bytes_max)}: the worker's owner can raise [worker.files] "
                "max_blob_size, or cache_size"
            )
        total += status.st_size
        if total > gathering.bytes_max:
            raise BadTree(
                f"the outputs up to {name[:200]!r} have {size(total)}, and the limit for a task is "
                f"{size(gathering.bytes_max)}: the worker's owner can raise [worker.files] "
                "max_output_size, or cache_size"
            )


def unpin(store: BlobStore, files: Sequence[TreeFile]) -> None:
    for file in files:
        store.unpin(Digest(file.digest))


def _taken(
    store: BlobStore,
    name: str,
    place: int,
    entry: os.DirEntry[str],
    bytes_max: int,
    stop: threading.Event,
) -> TreeFile:
    if not (is_below(name) and _is_text(name)):
        raise BadTree(f"the output {name[:200]!r} has a name that cannot travel")
    status = entry.stat(follow_symlinks=False)
    if not stat.S_ISREG(status.st_mode):
        raise BadTree(f"the output {name!r} is a link or a device: only files travel")
    digest = store.put_file(Path(entry.name), place, bytes_max=bytes_max, stop=stop)
    store.pin(digest)
    executable = bool(status.st_mode & stat.S_IXUSR)
    return TreeFile(name, digest, store.size(digest), executable)


def _is_text(name: str) -> bool:
    """A name is bytes, which need not be UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _entries(folder: Path, stop: threading.Event) -> Iterator[tuple[str, int, os.DirEntry[str]]]:
    """All that are no folders, by name, each with the folder that it is in, held open: a function's
    interpreter may outlive its call, and put links in the place of folders while we look."""
    count = 0

    def below(prefix: str, place: int) -> Iterator[tuple[str, int, os.DirEntry[str]]]:
        nonlocal count
        if prefix.count("/") > DEPTH_MAX:
            raise BadTree(f"the task left folders that nest more than {DEPTH_MAX} levels deep")
        with os.scandir(place) as found:
            entries = list(itertools.islice(found, ENTRIES_MAX - count + 1))
        count += len(entries)
        if count > ENTRIES_MAX:
            raise BadTree(f"the task left more than {ENTRIES_MAX:,} files in its folder")
        entries.sort(key=lambda entry: entry.name)
        for entry in entries:
            if stop.is_set():
                raise TransferStopped("nobody wants its outputs any more")
            name = prefix + entry.name
            if entry.is_dir(follow_symlinks=False):
                with _opened(entry.name, name, place) as inside:
                    yield from below(f"{name}/", inside)
            else:
                yield name, place, entry

    with _opened(str(folder), folder.name) as place:
        yield from below("", place)


@contextmanager
def _opened(path: str, name: str, place: int | None = None) -> Iterator[int]:
    try:
        opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=place)
    except OSError as error:
        raise BadTree(f"the folder {name!r} cannot be looked into: {error.strerror}") from error
    try:
        yield opened
    finally:
        os.close(opened)


def pattern_of(pattern: str) -> re.Pattern[str]:
    """`*` and `?` within a name, `**` over folders; a folder stands for all that is in it.

    Whatever comes before the last star is sought once, from the left: if it fits anywhere, it
    fits there. To try all the other places as well takes years with some patterns."""
    *before, last = _parted(pattern.rstrip("/").split("/"), "**")
    expression = ""
    for number, names in enumerate(before):
        found = "".join(_name_pattern(name) + "/" for name in names)
        expression += f"(?>(?:[^/]+/)*?{found})" if number else found
    if before:
        expression += "(?:[^/]+/)*"
    expression += "/".join(map(_name_pattern, last)) + "(?:/.*)?" if last else ".*"
    try:
        return re.compile(expression + r"\Z", re.DOTALL)
    except re.error as error:
        raise BadTree(f"the output {pattern!r} is no pattern: {error}") from error


def _parted(parts: list[str], by: str) -> list[list[str]]:
    found: list[list[str]] = [[]]
    for part in parts:
        if part == by:
            found.append([])
        else:
            found[-1].append(part)
    return found


def _name_pattern(name: str) -> str:
    pieces = re.split(r"(\*+|\?|\[!?[^\]/]+\])", name)
    chunks = [""]
    for piece in pieces:
        if piece.startswith("*"):
            chunks.append("")
        elif piece == "?":
            chunks[-1] += "[^/]"
        elif piece.startswith("[") and piece.endswith("]") and len(piece) > 2:
            inside = re.sub(r"([\\^\[&|~])", r"\\\1", piece[1:-1])
            chunks[-1] += f"[^/{inside[1:]}]" if inside.startswith("!") else f"[{inside}]"
        else:
            chunks[-1] += re.escape(piece)
    first, *others = chunks
    if not others:
        return first
    *middle, last = others
    return first + "".join(f"(?>[^/]*?{chunk})" for chunk in middle) + f"[^/]*{last}"


def remove(folder: Path, stop: threading.Event | None = None) -> None:
    remove_tree(folder, stop)
