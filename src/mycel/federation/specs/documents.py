"""Text as values with the line of each key, for job specs in YAML and JSON."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import yaml  # type: ignore[import-untyped]  # it brings no types along

from mycel.client.errors import JobFileError
from mycel.client.yaml_files import parse_yaml
from mycel.core.federation.errors import SpecError

TEXT_BYTES_MAX: Final = 1 << 20
VALUES_MAX: Final = 50_000
NAME_MAX: Final = 1_000
NESTED_MAX: Final = 100
"""YAML's parser takes time by the square of it; what is read has a closer limit of its own."""

Keys = tuple[str, ...]


class Document(msgspec.Struct, frozen=True):
    name: str
    text: str
    value: Any
    lines: dict[Keys, int]

    def place(self, path: Keys) -> str:
        """`job.yaml, line 7 (resources.0.count)`"""
        shown = ".".join(path)
        line = next(
            (self.lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in self.lines),
            None,
        )
        where = self.name if line is None else f"{self.name}, line {line}"
        return f"{where} ({shown})" if shown else where

    def wrong(self, path: Keys, problem: str) -> SpecError:
        return SpecError(self.place(path), problem)

    def table(self, value: Any, path: Keys, known: frozenset[str]) -> dict[str, Any]:
        """A mapping without keys that mean nothing."""
        if not isinstance(value, dict):
            raise self.wrong(path, f"must be a mapping, not {_kind(value)}")
        for key in value:
            if key not in known:
                raise self.wrong((*path, key), f"{key!r} is not known here ({_listed(known)} are)")
        return value

    def sequence(self, value: Any, path: Keys) -> list[Any]:
        if not isinstance(value, list):
            raise self.wrong(path, f"must be a list, not {_kind(value)}")
        if not value:
            raise self.wrong(path, "must not be empty")
        return value

    def string(self, value: Any, path: Keys) -> str:
        if isinstance(value, (dict, list)) or value is None:
            raise self.wrong(path, f"must be a string, not {_kind(value)}")
        if isinstance(value, bool):
            return "true" if value else "false"
        return str(value)

    def printable(self, value: Any, path: Keys) -> str:
        """A text that is shown and compared: a type, a label, a unit."""
        text = self.string(value, path)
        if len(text) > NAME_MAX or not text.isprintable():
            raise self.wrong(path, f"must be up to {NAME_MAX} printable characters")
        return text

    def integer(self, value: Any, path: Keys, least: int = 1) -> int:
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.wrong(path, f"must be a whole number, not {_kind(value)}")
        if value < least:
            raise self.wrong(path, f"is {value}, but must be at least {least}")
        return value

    def boolean(self, value: Any, path: Keys) -> bool:
        if isinstance(value, str) and value in ("true", "false"):
            return value == "true"
        if not isinstance(value, bool):
            raise self.wrong(path, "must be true or false")
        return value

    def seconds(self, value: Any, path: Keys) -> float:
        if isinstance(value, str):
            try:
                value = float(value)
            except ValueError:
                raise self.wrong(path, f"{value!r} is no number of seconds") from None
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise self.wrong(path, f"must be a number of seconds, not {_kind(value)}")
        if not 0 <= value <= 1e15:
            raise self.wrong(path, f"{value} is no number of seconds from 0 on")
        return float(value)


def read_document(name: str, text: str) -> Document:
    """Raises SpecError."""
    check_text(name, text)
    _check_size(name, text)
    try:
        value, lines = parse_yaml(name, text)
    except JobFileError as error:
        raise SpecError("", str(error)) from error
    return Document(name, text, value, lines)


def check_text(name: str, text: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise SpecError(name, f"character {error.start} is half a character") from None
    if size > TEXT_BYTES_MAX:
        raise SpecError(name, f"is over {TEXT_BYTES_MAX >> 20} MiB")


def _check_size(name: str, text: str) -> None:
    """Counts values as if every alias were written out: nine lines of them can make millions."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    sizes: dict[str, int] = {}
    total = 0
    open_: list[tuple[str | None, int]] = []
    try:
        for event in yaml.parse(text, Loader=loader):
            if isinstance(event, yaml.AliasEvent):
                total += sizes.get(event.anchor, 1)
            elif isinstance(event, yaml.CollectionStartEvent):
                open_.append((event.anchor, total))
                total += 1
                if len(open_) > NESTED_MAX:
                    line = event.start_mark.line + 1
                    raise SpecError(f"{name}, line {line}", "this is nested too deep")
            elif isinstance(event, yaml.CollectionEndEvent):
                anchor, before = open_.pop()
                if anchor is not None:
                    sizes[anchor] = total - before
            elif isinstance(event, yaml.ScalarEvent):
                total += 1
            if total > VALUES_MAX:
                raise SpecError(name, f"has more than {VALUES_MAX} values")
    except yaml.YAMLError:
        return  # the reader says what is wrong with it


def _kind(value: Any) -> str:
    names = {dict: "a mapping", list: "a list", str: "a text", type(None): "nothing"}
    return names.get(type(value), str(value))


def _listed(known: frozenset[str]) -> str:
    return ", ".join(sorted(known))
