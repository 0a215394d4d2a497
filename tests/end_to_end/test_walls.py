"""Swarms on machines without bubblewrap: what holds tasks there, and what is told of it."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mycel import Client
from mycel.drivers.sandbox import landlock
from tests.attacks.somebody import CHECKOUT, SOMEBODY, start

from .conftest import SwarmMaker
from .swarm import eventually

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give rights up")
COMMAND = [sys.executable, "-m", "mycel"]
COMMAND_SECONDS = 120.0
_DROP_BOUND, _CAP_SYS_ADMIN = 24, 21
WITHOUT = "[worker]\ncpu_cores = 2\n"


def without_namespaces() -> None:
    """Root in a container, as most of them are started."""
    assert ctypes.CDLL(None).prctl(_DROP_BOUND, _CAP_SYS_ADMIN, 0, 0, 0) == 0


@pytest.fixture
def nothing_in_path(tmp_path: Path) -> str:
    """The system's programs, but for bubblewrap."""
    farm = tmp_path / "programs"
    farm.mkdir()
    for folder in ("/usr/bin", "/bin"):
        for program in Path(folder).iterdir():
            if program.name != "bwrap" and not (farm / program.name).is_symlink():
                (farm / program.name).symlink_to(program)
    return str(farm)


def test_the_launcher_makes_the_sandbox(make_swarm: SwarmMaker, nothing_in_path: str) -> None:
    swarm = make_swarm('[worker]\nsandbox = "required"\ncpu_cores = 2\n')
    swarm.environment.pop("MYCEL_WORKER__SANDBOX")
    swarm.environment["PATH"] = nothing_in_path
    swarm.up(workers=1)
    [worker] = swarm.mycel("workers", "--json").json["items"]
    assert worker["capabilities"]["sandbox"] == "namespaces"
    assert worker["capabilities"]["walls"][:2] == ["namespaces", "seccomp"]
    assert "namespaces, seccomp" in swarm.mycel("workers").out
    done = swarm.mycel("run", "--sandbox", "required", "--", "sh", "-c", "id -u")
    assert (done.code, done.out) == (0, "65534\n"), done
    assert len(swarm.client.run("mycel.demo.sweep:grid")) == 48


class TestRootWithoutNamespaces:
    def test_its_workers_are_closed_and_say_why(self, make_swarm: SwarmMaker) -> None:
        swarm = make_swarm(WITHOUT)
        swarm.environment.pop("MYCEL_WORKER__SANDBOX")
        up = subprocess.run(
            swarm.command("up", "--detach", "--workers", "1", "--port", "0"),
            env=swarm.environment,
            preexec_fn=without_namespaces,
            capture_output=True,
            timeout=COMMAND_SECONDS,
            text=True,
            check=False,
        )
        assert up.returncode == 0, up
        [line] = [line for line in up.stdout.splitlines() if line.startswith("walls")]
        assert "it runs as root, and nothing would hold its tasks" in line
        assert 'sandbox = "off"' in line
        api = next(one.split()[1] for one in up.stdout.splitlines() if one.startswith("api"))
        client = Client(api, (swarm.home / "token").read_text().strip())
        [worker] = eventually(client.workers, "the worker is there")
        assert not worker.accepting
        assert "nothing would hold its tasks" in swarm.mycel("workers").out
        task = client.submit_task(command=["true"])
        assert "nothing would hold its tasks" in swarm.mycel("explain", task.id).out
        assert client.task(task.id).state == "queued"

    def test_the_demo_says_so_and_fails(self) -> None:
        done = subprocess.run(
            [*COMMAND, "demo"],
            preexec_fn=without_namespaces,
            capture_output=True,
            timeout=COMMAND_SECONDS,
            text=True,
            check=False,
        )
        assert done.returncode == 1
        assert "no worker takes tasks: it runs as root" in done.stderr


@pytest.fixture
def home() -> Iterator[Path]:
    """Of somebody who is not root."""
    made = Path(tempfile.mkdtemp(prefix="mycel-walls-", dir="/var/tmp"))
    os.chown(made, SOMEBODY, SOMEBODY)
    yield made
    shutil.rmtree(made)


@pytest.mark.skipif(not landlock.version(), reason="this kernel has no Landlock")
def test_landlock_alone_lets_tasks_find_mycel_and_report(home: Path) -> None:
    environment = {"HOME": str(home), "PATH": os.environ["PATH"]}

    def mycel(*words: str) -> str:
        process = start(
            [*COMMAND, words[0], "--home", str(home / "swarm"), *words[1:]],
            refuse_namespaces=True,
            cwd=CHECKOUT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        said, errors = process.communicate(timeout=COMMAND_SECONDS)
        assert process.returncode == 0, errors
        return str(said)

    options = ("--json", "--show-token", "--workers", "1", "--port", "0")
    running = json.loads(mycel("up", "--detach", *options))
    try:
        assert running["walls"]["worker-1"].startswith("seccomp, landlock")
        client = Client(running["api"], running["token"])
        assert len(client.run("mycel.demo.sweep:grid")) == 48
        task = client.submit_task(
            python="mycel.task:progress", arguments=[0.25, "a quarter"], wait=30
        )
        assert task.state == "succeeded", task.error
        told = eventually(lambda: client.task(task.id).message, "its report arrives")
        assert told == "a quarter"
    finally:
        mycel("down")
