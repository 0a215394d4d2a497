"""argparse, with hints for what was mistyped."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, Final, NoReturn

_UNKNOWN: Final = re.compile(r"unrecognized arguments: (--[^ =]+)")
_CHOICE: Final = re.compile(r"invalid choice: '([^']*)' \(choose from (.*)\)")


class Parsed(BaseException):
    """Instead of parsing: only the parser was wanted."""

    def __init__(self, parser: CommandParser) -> None:
        super().__init__()
        self.parser = parser


class CommandParser(argparse.ArgumentParser):
    wanted_only = False
    """While a completion asks what a command takes."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if CommandParser.wanted_only:
            raise Parsed(self)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        super().error(message + self._hint(message))

    def _hint(self, message: str) -> str:
        if unknown := _UNKNOWN.search(message):
            return did_you_mean(unknown[1], self.option_names())
        if choice := _CHOICE.search(message):
            return did_you_mean(choice[1], re.findall(r"[\w.:-]+", choice[2]))
        return ""

    def option_names(self) -> list[str]:
        return [name for name in self._option_string_actions if name.startswith("--")]


def did_you_mean(given: str, known: Iterator[str] | list[str]) -> str:
    """The end of a message; empty if nothing is near."""
    close = get_close_matches(given, list(known), 1)
    return f"; did you mean {close[0]!r}?" if close else ""


@contextmanager
def parsers_only() -> Iterator[None]:
    """Commands raise `Parsed` with their parser, and do nothing."""
    CommandParser.wanted_only = True
    try:
        yield
    finally:
        CommandParser.wanted_only = False
