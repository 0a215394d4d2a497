"""How a task's arguments become part of its command.

A list is appended. An object fills `${name}` and `{name}` in each word of the command, and
`${name}` in the environment: only names that the object has; every other brace is left as it
is, so that `awk '{print $1}'` means what it says. A name that no word mentions changes nothing.
Text is taken as it is, anything else as JSON.
"""

from __future__ import annotations

from typing import Any

import msgspec

from mycel.core.errors import TooLong
from mycel.core.model.substitution import Budget, fill_text, fill_word, text_of
from mycel.core.model.work import Work


class BadArguments(Exception):
    """The task's own fault; the message is for its user."""


def fill_command(command: tuple[str, ...], arguments: bytes) -> tuple[str, ...]:
    given = _decoded(arguments)
    if isinstance(given, list):
        return (*command, *map(text_of, given))
    budget = Budget()
    try:
        return tuple(fill_word(word, given, budget) for word in command)
    except TooLong as error:
        raise BadArguments(str(error)) from error


def fill_environment(work: Work, arguments: bytes) -> Work:
    """The same work, with the environment that this task gets."""
    if not arguments or not any("${" in value for _, value in work.env):
        return work
    given = _decoded(arguments)
    if isinstance(given, list):
        return work
    budget = Budget()
    try:
        env = tuple((name, fill_text(value, given, budget)) for name, value in work.env)
    except TooLong as error:
        raise BadArguments(str(error)) from error
    return msgspec.structs.replace(work, env=env)


def _decoded(arguments: bytes) -> list[Any] | dict[str, Any]:
    try:
        given = msgspec.json.decode(arguments)
    except msgspec.DecodeError as error:
        raise BadArguments(f"the arguments are not JSON: {error}") from error
    if not isinstance(given, list | dict):
        raise BadArguments(f"arguments must be a list or an object, not {text_of(given)[:80]!r}")
    return given
