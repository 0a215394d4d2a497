"""The sandbox of a worker that is not root: the same walls, by a user namespace."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mycel.drivers.sandbox.bubblewrap import OFFLINE, folder_words, wrap_words
from mycel.drivers.sandbox.filter import filter_program

from .subjects import needs_bubblewrap

NOBODY = 65534
SCRIPT = """
grep -E 'CapEff|NoNewPrivs' /proc/self/status
touch mine /tmp/mine /dev/shm/mine && echo own places
touch /usr/x || touch /etc/x || touch /x || touch /dev/x || echo nothing else
unshare --user true || echo no namespaces
ls /home /root /run || echo no homes
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where somebody else can reach it."""
    made = Path(tempfile.mkdtemp(dir="/var/tmp"))
    os.chown(made, NOBODY, NOBODY)
    yield made
    shutil.rmtree(made)


@needs_bubblewrap
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_user_without_rights_can_confine_too(folder: Path) -> None:
    program = shutil.which("bwrap")
    assert program is not None
    words = wrap_words(
        program, is_root=False, readable=(), hidden="/nowhere", temporary_bytes=10**7
    )
    loaded = os.memfd_create("filter")
    os.write(loaded, filter_program() or b"")
    os.lseek(loaded, 0, os.SEEK_SET)
    command = ("--", "sh", "-c", SCRIPT)
    done = subprocess.run(
        [*words, *OFFLINE, *folder_words(str(folder)), "--seccomp", str(loaded), *command],
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        pass_fds=(loaded,),
        capture_output=True,
        check=False,
        text=True,
        cwd="/",
    )
    os.close(loaded)
    if "No permissions to create new namespace" in done.stderr:
        pytest.skip("this kernel gives users no namespaces")
    assert done.stdout.split("\n")[2:] == [
        "own places",
        "nothing else",
        "no namespaces",
        "no homes",
        "",
    ], done.stderr
    assert "CapEff:\t0000000000000000" in done.stdout
    assert "NoNewPrivs:\t1" in done.stdout
