"""The launcher's own sandbox and its keeper: how a task ends, and that nothing outlives it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mycel import _native
from mycel.drivers.sandbox import landlock
from mycel.drivers.sandbox.launch import Descriptors, confinement_words, memory_file
from mycel.drivers.sandbox.run_confinement import RunConfinement, SandboxPlan
from mycel.drivers.sandbox.seccomp_filter import NoNamespaces, filter_program
from mycel.testing.drivers.conformance_harness import is_gone

from .subjects import needs_landlock, standing_in

DEATH_SECONDS = 20.0
KINDS = ["walls", pytest.param("keeper", marks=needs_landlock)]


def confine_of(kind: str, folder: Path) -> SandboxPlan:
    status = standing_in(folder, "auto")
    if kind == "walls":
        if status.sandbox != "namespaces":
            pytest.skip(f"no namespaces here: {status.remarks}")
        return status.plan
    kernel = landlock.version()
    alone = NoNamespaces(network=False, scopes_signals=landlock.scopes_signals(kernel))
    rules = landlock.rules(kernel, (str(folder / "modules"),), wrapped=False)
    return SandboxPlan(
        launcher=_native.launcher(), filter=filter_program(alone=alone) or b"", rules=rules
    )


@pytest.fixture
def words(tmp_path: Path) -> Iterator[Callable[..., list[str]]]:
    """What comes before a command, for a kind."""
    made: list[int] = []
    (tmp_path / "modules").mkdir()

    def words_of(kind: str, **confinement: Any) -> list[str]:
        plan = confine_of(kind, tmp_path)
        files = Descriptors(
            memory_file("launch", plan.launcher), memory_file("filter", plan.filter)
        )
        made.extend(msgspec.structs.astuple(files))
        folder = tmp_path / "root" / "own"
        folder.mkdir(exist_ok=True)
        if plan.user >= 0:
            os.chown(folder, plan.user, -1)
        for descriptor in made:
            os.set_inheritable(descriptor, True)
        launcher = f"/proc/self/fd/{files.launcher}"
        return confinement_words(
            plan, RunConfinement(**confinement), str(folder), launcher, (), {}, files, os.getpid()
        )

    yield words_of
    for descriptor in made:
        os.close(descriptor)


def finished(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, close_fds=False, check=False)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("script", "code"), [("exit 7", 7), ("kill -9 $$", 137), ("true", 0)])
def test_it_ends_as_the_task_did(
    kind: str, script: str, code: int, words: Callable[..., list[str]]
) -> None:
    if "kill" in script and kind == "keeper" and not landlock.scopes_signals(landlock.version()):
        pytest.skip("on this kernel such a task signals nobody")
    done = finished([*words(kind), "/bin/sh", "-c", script])
    assert done.returncode == code, done.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_task_leaves_behind_ends_with_it(
    kind: str, words: Callable[..., list[str]], tmp_path: Path
) -> None:
    mark = f"3{os.getpid()}.{tmp_path.name[-1]}{time.monotonic_ns() % 10**6}"
    script = f"setsid sh -c 'sleep {mark} & sleep {mark} &' & sleep 0.3"
    done = finished([*words(kind), "/bin/sh", "-c", f"({script}) >/dev/null 2>&1"])
    assert done.returncode == 0, done.stderr
    assert not running(mark)


@pytest.mark.parametrize("kind", KINDS)
def test_it_ends_with_who_started_it(
    kind: str, words: Callable[..., list[str]], tmp_path: Path
) -> None:
    """As the spawn helper, which is killed: nobody is left to end anything."""
    mark = f"4{os.getpid()}.{time.monotonic_ns() % 10**6}"
    command = [*words(kind), "/bin/sh", "-c", f"sleep {mark} & setsid sleep {mark}"]
    starts = (
        "import os, sys, time\n"
        "words = [str(os.getpid()) if one == sys.argv[1] else one for one in sys.argv[2:]]\n"
        "os.posix_spawn(words[0], words, os.environ)\n"
        "time.sleep(1000)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", starts, str(os.getpid()), *command], close_fds=False
    )
    try:
        until(lambda: len(running(mark)) == 2)
    finally:
        parent.kill()
        parent.wait()
    until(lambda: not running(mark))


def test_a_launcher_whose_parent_has_gone_starts_nothing(
    words: Callable[..., list[str]], tmp_path: Path
) -> None:
    before = words("walls")
    before[before.index(str(os.getpid()))] = "1"  # not who starts it
    done = finished([*before, "/bin/echo", "started"])
    assert (done.returncode, done.stdout) == (125, "")


def test_a_task_is_itself_behind_the_walls(words: Callable[..., list[str]], tmp_path: Path) -> None:
    script = (
        "import os, socket\n"
        "print(os.uname().nodename, os.getcwd(), oct(os.umask(0)), os.getppid())\n"
        "here = socket.create_server(('127.0.0.1', 0))\n"
        "socket.create_connection(here.getsockname(), 5)\n"
        "print(' '.join(os.listdir('/dev')))\n"
        "print(os.path.exists('/dev/pts/ptmx'), open('/dev/null', 'w').write('x'))\n"
    )
    before = os.umask(0o027)
    try:
        done = finished([*words("walls"), sys.executable, "-S", "-c", script])
    finally:
        os.umask(before)
    lines = done.stdout.splitlines()
    assert lines[:1] == [f"mycel-task {tmp_path}/root/own 0o27 1"], done.stderr
    devices = {"null", "zero", "full", "random", "urandom", "tty", "shm", "pts", "ptmx", "fd"}
    assert set(lines[1].split()) >= devices
    assert lines[2] == "True 1"


@pytest.mark.skipif(not Path("/dev/net/tun").exists(), reason="there is no device to be shown")
def test_a_device_of_its_own_is_there(words: Callable[..., list[str]]) -> None:
    done = finished([*words("walls", devices=("/dev/net/tun",)), "/bin/ls", "/dev/net/tun"])
    assert done.stdout == "/dev/net/tun\n", done.stderr


def running(mark: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return [one for one in found if not is_gone(one)]


def until(condition: Callable[[], object]) -> None:
    ends_at = time.monotonic() + DEATH_SECONDS
    while not condition():
        assert time.monotonic() < ends_at, "it does not come to that"
        time.sleep(0.01)
