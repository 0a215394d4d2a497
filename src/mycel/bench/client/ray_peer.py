"""Ray as a child of the benchmark: its environment in the cache, its process, its answers."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mycel.console.errors import CommandError
from mycel.local.scratch_homes import default_folder

VERSION: Final = "ray==2.60.0"
"""As `benchmarks/peers.py` has it; both use the same folder."""
SCRIPT: Final = Path(__file__).with_name("ray_pool.py")
PACKAGES: Final = (VERSION, "numpy")


def python(install: bool) -> Path | None:
    """Of Ray's environment; None if there is none."""
    found = default_folder().parent / "peers" / "ray" / "bin" / "python"
    if install:
        make = [sys.executable, "-m", "venv", str(found.parent.parent)]
        quiet = ["--quiet", "--disable-pip-version-check"]
        for command in (make, [str(found), "-m", "pip", "install", *quiet, *PACKAGES]):
            if subprocess.run(command).returncode:
                raise CommandError(f"{VERSION} cannot be installed; it says why above")
    return found if found.exists() else None


class RayPeer:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._answer()

    def seconds_of(self, kind: str, amount: int) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{kind} {amount}\n")
        self._process.stdin.flush()
        return float(self._answer()["seconds"])

    def _answer(self) -> dict[str, float]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith('{"event"'):
                found: dict[str, float] = json.loads(line)
                return found
        raise CommandError(f"Ray ended with {self._process.wait()}; it says why above")


@contextlib.contextmanager
def running(interpreter: Path) -> Iterator[RayPeer]:
    """In a session of its own, all of which is gone afterwards."""
    # Not the variables of the environment that this runs in.
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    with subprocess.Popen(
        [str(interpreter), str(SCRIPT)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    ) as process:
        try:
            yield RayPeer(process)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
