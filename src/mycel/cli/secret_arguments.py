"""Secrets as arguments: a command line is visible to everybody on the machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

SECRET_LENGTH_MAX: Final = 64_000


def read_secret(given: str) -> str:
    """The text itself, a file that holds it, or - for standard input: a command line is
    visible to everybody on the machine."""
    if given == "-":
        return sys.stdin.read(SECRET_LENGTH_MAX).strip()
    if not given.startswith("mycel") and Path(given).is_file():
        return Path(given).read_text(encoding="utf-8", errors="replace")[:SECRET_LENGTH_MAX].strip()
    return given.strip()
