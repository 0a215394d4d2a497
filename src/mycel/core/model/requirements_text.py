"""What a task's environment is given as: the text of a requirements or lock file.

A text that names further files is refused, because they do not travel with it, and because a
worker reads no file of its own for somebody else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

TEXT_BYTES_MAX: Final = 1 << 20
LINES_MAX: Final = 20_000
_SAID_CHARACTERS: Final = 200
"""Of a line that is complained of."""
_PYLOCK: Final = re.compile(r"^lock-version\s*=", re.MULTILINE)
_UV_LOCK: Final = (
    re.compile(r"^version[ \t]*=[ \t]*\d+[ \t]*$", re.MULTILINE),
    re.compile(r"^\[\[package\]\]", re.MULTILINE),
)
_END_OF_LINE: Final = re.compile(r"\r\n|\r|\n")
_COMMENT: Final = re.compile(r"(^|[ \t])#.*$")
_BLANKS: Final = re.compile(r"[ \t]+")
_URL: Final = r"(?:git\+)?https?://[^\s/\\\"'][^\s\\\"']*"
"""Others lead to the worker's own files, or are opened by its owner's own keys. In small letters:
to uv, others are paths."""
_VERSION: Final = r"(?:===?|[!<>~]=|[<>]) ?[\w.*+!-]+"
_VERSIONS: Final = rf"\(? ?{_VERSION}(?: ?, ?{_VERSION})* ?,? ?\)?"
_MARKER: Final = r";(?:(?! -)[\w .,<>=!~()+*\"'-])+"
_HASHES: Final = r"(?: --hash[= ]\w+:[0-9a-fA-F]+)*"
_NAMED: Final = re.compile(
    r"(?P<name>[A-Za-z0-9][\w.-]*) ?(?:\[[\w .,-]*\])? ?"
    rf"(?:@ ?{_URL}(?: {_MARKER})?|(?:{_VERSIONS})? ?(?:{_MARKER})?){_HASHES}",
    re.ASCII,
)
_UNNAMED: Final = re.compile(rf"{_URL}(?: {_MARKER})?{_HASHES}", re.ASCII)
_ARCHIVE: Final = re.compile(r".*\.(whl|zip|tar|tar\.\w+|t[a-z]z2?)", re.IGNORECASE)
_OPTION: Final = re.compile(
    rf"(?:-i|-f|--(?:extra-)?index-url|--find-links)[= ]*([\"']?){_URL}\1"
    r"|--(?:pre|no-index|prefer-binary|require-hashes)"
    r"|--(?:only-binary|no-binary|trusted-host)[= ][\w.:,-]+",
    re.ASCII,
)
_ANOTHER_FILE: Final = re.compile(r"(-r|-c|-e|--(requirements?|constraints?|editable)(?![\w-])).*")
_SOURCE: Final = re.compile(r"(-i|-f|--(extra-)?index-url|--find-links)(?![\w-]).*")
_LOOKS_LIKE_A_PLACE: Final = re.compile(r"[/\\@]|^\.|^file:")
_PLACES_OF_A_LOCK: Final = ("path", "url", "index")


class BadEnvironment(Exception):
    """The message is for whoever wrote it."""


def checked_text(text: str) -> str:
    """What uv is to read of it: of requirements, only lines that can mean one thing. Whatever it
    would make of comments, of lines that go on and of two things in one line, it never sees."""
    if len(text.encode()) > TEXT_BYTES_MAX:
        raise BadEnvironment(f"an environment has at most {TEXT_BYTES_MAX >> 20} MiB of text")
    if "\0" in text:
        raise BadEnvironment("an environment is text, and this contains a NUL character")
    if is_pylock(text):
        _check_lock(text)
        return text
    if all(sign.search(text) for sign in _UV_LOCK):
        raise BadEnvironment(
            "this is a uv.lock, which needs its project: give what "
            "`uv export --format requirements.txt` makes of it"
        )
    if text.count("\n") + text.count("\r") > LINES_MAX:
        raise BadEnvironment(f"an environment has at most {LINES_MAX} lines")
    lines = [_BLANKS.sub(" ", line).strip(" ") for line in _lines(text)]
    for line in lines:
        _check_line(line)
    return "".join(f"{line}\n" for line in lines if line)


def _lines(text: str) -> Iterator[str]:
    """Without comments; a backslash at the end of one does not go on."""
    begun = ""
    for line in _END_OF_LINE.split(text):
        said = _COMMENT.sub("", line)
        if said == line and line.endswith("\\"):
            begun += line[:-1]
        else:
            yield begun + said
            begun = ""
    yield begun


def _check_line(line: str) -> None:
    said = repr(line[:_SAID_CHARACTERS])
    if "${" in line:
        raise BadEnvironment("variables such as ${NAME} are not filled in: write what they mean")
    if _ANOTHER_FILE.fullmatch(line):
        raise BadEnvironment(
            f"{said} names another file, which does not travel with this one: "
            "give one file with all of it, such as `uv pip compile` writes"
        )
    named = _NAMED.fullmatch(line)
    known = _UNNAMED.fullmatch(line) or _OPTION.fullmatch(line)
    if named is not None and not _ARCHIVE.fullmatch(named["name"]):
        known = named
    if not line or (known is not None and line.isascii() and line.isprintable()):
        return
    if named is not None or _SOURCE.fullmatch(line) or _LOOKS_LIKE_A_PLACE.search(line):
        raise _is_a_path(line)
    raise BadEnvironment(f"{said} is neither a requirement nor an option that is known here")


def _is_a_path(line: str) -> BadEnvironment:
    return BadEnvironment(
        f"{line[:_SAID_CHARACTERS]!r} is a path on the worker's machine, or more than one thing: "
        "give a URL, and one requirement a line"
    )


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
                if isinstance(place, str) and (key == "path" or not re.fullmatch(_URL, place)):
                    raise _is_a_path(place)


def is_pylock(text: str) -> bool:
    return _PYLOCK.search(text) is not None


def file_name(text: str) -> str:
    """uv tells the two apart by their names."""
    return "pylock.toml" if is_pylock(text) else "requirements.txt"
