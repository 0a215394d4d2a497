"""What reaches the terminal: text from elsewhere is cleaned in one place, whoever prints it.

Names, labels, reasons and errors come from other people's tasks and machines, and a terminal obeys
what it is sent: escape sequences move the cursor, set the clipboard, hide links; other controls
overwrite or reorder what was printed. `cleaned_streams` puts a filter under every `print`. What a
task itself has written goes past it, as bytes; see `Output`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Final, TextIO

_KEPT: Final = "\n\t"
_COLOUR: Final = r"\x1b\[[0-9;:]{0,64}m"
_OUTPUT: Final = re.compile(rf"({_COLOUR})|([^\n\t\r])")


def clean(text: str) -> str:
    """Without what a terminal would obey, or shows as something else than it is."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in _KEPT else "?" for one in text)


def escaped_json(text: str) -> str:
    """The same JSON, in which nothing is left that a terminal would obey."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one == "\n" else _escape(one) for one in text)


def _escape(one: str) -> str:
    units = one.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


class CleanStream:
    """A text stream that cleans what is written to it. Its `buffer` takes bytes as they are."""

    def __init__(self, inner: TextIO) -> None:
        self._inner = inner
        self.write_own = inner.write
        """For escape sequences of our own."""

    def write(self, text: str) -> int:
        return self._inner.write(clean(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@contextmanager
def cleaned_streams() -> Iterator[None]:
    before = sys.stdout, sys.stderr
    sys.stdout = CleanStream(sys.stdout)
    sys.stderr = CleanStream(sys.stderr)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def write_own(stream: TextIO, text: str) -> None:
    """Text with escape sequences of ours, and with nothing in it that was not cleaned."""
    getattr(stream, "write_own", stream.write)(text)


class Output:
    """Where what a task has written goes: exactly as it is into files and pipes. On a terminal
    only colours are left of its escape sequences, unless it is to be `raw`."""

    def __init__(self, *, raw: bool = False) -> None:
        self._raw = raw

    def write(self, stream: TextIO, data: bytes) -> None:
        binary: BinaryIO = stream.buffer
        if self._raw or not stream.isatty():
            binary.write(data)
        else:
            binary.write(clean_output(data))


def clean_output(data: bytes) -> bytes:
    text = data.decode("utf-8", "replace")
    if text.isprintable():
        return text.encode()
    return _OUTPUT.sub(_kept, text).encode()


def _kept(found: re.Match[str]) -> str:
    return found[0] if found[1] or found[0].isprintable() else "?"
