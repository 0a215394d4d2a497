"""Sets of numbers and of host names, written short: `0-3,7` (RFC 22), `n[0-3,7]` (RFC 29)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

IDS_MAX: Final = 200_000
"""A short text can name a great many. Nothing larger is expanded."""
NAME_MAX: Final = 253
"""As long as a host name may be."""

_HOSTS: Final = re.compile(r"([^\[\],]*)(?:\[([^\[\]]*)\]([^\[\],]*))?")


def parse_idset(text: str, most: int = IDS_MAX) -> set[int]:
    """Raises ValueError if it is none, or has more than `most` numbers."""
    words = text.strip()
    if words.startswith("[") and words.endswith("]"):
        words = words[1:-1]
    found: set[int] = set()
    for first, last, _ in _spans(words):
        if last - first + len(found) >= most:
            raise ValueError(f"more than {IDS_MAX} numbers")
        found.update(range(first, last + 1))
    return found


def parse_hostlist(text: str, most: int = IDS_MAX) -> set[str]:
    """`web,n[00-03,7]-ib` names six hosts. Raises ValueError, also for more than `most`."""
    found: set[str] = set()
    for part in _split(text):
        match = _HOSTS.fullmatch(part)
        if match is None or not part.strip():
            raise ValueError(f"{part!r} is no host name")
        prefix, numbers, suffix = match.groups()
        if len(part) - len(numbers or "") > NAME_MAX:
            raise ValueError(f"{part!r} is longer than a host name may be")
        if numbers is None:
            if len(found) >= most:
                raise ValueError(f"more than {IDS_MAX} hosts")
            found.add(prefix.strip())
            continue
        for first, last, width in _spans(numbers):
            if last - first + len(found) >= most:
                raise ValueError(f"more than {IDS_MAX} hosts")
            found.update(f"{prefix}{n:0{width}}{suffix}" for n in range(first, last + 1))
    return found


def _split(text: str) -> Iterator[str]:
    """At commas outside of brackets."""
    depth = start = 0
    for position, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth == 0:
            yield text[start:position].strip()
            start = position + 1
    yield text[start:].strip()


def _spans(text: str) -> Iterator[tuple[int, int, int]]:
    """First, last and the width that numbers are padded to."""
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not (first.isascii() and first.isdigit() and len(first) < 16):
            raise ValueError(f"{part!r} is no number and no range")
        if dash and not (last.isascii() and last.isdigit() and len(last) < 16):
            raise ValueError(f"{part!r} is no range")
        low, high = int(first), int(last) if dash else int(first)
        if high < low:
            raise ValueError(f"{part!r} ends before it begins")
        yield low, high, len(first)
