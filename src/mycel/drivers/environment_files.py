"""What a task's environment is given as: the text of a requirements or lock file.

A text that names further files is refused, because they do not travel with it, and because a
worker reads no file of its own for somebody else.
"""

from __future__ import annotations

import re
from typing import Final

TEXT_BYTES_MAX: Final = 1 << 20
_PYLOCK: Final = re.compile(r"^lock-version\s*=", re.MULTILINE)
_UV_LOCK: Final = re.compile(r"^version\s*=\s*\d+\s*$.*^\[\[package\]\]", re.MULTILINE | re.DOTALL)
_ANOTHER_FILE: Final = re.compile(
    r"^\s*(-r|--requirement|-c|--constraint|-e|--editable)\b.*$", re.MULTILINE
)
_PATH: Final = re.compile(r"^\s*(\.{0,2}/\S*|\S+\s*@\s*\.{0,2}/\S*).*$", re.MULTILINE)


class BadEnvironment(Exception):
    """The message is for whoever wrote it."""


def check_text(text: str) -> None:
    """Raises `BadEnvironment`."""
    if len(text.encode()) > TEXT_BYTES_MAX:
        raise BadEnvironment(f"an environment has at most {TEXT_BYTES_MAX >> 20} MiB of text")
    if "\0" in text:
        raise BadEnvironment("an environment is text, and this contains a NUL character")
    if is_pylock(text):
        return
    if _UV_LOCK.search(text):
        raise BadEnvironment(
            "this is a uv.lock, which needs its project: give what "
            "`uv export --format requirements.txt` makes of it"
        )
    another = _ANOTHER_FILE.search(text)
    if another is not None:
        raise BadEnvironment(
            f"{another[0].strip()!r} names another file, which does not travel with this one: "
            "give one file with all of it, such as `uv pip compile` writes"
        )
    path = _PATH.search(text)
    if path is not None:
        raise BadEnvironment(f"{path[0].strip()!r} is a path on the worker's machine: give a URL")
    if "${" in text:
        raise BadEnvironment("variables such as ${NAME} are not filled in: write what they mean")


def is_pylock(text: str) -> bool:
    return _PYLOCK.search(text) is not None


def file_name(text: str) -> str:
    """uv tells the two apart by their names."""
    return "pylock.toml" if is_pylock(text) else "requirements.txt"
