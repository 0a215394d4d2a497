"""The container engine of this machine, podman or docker, and how it is spoken to.

Both take the same commands in the main; where they differ is written here, and nowhere else.
"""

from __future__ import annotations

import contextlib
import resource
import shutil
import subprocess
import time
from pathlib import Path
from typing import Final, Literal

import msgspec

ENGINES: Final = ("podman", "docker")
INFO_SECONDS_MAX: Final = 20.0
REMEMBERED_SECONDS: Final = 3600.0
"""So long an engine that worked is taken to work, on the same boot of the machine."""
LABEL: Final = "mycel.worker"
FOLDER: Final = "/work"
"""Where a container finds its working folder."""
FILES_MAX: Final = 1 << 20
PROCESSES_MAX: Final = 1 << 15


class NoEngine(Exception):
    """Why there is none; for the worker's log, or its owner."""


class Engine(msgspec.Struct, frozen=True):
    name: Literal["podman", "docker"]
    program: str
    options: tuple[str, ...] = ()
    """Before the command, such as `--root`."""

    def command(self, *words: str) -> tuple[str, ...]:
        return (self.program, *self.options, *words)

    def image_exists(self, image: str) -> tuple[str, ...]:
        return self.command("image", "inspect", "--format", "{{.Id}}", image)

    def pull(self, image: str) -> tuple[str, ...]:
        return self.command("pull", "--quiet", image)

    def remove(self, *containers: str) -> tuple[str, ...]:
        """Whatever they do, and at once."""
        at_once = ("--time", "0", "--ignore") if self.name == "podman" else ()
        return self.command("rm", "--force", "--volumes", *at_once, *containers)

    def containers_of(self, worker: str) -> tuple[str, ...]:
        return self.command("ps", "--all", "--quiet", "--filter", f"label={LABEL}={worker}")


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One container, as a task wants it."""

    name: str
    worker: str
    image: str
    command: tuple[str, ...]
    folder: str
    variables_file: str
    network: bool = False
    memory: int = 0
    cores: float = 0.0
    cores_of_its_own: tuple[int, ...] = ()
    processes: int = 0
    gpus: tuple[tuple[str, int], ...] = ()
    """Vendor, and which of that vendor's."""
    mounts: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    """The worker's owner's."""


def run_command(engine: Engine, ask: Ask) -> tuple[str, ...]:
    """No capabilities, no new privileges, and no network unless it was asked for. The engine
    fetches nothing here: that has been done, and would count as the task's own time."""
    words = [
        "run", "--rm", "--pull", "never", "--log-driver", "none",
        "--name", ask.name, "--label", f"{LABEL}={ask.worker}",
        "--cap-drop", "all", "--security-opt", "no-new-privileges",
        "--volume", f"{ask.folder}:{FOLDER}", "--workdir", FOLDER,
        "--env-file", ask.variables_file,
        *_own_limits(),
    ]  # fmt: skip
    if not ask.network:
        words += ("--network", "none")
    if ask.memory:
        words += ("--memory", str(ask.memory), "--memory-swap", str(ask.memory))
    if ask.cores_of_its_own:
        words += ("--cpuset-cpus", ",".join(map(str, ask.cores_of_its_own)))
    elif ask.cores:
        words += ("--cpus", f"{ask.cores:g}")
    if ask.processes:
        words += ("--pids-limit", str(ask.processes))
    words += _gpus(engine, ask.gpus)
    for mount in ask.mounts:
        words += ("--volume", mount)
    return engine.command(*words, *ask.options, ask.image, *ask.command)


def _own_limits() -> tuple[str, ...]:
    """Engines ask for the kernel's greatest, which a worker that was itself limited cannot
    give."""
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    _, processes = resource.getrlimit(resource.RLIMIT_NPROC)
    words: list[str] = []
    for name, limit, most in (("nofile", files, FILES_MAX), ("nproc", processes, PROCESSES_MAX)):
        given = most if limit == resource.RLIM_INFINITY else min(limit, most)
        words += ("--ulimit", f"{name}={given}:{given}")
    return tuple(words)


def _gpus(engine: Engine, gpus: tuple[tuple[str, int], ...]) -> list[str]:
    words: list[str] = []
    nvidia = [number for vendor, number in gpus if vendor == "nvidia"]
    if nvidia and engine.name == "docker":
        # In quotes for its own parser: a comma separates fields there.
        words += ("--gpus", f'"device={",".join(map(str, nvidia))}"')
    elif nvidia:
        for number in nvidia:
            words += ("--device", f"nvidia.com/gpu={number}")
    if any(vendor == "amd" for vendor, _ in gpus):
        words += ("--device", "/dev/kfd", "--device", "/dev/dri")
    return words


class _Remembered(msgspec.Struct, frozen=True):
    """That an engine worked, and when."""

    engine: Engine
    boot: str
    at: float


def find_engine(
    wanted: str = "auto", options: tuple[str, ...] = (), memory: Path | None = None
) -> Engine:
    """The first that works; raises `NoEngine`. To ask one takes longer than the rest of a
    worker's start: with `memory`, a file, what has just been asked is not asked again."""
    known = _recalled(memory)
    reasons = []
    for name in ENGINES:
        if wanted not in ("auto", name):
            continue
        program = shutil.which(name)
        if program is None:
            reasons.append(f"{name} is not installed")
            continue
        engine = Engine(name, program, options)
        trouble = None if engine == known else _trouble(engine)
        if trouble is None:
            if engine != known:
                _remember(memory, engine)
            return engine
        reasons.append(f"{name} does not work: {trouble}")
    raise NoEngine("; ".join(reasons) or "containers are switched off")


def _recalled(memory: Path | None) -> Engine | None:
    try:
        if memory is None:
            return None
        remembered = msgspec.json.decode(memory.read_bytes(), type=_Remembered)
    except (OSError, msgspec.DecodeError):
        return None
    is_recent = 0 <= time.time() - remembered.at < REMEMBERED_SECONDS
    return remembered.engine if is_recent and remembered.boot == _boot() else None


def _remember(memory: Path | None, engine: Engine) -> None:
    if memory is not None:
        with contextlib.suppress(OSError):
            memory.write_bytes(msgspec.json.encode(_Remembered(engine, _boot(), time.time())))


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _trouble(engine: Engine) -> str | None:
    shown = "{{.Host}}" if engine.name == "podman" else "{{.ID}}"
    try:
        done = subprocess.run(
            engine.command("info", "--format", shown),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=INFO_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    if done.returncode == 0:
        return None
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"exit code {done.returncode}"
