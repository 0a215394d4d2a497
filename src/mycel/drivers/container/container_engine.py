"""The container engine of this machine, podman or docker, and how it is spoken to.

Both take the same commands in the main; where they differ is written here, and nowhere else.
`container_finding` finds one that works.
"""

from __future__ import annotations

import resource
from typing import Final, Literal

import msgspec

EngineName = Literal["podman", "docker"]
ENGINES: Final[tuple[EngineName, ...]] = ("podman", "docker")
LABEL: Final = "mycel.worker"
FOLDER: Final = "/work"
"""Where a container finds its working folder, …"""
SOCKET: Final = "/run/mycel-task"
"""… and the socket by which it reports."""
FILES_MAX: Final = 1 << 20
PROCESSES_MAX: Final = 1 << 15


class Engine(msgspec.Struct, frozen=True):
    name: EngineName
    program: str
    options: tuple[str, ...] = ()
    """Before the command, such as `--root`."""
    remark: str = ""
    """Why it is not used as it was found; for the log."""

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


class ContainerSpec(msgspec.Struct, frozen=True, kw_only=True):
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


def run_command(engine: Engine, ask: ContainerSpec) -> tuple[str, ...]:
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
