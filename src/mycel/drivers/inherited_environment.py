"""What a task's environment inherits from the worker's: little, and named."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

INHERITED: Final = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
)


def inherited_environment(
    environment: Mapping[str, str] | None = None, *, also: tuple[str, ...] = ()
) -> dict[str, str]:
    source = os.environ if environment is None else environment
    return {name: source[name] for name in (*INHERITED, *also) if name in source}
