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
_CONTINUED: Final = re.compile(r"\\\r?\n")
_COMMENT: Final = re.compile(r"(^|\s)#.*$")
_ANOTHER_FILE: Final = re.compile(
    r"(-r|-c|-e|--(requirements?|constraints?|editable)(?![\w-])).*", re.DOTALL
)
_SOURCE: Final = re.compile(r"(?:-i|-f|--(?:extra-)?index-url|--find-links)(?![\w-])[\s=]*(.*)")
_LOOKS_LIKE_A_PLACE: Final = re.compile(r"[/\\]|^file:|@\s*file:|\.(whl|zip|tar\.\w+|tgz)\s*$")
_URL: Final = re.compile(r"(git\+)?https?://", re.IGNORECASE)
"""Others lead to the worker's own files, or are opened by its owner's own keys."""
_PLACES_OF_A_LOCK: Final = ("path", "url", "index")


class BadEnvironment(Exception):
    """The message is for whoever wrote it."""


def check_text(text: str) -> None:
    """Raises `BadEnvironment`."""
    if len(text.encode()) > TEXT_BYTES_MAX:
        raise BadEnvironment(f"an environment has at most {TEXT_BYTES_MAX >> 20} MiB of text")
    if "\0" in text:
        raise BadEnvironment("an environment is text, and this contains a NUL character")
    if is_pylock(text):
        _check_lock(text)
        return
    if _UV_LOCK.search(text):
        raise BadEnvironment(
            "this is a uv.lock, which needs its project: give what "
            "`uv export --format requirements.txt` makes of it"
        )
    for line in _CONTINUED.sub(" ", text).splitlines():
        _check_line(_COMMENT.sub("", line).strip())
    if "${" in text:
        raise BadEnvironment("variables such as ${NAME} are not filled in: write what they mean")


def _check_line(line: str) -> None:
    if not line.startswith("-"):
        requirement = line.partition(";")[0].partition(" --")[0]
        if _LOOKS_LIKE_A_PLACE.search(requirement):
            name, at, url = requirement.partition("@")
            _check_place(url if at and "/" not in name else requirement, line)
        return
    if _ANOTHER_FILE.fullmatch(line):
        raise BadEnvironment(
            f"{line!r} names another file, which does not travel with this one: "
            "give one file with all of it, such as `uv pip compile` writes"
        )
    source = _SOURCE.fullmatch(line)
    if source is not None:
        _check_place(source[1], line)


def _check_place(place: str, said: str) -> None:
    if not _URL.match(place.strip().strip("\"'")):
        raise BadEnvironment(f"{said!r} is a path on the worker's machine: give a URL")


def _check_lock(text: str) -> None:
    import tomllib  # few environments are locks of this kind

    try:
        waiting: list[object] = [tomllib.loads(text)]
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadEnvironment(f"this lock file cannot be read: {error}") from None
    while waiting:
        found = waiting.pop()
        if isinstance(found, list):
            waiting += found
        elif isinstance(found, dict):
            waiting += found.values()
            for key in _PLACES_OF_A_LOCK:
                place = found.get(key)
                if isinstance(place, str):
                    _check_place(place if key != "path" else "", place)


def is_pylock(text: str) -> bool:
    return _PYLOCK.search(text) is not None


def file_name(text: str) -> str:
    """uv tells the two apart by their names."""
    return "pylock.toml" if is_pylock(text) else "requirements.txt"
