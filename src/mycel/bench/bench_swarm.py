"""Starting a benchmark's swarm as users do: by `mycel up`, a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec

from mycel.console.errors import CommandError
from mycel.local.local_swarm import Running

WORKERS: Final = 2


def create(home: Path) -> Running:
    """A new home with its swarm, on free ports."""
    return start(home, "--workers", str(WORKERS), "--port", "0")


def start(home: Path, *options: str) -> Running:
    """What is missing of it; an existing home knows its ports and workers."""
    command = [sys.executable, "-m", "mycel", "up", "--home", str(home)]
    command += ["--detach", "--json", "--show-token"]
    # In a session of its own, out of Ctrl-C's reach, and waited for even when we are
    # interrupted: `mycel down` finds only roles that have come up.
    # Without the sandbox, whose price would hide that of everything else.
    environment = {"MYCEL_WORKER__SANDBOX": "off", **os.environ}
    starting = subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, start_new_session=True, env=environment
    )
    assert starting.stdout is not None
    try:
        printed = starting.stdout.read()
    finally:
        code = starting.wait()
        starting.stdout.close()
    if code != 0:
        raise CommandError(f"'mycel up' has failed with exit code {code}")
    return msgspec.json.decode(printed, type=Running)
