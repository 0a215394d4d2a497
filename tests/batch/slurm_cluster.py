"""A Slurm cluster of fake nodes for tests: its own daemons, ports, keys and folder.

Everything is on loopback, runs as whoever runs the tests, and lies in one folder. Nothing that an
installed package may have started is used or disturbed. All daemons stay in the foreground as
children of this process, so they can be killed and started again, and end with it.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.end_to_end.swarm import eventually, processes_of

PROGRAMS: Final = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "setpriv")
SYSTEM_FOLDERS: Final = os.pathsep.join(("/usr/sbin", "/usr/bin", "/sbin", "/bin"))
START_SECONDS: Final = 60.0
STARTS_MAX: Final = 3
"""A port that was free may be taken when the daemon binds it."""
DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random")
"""A GPU has to have a device. Which one does not matter."""
CONTROLLER: Final = "slurmctld"
MUNGE: Final = "munged"


def missing_programs() -> list[str]:
    path = os.pathsep.join((os.environ.get("PATH", ""), SYSTEM_FOLDERS))
    return [name for name in PROGRAMS if shutil.which(name, path=path) is None]


def skip_without_slurm() -> None:
    if missing := missing_programs():
        pytest.skip(f"no Slurm here: {', '.join(missing)} missing")


class SlurmCluster:
    """`nodes` fake nodes n1, n2 … of equal size in the partition `main`, and `settings`, more
    lines of slurm.conf. Use as a context: it starts, waits until all nodes are idle, and leaves
    nothing behind."""

    def __init__(
        self,
        folder: Path,
        name: str = "alpha",
        *,
        nodes: int = 4,
        cpus: int = 4,
        memory_mb: int = 4000,
        gpus: int = 0,
        settings: str = "",
    ) -> None:
        assert gpus <= len(DEVICES), "there are not so many devices to stand for GPUs"
        self.folder = folder
        self.name = name
        self.nodes = [f"n{number}" for number in range(1, nodes + 1)]
        self._node = f"CPUs={cpus} RealMemory={memory_mb}" + (f" Gres=gpu:{gpus}" if gpus else "")
        self._gpus = gpus
        self._settings = settings
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        folder.mkdir(parents=True)
        folder.chmod(0o755)

    @property
    def configuration(self) -> Path:
        """Absolute: with a relative path slurmctld dies after a minute of silence."""
        return self.folder.resolve() / "slurm.conf"

    @property
    def environment(self) -> dict[str, str]:
        """For the commands of Slurm, and for what calls them."""
        return {**os.environ, **self.settings_of_commands}

    @property
    def settings_of_commands(self) -> Mapping[str, str]:
        path = os.pathsep.join((os.environ.get("PATH", ""), SYSTEM_FOLDERS))
        return {"SLURM_CONF": str(self.configuration), "PATH": path}

    def run(self, *command: str, check: bool = True, stdin: str = "") -> str:
        """A command's output; what it says when it fails becomes the failure."""
        done = subprocess.run(
            command,
            cwd=self.folder,  # where Slurm writes what jobs say
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
        )
        if check and done.returncode:
            raise AssertionError(f"{command} ended with {done.returncode}: {done.stderr}")
        return done.stdout

    # ── start and stop

    def __enter__(self) -> SlurmCluster:
        for _ in range(STARTS_MAX):
            self._configure()
            try:
                self.start_all()
            except AssertionError:
                self.stop()
                if "in use" not in self.logs():
                    raise
            else:
                return self
        raise AssertionError(f"{self.name} found no free ports {STARTS_MAX} times")

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start_all(self) -> None:
        self.start(MUNGE)
        eventually((self.folder / "munge" / "socket").exists, "munged listens", START_SECONDS)
        self.start(CONTROLLER)
        for node in self.nodes:
            self.start(node)
        self.wait_until_idle()

    def wait_until_idle(self) -> None:
        def states() -> bool:
            said = self.run("sinfo", "--noheader", "--Node", "--format=%T", check=False).split()
            return len(said) == len(self.nodes) and set(said) == {"idle"}

        eventually(states, f"all nodes of {self.name} are idle", START_SECONDS)

    def start(self, what: str) -> None:
        """The controller, munged or a node, by its name."""
        assert what not in self._daemons, f"{what} runs already"
        if what == MUNGE:
            munge = self.folder / "munge"
            command = ["munged", "--foreground", "--force", f"--key-file={munge}/key",
                       f"--socket={munge}/socket", f"--pid-file={munge}/pid",
                       f"--seed-file={munge}/seed", f"--log-file={munge}/log"]  # fmt: skip
        elif what == CONTROLLER:
            command = ["slurmctld", "-D", "-f", str(self.configuration)]
        else:
            command = ["slurmd", "-D", "-N", what, "-f", str(self.configuration)]
        with (self.folder / f"{what}.out").open("ab") as out:
            self._daemons[what] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", *command],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )

    def kill(self, what: str) -> None:
        """SIGKILL, and the end of it."""
        daemon = self._daemons.pop(what)
        daemon.kill()
        daemon.wait()

    def freeze(self, what: str) -> None:
        self._daemons[what].send_signal(signal.SIGSTOP)

    def thaw(self, what: str) -> None:
        self._daemons[what].send_signal(signal.SIGCONT)

    def runs(self, what: str) -> bool:
        return what in self._daemons

    def stop(self) -> None:
        """Jobs first: a job outlives its daemons, and its `slurmstepd` ignores SIGTERM."""
        for what in self._daemons:
            self.thaw(what)
        if self.runs(CONTROLLER) and self.runs(MUNGE):
            with contextlib.suppress(subprocess.TimeoutExpired, AssertionError):
                self.run("scancel", "--user", getpass.getuser(), check=False)
                eventually(self._is_empty, f"{self.name} has no job", 10)
        for what in [name for name in self._daemons if name != MUNGE]:
            self.kill(what)
        if self.runs(MUNGE):
            self.kill(MUNGE)
        for process in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def processes(self) -> dict[int, str]:
        """Whatever runs for this cluster, its jobs included."""
        return processes_of(self.folder.resolve())

    def logs(self) -> str:
        files = [*self.folder.glob("*.out"), *self.folder.glob("*.log")]
        return "\n".join(path.read_text(errors="replace") for path in files)

    def _is_empty(self) -> bool:
        return not self.run("squeue", "--noheader", check=False).strip()

    # ── configuration

    def _configure(self) -> None:
        for name in ("munge", "state", "spool"):
            (self.folder / name).mkdir(exist_ok=True)
        (self.folder / "munge").chmod(0o755 if os.geteuid() == 0 else 0o700)
        key = self.folder / "munge" / "key"
        key.unlink(missing_ok=True)
        key.touch(0o600)
        key.write_bytes(secrets.token_bytes(128))
        ports = _free_ports(1 + len(self.nodes))
        self.configuration.write_text(self._slurm_conf(ports))
        gres = "".join(f"Name=gpu File={device}\n" for device in DEVICES[: self._gpus])
        (self.folder / "gres.conf").write_text(gres)
        if _version() >= (23, 11):  # which would want cgroups, and knows how to do without
            (self.folder / "cgroup.conf").write_text("CgroupPlugin=disabled\n")

    def _slurm_conf(self, ports: list[int]) -> str:
        folder, host, user = self.folder.resolve(), socket.gethostname(), getpass.getuser()
        nodes = "\n".join(
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} {self._node}"
            for node, port in zip(self.nodes, ports[1:], strict=True)
        )
        return f"""\
ClusterName={self.name}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,bf_interval=1,sched_min_interval=1
ReturnToService=2
MessageTimeout=4
KillWait=2
{"GresTypes=gpu" if self._gpus else ""}
{self._settings}
{"" if "EnforcePartLimits" in self._settings else "EnforcePartLimits=ALL"}
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=60 State=UP
"""


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _version() -> tuple[int, int]:
    path = os.pathsep.join((os.environ.get("PATH", ""), SYSTEM_FOLDERS))
    said = subprocess.run(
        ["slurmctld", "-V"], capture_output=True, text=True, env={"PATH": path}
    ).stdout
    found = re.search(r"(\d+)\.(\d+)", said)
    assert found is not None, f"slurmctld -V says {said!r}"
    return int(found[1]), int(found[2])
