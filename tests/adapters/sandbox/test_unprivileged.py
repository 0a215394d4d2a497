"""The sandbox of a worker that is not root: the same walls, by a user namespace."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mycel import _native
from mycel.drivers.sandbox import landlock
from mycel.drivers.sandbox.bubblewrap import OFFLINE, wrap_words
from mycel.drivers.sandbox.etc_folder import make_etc_folder
from mycel.drivers.sandbox.launch import Descriptors, confinement_words, memory_file
from mycel.drivers.sandbox.run_confinement import RunConfinement, SandboxPlan
from mycel.drivers.sandbox.seccomp_filter import filter_program

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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("own", [False, True])
def test_a_user_without_rights_can_confine_too(own: bool, folder: Path) -> None:
    program = "" if own else shutil.which("bwrap")
    if program is None:
        pytest.skip("bubblewrap is not installed: make test-tools")
    make_etc_folder(folder / "etc")
    work = folder / "own"
    work.mkdir()
    for path in (folder / "etc", work):
        os.chown(path, NOBODY, NOBODY)
    plan = SandboxPlan(
        wrap=wrap_words(
            program,
            is_root=False,
            readable=(),
            hidden="/nowhere",
            etc=str(folder / "etc"),
            temporary_bytes=10**7,
        ),
        offline=OFFLINE,
        rules=landlock.rules(landlock.version(), (), wrapped=True),
        own=own,
    )
    files = Descriptors(
        memory_file("launch", _native.launcher()), memory_file("filter", filter_program() or b"")
    )
    launcher = f"/proc/self/fd/{files.launcher}"
    done = subprocess.run(
        [
            *confinement_words(plan, RunConfinement(), str(work), launcher, (), {}, files),
            "/bin/sh",
            "-c",
            SCRIPT,
        ],
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        pass_fds=(files.launcher, files.filter),
        capture_output=True,
        check=False,
        text=True,
        cwd="/",
    )
    os.close(files.launcher)
    os.close(files.filter)
    if "new namespace" in done.stderr:
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
