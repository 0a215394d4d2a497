"""A command line on a machine that runs nothing, and a swarm on another one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.swarm import REPOSITORY, Finished, eventually

from .namespaces import Hub, Machine

ADDRESS = "10.77.0.1"
TOKEN_NAME = "ada"
COMMAND_SECONDS = 90.0


class Person:
    """Somebody at a machine, with a home folder there."""

    def __init__(self, machine: Machine, home: Path) -> None:
        self._machine = machine
        self.home = home
        home.mkdir(parents=True)
        removed = ("MYCEL_HOME", "XDG_CONFIG_HOME", "MYCEL_API", "MYCEL_TOKEN")
        kept = {name: value for name, value in os.environ.items() if name not in removed}
        self._environment = kept | {
            "HOME": str(home),
            "PYTHONPATH": str(REPOSITORY),
            "MYCEL_WORKER__SANDBOX": "off",
        }

    def command(self, *arguments: str) -> list[str]:
        return self._machine.prefixed(sys.executable, "-m", "mycel", *arguments)

    def mycel(self, *arguments: str, given: str = "") -> Finished:
        done = subprocess.run(
            self.command(*arguments),
            env=self._environment,
            cwd=self.home,
            input=given,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        return Finished(done.returncode, done.stdout, done.stderr)

    def popen(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.command(*arguments),
            env=self._environment,
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )


@pytest.fixture
def people(namespaces: None, tmp_path: Path) -> Iterator[tuple[Person, Person]]:
    """The owner of the swarm's machine, and the user of the other one."""
    hub, machines = Hub("hub"), [Machine("server"), Machine("laptop")]
    try:
        for machine, address in zip(machines, (ADDRESS, "10.77.0.2"), strict=True):
            hub.plug(machine, address)
        server, laptop = machines
        owner, user = Person(server, tmp_path / "owner"), Person(laptop, tmp_path / "user")
        (owner.home / ".mycel").mkdir()
        settings = f'[scheduler.api]\nbind_address = "{ADDRESS}:8080"\n'
        (owner.home / ".mycel" / "mycel.toml").write_text(settings)
        yield owner, user
        owner.mycel("down")
    finally:
        for machine in (*machines, hub):
            machine.remove()


def test_login_submit_follow_results_and_get_from_a_machine_without_a_scheduler(
    people: tuple[Person, Person], tmp_path: Path
) -> None:
    owner, user = people
    up = owner.mycel("up", "--detach", "--json", "--workers", "1")
    assert up.code == 0, up
    token = owner.mycel("user", "add", TOKEN_NAME).out
    refused = user.mycel("jobs")
    assert (refused.code, "no swarm is running" in refused.err) == (1, True), refused
    login = user.mycel("login", f"http://{ADDRESS}:8080", "--token", "-", given=token)
    assert login.code == 0, login
    assert f"as {TOKEN_NAME}" in login.out
    assert "not encrypted" in login.err

    gate = tmp_path / "gate"
    (user.home / "data.txt").write_text("of the laptop\n")
    script = f"echo begins; while [ ! -e {gate} ]; do sleep 0.05; done; cat data.txt > out.txt"
    task = {"command": ["sh", "-c", script], "inputs": ["data.txt"], "outputs": ["out.txt"]}
    (user.home / "job.json").write_text(json.dumps({"task": task, "matrix": {"n": [1, 2, 3]}}))
    job = user.mycel("submit", "job.json").out.strip()
    assert len(job) == 26
    following = user.popen("follow", job)
    assert following.stdout is not None
    assert b"begins" in following.stdout.readline()

    # The scheduler is killed, and comes back, in the middle of it.
    os.kill(up.json["pids"]["scheduler"], signal.SIGKILL)
    eventually(lambda: owner.mycel("jobs").code == 1, "the scheduler is gone")
    again = owner.mycel("up", "--detach", "--json")
    assert again.code == 0, again
    gate.touch()
    out, err = following.communicate(timeout=COMMAND_SECONDS)
    assert following.returncode == 0, err
    ended = [line for line in out.decode().splitlines() if line.startswith(job)]
    assert sorted(ended) == [f"{job}.{n}  succeeded  exit code 0" for n in range(3)]
    assert b"3 succeeded" in err

    listed = user.mycel("results", job, "--csv").out.splitlines()
    assert listed[0].startswith("index,state,n")
    assert [line.split(",")[2] for line in listed[1:]] == ["1", "2", "3"]
    got = user.mycel("get", job, "home")
    assert got.code == 0, got
    found = sorted(path.relative_to(user.home) for path in (user.home / "home").rglob("out.txt"))
    assert [str(path) for path in found] == [f"home/{n}/out.txt" for n in range(3)]
    assert (user.home / "home" / "2" / "out.txt").read_text() == "of the laptop\n"
    assert user.mycel("logout").code == 0
    assert user.mycel("jobs").code == 1
