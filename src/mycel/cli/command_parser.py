"""argparse, with hints for what was mistyped."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, Final, NoReturn

_UNKNOWN: Final = re.compile(r"unrecognized arguments: (--[^ =]+)")
_CHOICE: Final = re.compile(r"invalid choice: '([^']*)' \(choose from (.*)\)")


class Parsed(BaseException):
    """Instead of parsing: only the parser was wanted."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        super().__init__()
        self.parser = parser


class CommandParser(argparse.ArgumentParser):
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


def run_action(
    command: str, actions: Mapping[str, Callable[[list[str]], int]], given: list[str]
) -> int:
    """Runs the action that is named, with the arguments around its name."""
    for place, word in enumerate(given):
        if word in actions:
            return actions[word](given[:place] + given[place + 1 :])
    parser = CommandParser(
        prog=f"mycel {command}", epilog=f"'mycel {command} ACTION --help' says more."
    )
    parser.add_argument("action", choices=list(actions))
    parser.parse_args(given)
    raise AssertionError("argparse has refused it")


@contextmanager
def parsers_only() -> Iterator[None]:
    """Commands raise `Parsed` with their parser, and do nothing: each parses before it acts."""

    def only(parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        raise Parsed(parser)

    parse = argparse.ArgumentParser.parse_known_args
    argparse.ArgumentParser.parse_known_args = only  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        argparse.ArgumentParser.parse_known_args = parse  # type: ignore[method-assign]
