"""Mycel on machines of a made-up network: each has a home of its own, and joins by what the
owner hands it."""

from __future__ import annotations

import itertools
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from mycel import Client
from mycel.access.founder import found
from mycel.access.home import Home
from mycel.access.key_files import load_or_create_key
from mycel.access.tokens import store_member_token
from mycel.config.settings import Swarm
from mycel.local import toml_writer
from tests.end_to_end.swarm import REPOSITORY

from .namespaces import Machine

READY_SECONDS: Final = 60.0
API_PORT: Final = 8080
_SERIAL: Final = itertools.count()

QUICK: Final[dict[str, Any]] = {
    "scheduler": {
        "lease_seconds": 4.0,
        "heartbeat_seconds": 0.5,
        "retry": {"backoff_base": 0.5},
        "fault_tolerance": {"health_check_timeout": 1.5},
    },
}
"""Time-outs that a test can wait for, and that lost packets do not reach."""


class Owner:
    """Who founded the swarm: signs what new machines bring along."""

    def __init__(self, folder: Path) -> None:
        self.home = Home(folder)
        self.founder = found(self.home, Swarm().name)


class Running:
    """One role's process."""

    def __init__(self, process: subprocess.Popen[bytes], ready: dict[str, Any], log: Path) -> None:
        self.process = process
        self.peer: str = ready["peer"]
        self.addresses: list[str] = ready["addresses"]
        self.log = log

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        self.process.send_signal(number)
        self.process.wait(timeout=30)

    def notes(self, event: str) -> list[dict[str, Any]]:
        """Its log's lines of one kind."""
        lines = (json.loads(line) for line in self.log.read_text().splitlines())
        return [line for line in lines if line.get("event") == event]


class Host:
    """A machine with a home."""

    def __init__(self, machine: Machine, address: str, home: Path, owner: Owner) -> None:
        self.machine = machine
        self.address = address
        self.home = Home(home)
        self._owner = owner
        self._running: list[Running] = []

    def start(
        self,
        role: str,
        name: str = "",
        *,
        bootstrap: list[str] | None = None,
        settings: dict[str, Any] | None = None,
    ) -> Running:
        """Returns when the role serves."""
        name = name or role
        self._admit(role, name)
        config = self._write_settings(name, bootstrap or [], settings or {})
        theirs, ours = _pipe()
        arguments = ["--home", str(self.home.path), "--name", name, "--config", str(config)]
        output = self.home.role(name).path / "output.log"
        with output.open("ab") as sink:
            process = subprocess.Popen(
                self.machine.prefixed(
                    *(sys.executable, "-m", "mycel", role, *arguments, "--ready-fd", str(theirs))
                ),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                pass_fds=[theirs],
                cwd=self.home.path,
                env={**os.environ, "PYTHONPATH": str(REPOSITORY), "MYCEL_WORKER__SANDBOX": "off"},
                start_new_session=True,
            )
        os.close(theirs)
        line = _read_line(ours)
        assert line, f"{name} does not come up: {output.read_text()[-2000:]}"
        running = Running(process, json.loads(line), self.home.role(name).log_path)
        self._running.append(running)
        return running

    def _admit(self, role: str, name: str) -> None:
        from mycel._native import identity

        self.home.create()
        theirs = self._owner.home
        for given, kept in (
            (theirs.owner_public_path, self.home.owner_public_path),
            (theirs.token_path, self.home.token_path),
        ):
            if not kept.exists():
                shutil.copy(given, kept)
        folder = self.home.role(name)
        folder.create()
        secret = load_or_create_key(folder.identity_path, "an identity")
        if not folder.member_token_path.exists():
            token = self._owner.founder.member_token(identity(secret)[1], (role,))
            store_member_token(folder.member_token_path, token)

    def _write_settings(self, name: str, bootstrap: list[str], settings: dict[str, Any]) -> Path:
        ours: dict[str, Any] = {
            "swarm": {"listen": [f"/ip4/{self.address}/tcp/0"], "bootstrap": bootstrap},
            "worker": {"name": name, "cpu_cores": 2},
        }
        text = toml_writer.dumps(toml_writer.merged(toml_writer.merged(QUICK, ours), settings))
        path = self.home.role(name).path / "config.toml"
        path.write_text(text)
        return path

    def serve(self, bootstrap: list[str], settings: dict[str, Any] | None = None) -> Scheduler:
        """A scheduler, with a wire from here to its API."""
        management = _management_wire(self.machine)
        api = {"scheduler": {"api": {"bind_address": f"{management}:{API_PORT}"}}}
        merged = toml_writer.merged(api, settings or {})
        running = self.start("scheduler", bootstrap=bootstrap, settings=merged)
        token = self.home.token_path.read_text().strip()
        return Scheduler(running, Client(f"http://{management}:{API_PORT}", token), self.home)

    def stop(self) -> None:
        for one in self._running:
            if one.process.poll() is None:
                one.process.terminate()
        for one in self._running:
            try:
                one.process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                one.kill()


class Scheduler:
    def __init__(self, running: Running, client: Client, home: Home) -> None:
        self.running = running
        self.client = client
        self._home = home

    def shows(self, *command: str) -> Any:
        """What a command says of it, such as `peers`."""
        arguments = (*command, "--json", "--home", str(self._home.path))
        done = subprocess.run(
            [sys.executable, "-m", "mycel", *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=READY_SECONDS,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def healthy(self) -> set[str]:
        return {one.name for one in self.client.workers() if one.state == "healthy"}


def _management_wire(machine: Machine) -> str:
    """An address of the machine that only the test can reach: the swarm does not listen there."""
    number = next(_SERIAL)
    here, network = f"my{os.getpid()}x{number}", f"169.254.{os.getpid() % 250}.{4 * (number % 60)}"
    first = network.rpartition(".")[0]
    last = int(network.rpartition(".")[2])
    for command in (
        ["ip", "link", "add", here, "type", "veth", "peer", "name", "mgmt", "netns", machine.name],
        ["ip", "addr", "add", f"{first}.{last + 1}/30", "dev", here],
        ["ip", "link", "set", here, "up"],
    ):
        subprocess.run(command, check=True, capture_output=True, timeout=30)
    machine.run("ip", "addr", "add", f"{first}.{last + 2}/30", "dev", "mgmt")
    machine.run("ip", "link", "set", "mgmt", "up")
    return f"{first}.{last + 2}"


def _pipe() -> tuple[int, int]:
    ours, theirs = os.pipe()
    return theirs, ours


def _read_line(descriptor: int) -> bytes:
    """Empty if the other end closed it, or nothing came in time."""
    line = b""
    ends_at = time.monotonic() + READY_SECONDS
    with os.fdopen(descriptor, "rb", buffering=0) as pipe:
        while not line.endswith(b"\n"):
            left = ends_at - time.monotonic()
            if left <= 0 or not select.select([pipe], [], [], left)[0]:
                return b""
            data = pipe.read(65_536)
            if not data:
                return b""
            line += data
    return line
