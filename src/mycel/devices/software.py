"""Software that tasks may ask for, with versions: `software = { cuda = ">=12.2" }`."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

PROBE_SECONDS: Final = 3.0
PROBES: Final = {
    "podman": ("podman", "--version"),
    "docker": ("docker", "--version"),
    "cuda": ("nvcc", "--version"),
    "rocm": ("hipconfig", "--version"),
    "bubblewrap": ("bwrap", "--version"),
}
_VERSION: Final = re.compile(r"(?:release |version |\bv|\s|^)(\d+(?:\.\d+)+)")


def detect(run: Callable[[tuple[str, ...]], str] | None = None) -> tuple[tuple[str, str], ...]:
    """Name and version, by name. The probes run side by side."""
    ask = run or _run
    found = {"python": platform.python_version()}
    with ThreadPoolExecutor(len(PROBES)) as threads:
        for name, text in zip(PROBES, threads.map(ask, PROBES.values()), strict=True):
            match = _VERSION.search(text)
            if match is not None:
                found[name] = match[1]
    return tuple(sorted(found.items()))


def _run(command: tuple[str, ...]) -> str:
    if shutil.which(command[0]) is None:
        return ""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout
