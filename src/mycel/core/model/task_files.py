"""Files that go with tasks, as everybody names them: what a task needs, what it leaves.

An argument may be a file: `{"$file": "blake3:…", "path": "texts/a.txt"}` stands for that file
in the task's working folder, and the task gets its path instead. So each task of a job can have
files of its own, wherever arguments come from: a sweep, a batch, an earlier stage.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from mycel.core.ranges import Name, Path, Paths, Word

DEPTH_MAX: Final = 64
PATH_BYTES_MAX: Final = 4096
FILE_KEY: Final = "$file"
MODEL_INPUT_PATH: Final = "input"
"""Where the file lies that a model task names as its input by the digest."""
_MARK: Final = b'"$file"'
_DIGEST: Final = re.compile(r"blake3:[0-9a-f]{64}")
_DIGEST_IN_JSON: Final = re.compile(rb'"\$file"\s*:\s*"(blake3:[0-9a-f]{64})"')


class BadFile(Exception):
    """Whoever wrote the job is to correct it."""


class Input(msgspec.Struct, frozen=True, array_like=True):
    """A file or folder that is to lie in a task's working folder."""

    path: Path
    """Below the working folder; "." is the folder itself."""
    digest: Name = ""
    tree: bool = False
    """The digest is that of a list of files, see `mycel.blobs.trees`."""
    shared: Path = ""
    """Instead of a digest: where it lies on a file system that the worker has too."""
    executable: bool = False


class Outputs(msgspec.Struct, frozen=True, array_like=True):
    """What of a working folder comes back."""

    patterns: Paths = ()
    keep: Word = ""
    """`worker`: its files stay where they are until somebody asks for them."""


def is_digest(text: object) -> bool:
    return isinstance(text, str) and _DIGEST.fullmatch(text) is not None


def is_below(path: str) -> bool:
    """Whether this names something below a folder, whatever it is laid upon."""
    parts = path.split("/")
    return not (
        not path
        or len(path.encode(errors="surrogatepass")) > PATH_BYTES_MAX
        or len(parts) > DEPTH_MAX
        or any(part in ("", ".", "..") or "\0" in part for part in parts)
        or "\\" in path
    )


def checked(one: Input) -> Input:
    if one.path != "." and not is_below(one.path):
        raise BadFile(f"{one.path[:200]!r} is no path below the working folder")
    if one.path == "." and not one.tree:
        raise BadFile("only a folder can be laid out as the working folder itself")
    if bool(one.digest) == bool(one.shared):
        raise BadFile(f"{one.path!r} has either a digest or a shared path")
    if one.digest and not is_digest(one.digest):
        raise BadFile(f"{one.digest[:80]!r} is no digest: 'blake3:' and 64 hexadecimal digits")
    if one.shared and (not one.shared.startswith("/") or "\0" in one.shared):
        raise BadFile(f"a shared path is absolute, not {one.shared[:200]!r}")
    return one


def check_pattern(pattern: str) -> None:
    if not is_below(pattern):
        raise BadFile(f"{pattern[:200]!r} is no pattern of files below the working folder")


def mentions_files(encoded: bytes) -> bool:
    """Cheap enough to be asked of every task's arguments."""
    return _MARK in encoded


def digests_in(encoded: bytes) -> list[str]:
    """Of the files among a task's arguments, without a look at what else they are."""
    return [digest.decode() for digest in _DIGEST_IN_JSON.findall(encoded)]


def files_in(value: Any) -> Iterator[Input]:
    """The files among a task's arguments. Raises `BadFile`."""
    if isinstance(value, dict):
        if FILE_KEY in value:
            yield _file(value)
            return
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from files_in(one)


def with_paths(value: Any) -> Any:
    """The same arguments as the task gets them: each file is its path."""
    if isinstance(value, dict):
        if FILE_KEY in value:
            return _file(value).path
        return {name: with_paths(one) for name, one in value.items()}
    if isinstance(value, list):
        return [with_paths(one) for one in value]
    return value


def _file(value: dict[str, Any]) -> Input:
    digest, path = value[FILE_KEY], value.get("path")
    unknown = sorted(value.keys() - {FILE_KEY, "path", "tree", "size"})
    if unknown or not isinstance(digest, str) or not isinstance(path, str):
        raise BadFile('a file is {"$file": "blake3:…", "path": "…"}, and "tree": true if a folder')
    return checked(Input(path, digest, value.get("tree") is True))
