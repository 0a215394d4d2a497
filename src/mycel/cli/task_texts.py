"""What a task runs, in a line: with its own parameters, as they reach it."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from mycel.client import Task
from mycel.core.errors import TooLong
from mycel.core.model.substitution import Budget, fill_word

TEXT_LENGTH_MAX: Final = 2000


def what_runs(task: Task) -> str:
    text = _what(task)
    return text if len(text) <= TEXT_LENGTH_MAX else text[: TEXT_LENGTH_MAX - 1] + "…"


def _what(task: Task) -> str:
    if task.python:
        return f"{task.python}{_call(task.arguments)}"
    if task.command and isinstance(task.arguments, dict):
        filled = " ".join(_filled(word, task.arguments) for word in task.command)
        given = ", ".join(f"{name}={_text(one)}" for name, one in task.arguments.items())
        return f"{given}: {' '.join(filled.split())}"
    if task.command:
        words = list(task.command)
        words += [_text(one) for one in task.arguments] if isinstance(task.arguments, list) else []
        program = " ".join(" ".join(words).split())
        return f"{task.image}: {program}" if task.image else program
    if task.model:
        return f"{task.model} {_text(task.input)}" if task.input is not None else task.model
    named = task.image or task.driver or ""
    return f"{named}{_call(task.arguments)}" if task.arguments is not None else named


def _call(arguments: Any) -> str:
    if arguments is None:
        return ""
    if isinstance(arguments, dict):
        return f"({', '.join(f'{name}={_json(one)}' for name, one in arguments.items())})"
    if isinstance(arguments, list):
        return f"({', '.join(map(_json, arguments))})"
    return f"({_json(arguments)})"


def _filled(word: str, arguments: dict[str, Any]) -> str:
    try:
        return fill_word(word, arguments, Budget())
    except TooLong:
        return word


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
