"""Which container engine of this machine works, and with which runtime: found by trying.

    podman ─ as it is ─▶ podman with crun ─▶ podman with runc ─▶ docker ─▶ none, and why

That an engine answers says little: its runtime may refuse this machine's control groups or
limits, and every task would fail. So podman is made to run a container, with what tasks are run
with around the smallest program that we have and no image. Docker needs an image for that, and
brings its own runtime: its daemon is asked. To try takes longer than the rest of a worker's
start; what has worked just now is not tried again.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from mycel import _native

from .container_engine import ENGINES, ContainerSpec, Engine, EngineName, run_command

RUNTIMES: Final = ("crun", "runc")
TRIAL_SECONDS_MAX: Final = 20.0
REMEMBERED_SECONDS: Final = 3600.0
"""So long an engine that worked is taken to work, on the same boot of the machine."""
_PROGRAM: Final = "mycel-launch"


class NoEngine(Exception):
    """Why there is none; for the worker's log, or its owner."""


class _Remembered(msgspec.Struct, frozen=True):
    """That an engine worked, and when."""

    engine: Engine
    boot: str
    at: float


def find_engine(
    wanted: str = "auto", options: tuple[str, ...] = (), memory: Path | None = None
) -> Engine:
    """The first that works, remembered in the file `memory`. Raises `NoEngine`."""
    names = [name for name in ENGINES if wanted in ("auto", name)]
    candidates = {name: list(_candidates(name, options)) for name in names}
    known = _recalled(memory)
    if known is not None:
        plain = msgspec.structs.replace(known, remark="")
        if plain in candidates.get(known.name, ()):
            return known
    reasons: list[str] = []
    for name in names:
        if not candidates[name]:
            reasons.append(f"{name} is not installed")
        for engine in candidates[name]:
            chosen = "".join(engine.options[len(options) :])
            runtime = chosen.removeprefix("--runtime=")
            if runtime and f"{runtime}:" in reasons[-1]:
                continue  # it was podman's own choice, and has just complained
            trouble = _trouble(engine)
            if trouble is None:
                found = msgspec.structs.replace(engine, remark="; ".join(reasons))
                _remember(memory, found)
                return found
            reasons.append(f"{name} {chosen}".rstrip() + f" does not work: {trouble}")
    raise NoEngine("; ".join(reasons) or "containers are switched off")


def _candidates(name: EngineName, options: tuple[str, ...]) -> Iterator[Engine]:
    """First with its own choice of a runtime; then with others, unless its owner has chosen."""
    program = shutil.which(name)
    if program is None:
        return
    yield Engine(name, program, options)
    if name == "podman" and not any(one.startswith("--runtime") for one in options):
        for runtime in RUNTIMES:
            if shutil.which(runtime) is not None:
                yield Engine(name, program, (*options, f"--runtime={runtime}"))


def _trouble(engine: Engine) -> str | None:
    """What keeps it from running containers; nothing if it runs them."""
    program = _native.launcher()
    if engine.name == "docker" or not program:
        shown = "{{.Host}}" if engine.name == "podman" else "{{.ID}}"
        return _complaint(engine.command("info", "--format", shown))
    with tempfile.TemporaryDirectory(prefix="mycel-") as name:
        folder = Path(name) / "root"
        folder.mkdir()
        (folder / _PROGRAM).write_bytes(program)
        (folder / _PROGRAM).chmod(0o755)
        variables = Path(name) / "variables"
        variables.touch()
        ask = ContainerSpec(
            name=f"mycel-trial-{os.getpid()}-{folder.parent.name}",
            worker=f"trial-{os.getpid()}",
            image=str(folder),
            command=(f"/{_PROGRAM}",),
            folder=name,
            variables_file=str(variables),
            memory=1 << 26,
            processes=64,
            options=("--security-opt", "label=disable", "--rootfs"),
        )
        # Without words it complains, by its own name: so much it can say only if it runs.
        return _complaint(run_command(engine, ask), good=f"{_PROGRAM}: ")


def _complaint(command: tuple[str, ...], good: str = "") -> str | None:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TRIAL_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    lines = done.stderr.strip().splitlines()
    if any(line.startswith(good) for line in lines) if good else done.returncode == 0:
        return None
    return lines[-1] if lines else f"exit code {done.returncode}"


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
    if memory is None:
        return
    with contextlib.suppress(OSError):  # then it is tried again
        memory.parent.mkdir(parents=True, exist_ok=True)
        new = memory.with_name(f"{memory.name}.{os.getpid()}")
        new.write_bytes(msgspec.json.encode(_Remembered(engine, _boot(), time.time())))
        new.replace(memory)


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
