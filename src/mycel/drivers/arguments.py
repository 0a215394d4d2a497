"""How a task's arguments become part of its command.

A list is appended. An object fills `{name}` in each word of the command: only names that the
object has; every other brace is left as it is, so that `awk '{print $1}'` means what it says.
A name that no word mentions changes nothing. Text is taken as it is, anything else as JSON.
"""

from __future__ import annotations

import re

import msgspec

_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")


class BadArguments(Exception):
    """The task's own fault; the message is for its user."""


def fill_command(command: tuple[str, ...], arguments: bytes) -> tuple[str, ...]:
    try:
        given = msgspec.json.decode(arguments)
    except msgspec.DecodeError as error:
        raise BadArguments(f"the arguments are not JSON: {error}") from error
    if isinstance(given, list):
        return (*command, *map(_text, given))
    if not isinstance(given, dict):
        raise BadArguments(f"arguments must be a list or an object, not {_text(given)[:80]!r}")
    values = {name: _text(value) for name, value in given.items()}

    def value_of(match: re.Match[str]) -> str:
        return values.get(match[1], match[0])

    # In one pass: a value that looks like a placeholder is not filled again.
    return tuple(_PLACEHOLDER.sub(value_of, word) for word in command)


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
