"""YAML, read safely and with the line of every key.

Values are those of YAML 1.2's core: `no` and `1:30` are texts. Nodes are read one by one, so
that no tag makes an object, a key that stands twice is noticed, and aliases cannot blow up.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any, Final

import yaml  # type: ignore[import-untyped]  # it brings no types along

from .errors import JobFileError

NODES_MAX: Final = 2_000_000
DEPTH_MAX: Final = 50
_TAG: Final = "tag:yaml.org,2002:"
_INTEGER: Final = re.compile(r"[-+]?[0-9]{1,19}")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_KNOWN: Final = ("str", "int", "float", "bool", "null", "timestamp", "map", "seq", "merge", "value")

Keys = tuple[str, ...]


def parse_yaml(name: str, text: str) -> tuple[Any, dict[Keys, int]]:
    """The value, and the line of each key; an array's elements are keys such as "0"."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _check_depth(name, yaml.parse(text, Loader=loader))
        node = yaml.compose(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        reason = error.problem or error.context
        raise JobFileError(f"{name}{where}: this is not YAML: {reason}") from error
    except yaml.YAMLError as error:
        raise JobFileError(f"{name}: this is not YAML: {error}") from error
    reader = _Reader(name)
    value = None if node is None else reader.value(node, ())
    return value, reader.lines


def _check_depth(name: str, events: Iterable[Any]) -> None:
    """Before nodes are made of them: that goes by the C stack, which ends the program."""
    depth = 0
    for event in events:
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEPTH_MAX:
                mark = event.start_mark
                where = f"{name}, line {mark.line + 1}, column {mark.column + 1}"
                raise JobFileError(f"{where}: this is too deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


class _Reader:
    def __init__(self, name: str) -> None:
        self.lines: dict[Keys, int] = {}
        self._name = name
        self._nodes = 0

    def value(self, node: Any, path: Keys) -> Any:
        self._nodes += 1
        if self._nodes > NODES_MAX or len(path) > DEPTH_MAX:
            raise self._wrong(node, "this is too large, or too deep")
        kind = node.tag.removeprefix(_TAG)
        if kind not in _KNOWN:
            raise self._wrong(node, f"the tag {node.tag!r} means nothing here")
        if isinstance(node, yaml.MappingNode):
            return self._table(node, path)
        if isinstance(node, yaml.SequenceNode):
            found = []
            for place, one in enumerate(node.value):
                below = (*path, str(place))
                self.lines.setdefault(below, one.start_mark.line + 1)
                found.append(self.value(one, below))
            return found
        return self._scalar(node, kind) if not node.style else node.value

    def _table(self, node: Any, path: Keys) -> dict[str, Any]:
        found: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == f"{_TAG}merge":
                merged |= self._merged(value_node, path)
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                raise self._wrong(key_node, "a key is a text")
            key: str = key_node.value
            if key in found:
                raise self._wrong(key_node, f"the key {key!r} stands here twice")
            below = (*path, key)
            self.lines[below] = key_node.start_mark.line + 1
            found[key] = self.value(value_node, below)
        return {**merged, **found}

    def _merged(self, node: Any, path: Keys) -> dict[str, Any]:
        """`<<: *base`: what is named here wins over what is merged, the first over later ones."""
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        merged: dict[str, Any] = {}
        for source in reversed(sources):
            if not isinstance(source, yaml.MappingNode):
                raise self._wrong(source, "<< takes a table, or a list of them")
            merged |= self._table(source, path)
        return merged

    def _scalar(self, node: Any, kind: str) -> Any:
        text: str = node.value
        if kind == "null":
            return None
        if kind == "bool" and text.lower() in ("true", "false"):
            return text.lower() == "true"
        if _INTEGER.fullmatch(text):
            return int(text)
        if _FLOAT.fullmatch(text):
            number = float(text)
            if math.isinf(number):
                raise self._wrong(node, f"{text} is too large")
            return number
        return text

    def _wrong(self, node: Any, reason: str) -> JobFileError:
        mark = node.start_mark
        return JobFileError(
            f"{self._name}, line {mark.line + 1}, column {mark.column + 1}: {reason}"
        )
