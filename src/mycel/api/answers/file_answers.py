"""The files of a task, as clients see them."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import astuple

from mycel.blobs.claims import OutputsRecord
from mycel.core.model.work import Work


class InputAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    path: str
    digest: str = ""
    tree: bool = False
    shared: str = ""
    executable: bool = False


class OutputsAnswer(msgspec.Struct, frozen=True):
    """What a task leaves: what it declares, and once it has succeeded, what there is."""

    patterns: tuple[str, ...]
    keep: str | UnsetType = UNSET
    digest: str | UnsetType = UNSET
    """Of the list of files, which is a blob itself."""
    files: int | UnsetType = UNSET
    size: int | UnsetType = UNSET
    """Bytes, of all files."""
    worker: str | UnsetType = UNSET
    """Where the files lie, if they were to stay there."""


def with_files(declared: OutputsAnswer, left: OutputsRecord) -> OutputsAnswer:
    return msgspec.structs.replace(
        declared,
        digest=left.digest,
        files=left.files,
        size=left.size,
        worker=left.worker or UNSET,
    )


def files_of(work: Work) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if work.inputs:
        found["inputs"] = [InputAnswer(*astuple(one)) for one in work.inputs]
    if work.outputs is not None:
        found["outputs"] = OutputsAnswer(work.outputs.patterns, work.outputs.keep or UNSET)
    return found
