"""Jobs that are too big for one request, cut into batches that a scheduler takes."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from mycel.core.model.derivation import BATCH_TASKS_MAX, input_arguments, mentions_input

from .functions.values import json_arguments
from .json_body import encode

BATCH_BYTES_MAX: Final = 4_000_000
"""Below `max_request_size`, also when that was lowered to half of its default."""
WAYS: Final = frozenset({"count", "arguments", "matrix", "inputs"})
"""How a stage says how many tasks it has."""

Part = tuple[dict[str, Any], int]
"""A batch without its number, and how many tasks it has."""


def split(body: Mapping[str, Any]) -> tuple[dict[str, Any], Iterator[Part] | None]:
    """What to open the job with, and its batches; none if one request takes it all."""
    head = dict(body)
    if not isinstance(head.get("stages"), list):
        pieces = _pieces(head)
        if pieces is None:
            return head, None
        return {**head, "closed": False}, _parts("", pieces)
    parts: list[Iterator[Part]] = []
    stages = []
    for stage in head["stages"]:
        bare = dict(stage) if isinstance(stage, dict) else stage
        pieces = _pieces(bare) if isinstance(stage, dict) else None
        if pieces is not None:
            parts.append(_parts(str(bare.get("name", "")), pieces))
        elif isinstance(bare, dict) and not bare.keys() & WAYS:
            bare["count"] = 1  # an open job would have none
        stages.append(bare)
    if not parts:
        return head, None
    return {**head, "stages": stages, "closed": False}, (one for each in parts for one in each)


def outline(body: Mapping[str, Any]) -> dict[str, Any]:
    """The job for a dry run, in one request: tasks that would go in batches are counted. Their
    arguments change neither their number nor their shapes."""
    head, parts = split(body)
    if parts is None:
        return head
    counts: Counter[str] = Counter()
    for part, tasks in parts:
        counts[part.get("stage", "")] += tasks
    head["closed"] = body.get("closed", True)
    if not isinstance(head.get("stages"), list):
        return {**head, "count": counts[""]}
    return {**head, "stages": [_counted(stage, counts) for stage in head["stages"]]}


def _counted(stage: Any, counts: Mapping[str, int]) -> Any:
    count = counts.get(str(stage.get("name", ""))) if isinstance(stage, dict) else None
    return {**stage, "count": count} if count else stage


def _pieces(table: dict[str, Any]) -> Iterator[bytes] | None:
    """JSON arrays of arguments, if there are too many for one request; the table loses them."""
    if table.get("overrides"):
        return None  # they name tasks by number, or by parameters that batches do not have
    if "arguments" in table and not isinstance(table["arguments"], str | bytes | Mapping):
        source: Iterable[Any] = table["arguments"]
    elif isinstance(table.get("inputs"), list) and isinstance(table.get("task"), Mapping):
        if len(table["inputs"]) <= BATCH_TASKS_MAX and len(encode(table)) <= BATCH_BYTES_MAX:
            return None
        task = table["task"] = dict(table["task"])
        template = task.pop("arguments", None)
        if "model" in task:
            template = task.setdefault("input", "${input}")
        alone = not mentions_input(task.get("command") or (), (task.get("env") or {}).values())
        filled = (input_arguments(one, template, alone) for one in table["inputs"])
        # A batch has tables and lists; a model's text is a table in short.
        source = ({"text": one} if isinstance(one, str) else one for one in filled)
    else:
        return None
    pieces = batches(source)
    first, second = next(pieces, b"[]"), next(pieces, None)
    if second is None and "inputs" not in table:
        table["arguments"] = msgspec.Raw(first)
        return None
    table.pop("arguments", None)
    table.pop("inputs", None)
    return itertools.chain((first,) if second is None else (first, second), pieces)


def _parts(stage: str, pieces: Iterator[bytes]) -> Iterator[Part]:
    for piece in pieces:
        part: dict[str, Any] = {"arguments": msgspec.Raw(piece)}
        if stage:
            part["stage"] = stage
        yield part, len(msgspec.json.decode(piece, type=list[msgspec.Raw]))


def batches(arguments: Iterable[Any]) -> Iterator[bytes]:
    """JSON arrays. A list or tuple is positional arguments, a dict is named ones, and
    anything else the only argument."""
    items: list[bytes] = []
    size = 0
    for one in arguments:
        item = encode(json_arguments(one))
        if items and (len(items) == BATCH_TASKS_MAX or size + len(item) > BATCH_BYTES_MAX):
            yield b"[" + b",".join(items) + b"]"
            items, size = [], 0
        items.append(item)
        size += len(item) + 1
    if items:
        yield b"[" + b",".join(items) + b"]"
