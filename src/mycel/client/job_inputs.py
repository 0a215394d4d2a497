"""Files on this machine that go with jobs, and what jobs bring home.

A job names files as people do: "data.csv", a folder, a pattern. Here each becomes its digest and
its place in the task's working folder, and is remembered for the upload.
"""

from __future__ import annotations

import glob
import mimetypes
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mycel.core.model.task_files import FILE_KEY, is_below

from .errors import JobFileError

Source = Path | bytes
"""Where the content of a blob is to be had."""


class LocalFiles:
    """`folder` is what relative names are relative to."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.sources: dict[str, Source] = {}

    def brought(self, task: Mapping[str, Any]) -> dict[str, Any]:
        """A task with the digests of what it names. Raises `JobFileError`."""
        brought = dict(task)
        if brought.get("inputs"):
            brought["inputs"] = self.inputs(brought["inputs"])
        given = brought.get("input")
        if isinstance(given, Path):
            brought["input"] = self.model_input(given)
        elif isinstance(given, Mapping) and "file" in given:
            unknown = sorted(given.keys() - {"file", "media_type"})
            if unknown or not isinstance(given["file"], str):
                raise JobFileError('the input of a model is { file = "…", media_type = "…" }')
            brought["input"] = self.model_input(given["file"], given.get("media_type"))
        return brought

    def model_input(self, name: str | Path, media_type: str | None = None) -> dict[str, Any]:
        """A file as the input of a model; what it is shows in its name, if nobody says so."""
        digest = self._hash(self._folder / name)
        media_type = media_type or mimetypes.guess_type(str(name))[0]
        return {"blob": digest, **({"media_type": media_type} if media_type else {})}

    def inputs(self, given: Any) -> list[dict[str, Any]]:
        """A task's `inputs`, as the REST API takes them. Raises `JobFileError`."""
        if isinstance(given, str | Mapping):
            given = [given]
        if not isinstance(given, list | tuple):
            raise JobFileError("inputs is a list of files and folders")
        return [found for one in given for found in self._input(one)]

    def file(self, path: str | Path, place: str | None = None) -> dict[str, Any]:
        """A file or folder as an argument of a task: the task gets the path instead."""
        found = self._named(str(path), place)
        argument = {FILE_KEY: found["digest"], "path": found["path"]}
        return {**argument, "tree": True} if "tree" in found else argument

    def _input(self, one: Any) -> list[dict[str, Any]]:
        if isinstance(one, str | os.PathLike):
            return self._matching(os.fspath(one))
        if not isinstance(one, Mapping):
            raise JobFileError(f"an input is a name or a table, not {one!r}")
        if "digest" in one or "shared" in one:
            return [dict(one)]
        unknown = sorted(one.keys() - {"path", "from"})
        if unknown or not isinstance(one.get("from", one.get("path")), str):
            raise JobFileError('an input is a name, or { path = "…", from = "…" }')
        source = one.get("from", one.get("path"))
        return [self._named(source, one.get("path"))]

    def _matching(self, name: str) -> list[dict[str, Any]]:
        if (self._folder / name).exists() or not glob.has_magic(name):
            return [self._named(name, None)]
        # Not `Path.glob`, which takes no absolute pattern.
        found = sorted(glob.glob(name, root_dir=self._folder, recursive=True))  # noqa: PTH207
        if not found:
            raise JobFileError(f"there is no file that fits {name!r} in {self._folder}")
        return [self._named(one, None) for one in found]

    def _named(self, name: str, place: str | None) -> dict[str, Any]:
        source = self._folder / name
        if place is None:
            plain = os.path.normpath(name)
            place = plain if plain == "." or is_below(plain) else source.resolve().name
        if place != "." and not is_below(place):
            raise JobFileError(f"{place!r} is no path below the task's working folder")
        try:
            if source.is_dir():
                return {"path": place, "digest": self._fold(source), "tree": True}
            found: dict[str, Any] = {"path": place, "digest": self._hash(source)}
            return {**found, "executable": True} if os.access(source, os.X_OK) else found
        except OSError as error:
            raise JobFileError(f"{source} cannot be read: {error.strerror}") from error

    def _hash(self, path: Path) -> str:
        from mycel.blobs import digests

        if not path.is_file():
            raise JobFileError(
                f"there is no file {path}" if not path.exists() else f"{path} is no plain file"
            )
        digest = digests.of_file(path) if path.stat().st_size else digests.of_bytes(b"")
        self.sources[digest] = path
        return digest

    def _fold(self, folder: Path) -> str:
        from mycel.blobs import digests, trees
        from mycel.blobs.errors import BadTree

        try:
            tree = trees.listed(folder, lambda path: self._hash(path))
        except BadTree as error:
            raise JobFileError(str(error)) from error
        encoded = trees.encode(tree)
        digest = digests.of_bytes(encoded)
        self.sources[digest] = encoded
        return digest


def place_in(folder: Path, name: str) -> Path:
    """Where a file of a list belongs; refuses what would lie outside, whatever lies there."""
    target = folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    root = folder.resolve()
    parent = target.parent.resolve()
    if parent != root and root not in parent.parents:
        raise JobFileError(f"{name!r} would be written outside {folder}: {target.parent} is a link")
    return target
