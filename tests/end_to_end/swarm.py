"""A swarm of real processes for tests: started by the command line, ended by `stop`.

Nothing here sleeps for a fixed time: `eventually` asks again until a condition holds, or its
deadline passes.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from mycel import Client
from mycel.client import ClientError, Worker

REPOSITORY: Final = Path(__file__).resolve().parents[2]
WORKLOAD: Final = "tests.end_to_end.workload"
DEADLINE_SECONDS: Final = 30.0
"""For conditions that hold within a second on an idle machine."""
LOOK_SECONDS: Final = 0.02

_Found = TypeVar("_Found")


def eventually(look: Callable[[], _Found], what: str, seconds: float = DEADLINE_SECONDS) -> _Found:
    """The first true thing that `look` sees; what it saw last is in the failure."""
    ends_at = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > ends_at:
            raise AssertionError(f"{what}: not within {seconds:g} s; seen last: {found!r}")
        time.sleep(LOOK_SECONDS)


def told_pid(path: Path) -> int:
    """The process id that a task writes there: a shell makes the file before it fills it."""

    def look() -> str:
        return path.read_text().strip() if path.exists() else ""

    return int(eventually(look, f"{path.name} tells a process id"))


def is_alive(pid: int) -> bool:
    """A process that has ended and was not collected yet is not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(b")")[2].split()[0] not in (b"Z", b"X")


def is_listening(port: int) -> bool:
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", port)) == 0


def processes_of(home: Path) -> dict[int, str]:
    """Every process that has to do with a home: by its arguments, its environment, its
    working folder."""
    mark = os.fsencode(home)
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            arguments = (entry / "cmdline").read_bytes()
            texts = [
                arguments,
                (entry / "environ").read_bytes(),
                os.fsencode((entry / "cwd").readlink()),
            ]
            if is_alive(int(entry.name)) and any(mark in text for text in texts):
                found[int(entry.name)] = arguments.replace(b"\0", b" ").decode(errors="replace")
    return found


class Finished:
    """What a command did."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    def __repr__(self) -> str:
        return f"exit code {self.code}\nstdout: {self.out}\nstderr: {self.err}"

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Swarm:
    """One home, and whatever runs in it."""

    def __init__(self, home: Path, settings: str = "") -> None:
        self.home = home
        self.environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        self.environment.pop("MYCEL_HOME", None)
        # Most tests watch their tasks from outside, by files and process ids; in the sandbox
        # there are none to be seen, and `test_sandbox` has its own settings.
        self.environment.setdefault("MYCEL_WORKER__SANDBOX", "off")
        self.api = ""
        self.token = ""
        self.pids: dict[str, int] = {}
        self._extra: list[subprocess.Popen[bytes]] = []
        self._client: Client | None = None
        home.mkdir(parents=True, exist_ok=True)
        if settings:
            (home / "mycel.toml").write_text(settings)

    # The command line

    def command(self, *arguments: str) -> list[str]:
        name, *rest = arguments
        return [sys.executable, "-m", "mycel", name, "--home", str(self.home), *rest]

    def mycel(self, *arguments: str, seconds: float = 60.0, given: bytes | None = None) -> Finished:
        """`given` is its standard input; without it there is nothing."""
        done = subprocess.run(
            self.command(*arguments),
            env=self.environment,
            stdin=subprocess.DEVNULL if given is None else None,
            input=given,
            capture_output=True,
            timeout=seconds,
            check=False,
        )
        return Finished(
            done.returncode,
            done.stdout.decode(errors="replace"),
            done.stderr.decode(errors="replace"),
        )

    def popen(self, *arguments: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            self.command(*arguments),
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._extra.append(process)
        return process

    # Coming and going

    def up(self, workers: int | None = None) -> dict[str, Any]:
        """Starts what is missing, and returns when all workers have registered."""
        count = [] if workers is None else ["--workers", str(workers)]
        port = [] if self.api else ["--port", "0"]
        done = self.mycel("up", "--detach", "--json", *port, *count)
        assert done.code == 0, done
        printed: dict[str, Any] = done.json
        self.take(printed)
        expected = sum(name.startswith("worker-") for name in self.pids)
        eventually(lambda: self.healthy() >= expected, "all workers are healthy")
        return printed

    def take(self, printed: dict[str, Any]) -> None:
        """What `mycel up --json` has said."""
        if self._client is not None and printed["api"] != self.api:
            self._client.close()
            self._client = None
        self.api, self.pids = printed["api"], printed["pids"]
        self.token = (self.home / "token").read_text().strip()

    def healthy(self) -> int:
        try:
            return sum(worker.state == "healthy" for worker in self.client.workers())
        except ClientError:
            return 0

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
        for process in self._extra:
            if process.poll() is None:
                process.kill()
            process.communicate()
        for pid in self.pids.values():  # a stopped one could not end
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self.mycel("down")
        for pid in processes_of(self.home):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> float:
        """Returns when it has happened, with the moment at which it was sent (Unix time)."""
        pid = self.pids[name]
        sent_at = time.time()
        os.kill(pid, number)
        if number == signal.SIGKILL:
            eventually(lambda: not is_alive(pid), f"{name} is dead")
        return sent_at

    # Looking

    @property
    def client(self) -> Client:
        if self._client is None:
            self._client = Client(self.api, self.token)
        return self._client

    @property
    def ports(self) -> dict[str, int]:
        file = json.loads((self.home / "swarm.json").read_text())
        return {"api": file["api_port"], **file["ports"]}

    @property
    def journal(self) -> Path:
        return self.home / "scheduler" / "journal.db"

    def worker(self, name: str) -> Worker:
        found = [one for one in self.client.workers() if one.name == name]
        assert found, f"{name} is not among the workers"
        return found[0]

    def worker_state(self, name: str) -> str:
        """Empty for one that the scheduler does not know."""
        return next((one.state for one in self.client.workers() if one.name == name), "")

    def name_of(self, peer: str | None) -> str:
        names = {one.peer_id: one.name for one in self.client.workers()}
        return names.get(peer or "", peer or "")
