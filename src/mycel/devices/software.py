"""Software that tasks may ask for, with versions: `software = { cuda = ">=12.2" }`."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

PROBE_SECONDS: Final = 3.0
PROBES: Final = {
    "podman": ("podman", "--version"),
    "docker": ("docker", "--version"),
    "cuda": ("nvcc", "--version"),
    "rocm": ("hipconfig", "--version"),
    "bubblewrap": ("bwrap", "--version"),
    "uv": ("uv", "--version"),
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
    # Beside our own interpreter too: what `pip` has installed need not be on the path.
    search = os.pathsep.join((os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)))
    program = shutil.which(command[0], path=search)
    if program is None:
        return ""
    try:
        done = subprocess.run(
            (program, *command[1:]),
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
