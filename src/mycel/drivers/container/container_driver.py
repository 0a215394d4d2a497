"""The `container` driver: each task is a command in a container of its own, by podman or docker.

    image there? ─ no ─▶ fetched ─┐
        └── yes ──────────────────┴─▶ the engine's client, started by the helper ─▶ container

The helper watches the engine's client like any command. A container is not of its process
group, though: when a client was stopped, or the engine failed, the container is removed by its
name before the end is told; and what a killed worker left is found by its label at the next
start.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from blake3 import blake3

from mycel.core.identifiers import AttemptId, LaneId
from mycel.core.model.resources import Gpu
from mycel.core.model.work import Run
from mycel.drivers.helper_commands import HelperCommands
from mycel.drivers.interface import Finished
from mycel.drivers.process.command_arguments import BadArguments, fill_command, fill_environment
from mycel.drivers.process.command_driver import CommandDriver, Prepared
from mycel.drivers.report_server import SOCKET_VARIABLE

from .container_engine import FOLDER, SOCKET, ContainerSpec, Engine, run_command
from .image_fetch import ImageCache

if TYPE_CHECKING:
    from mycel.drivers.registry import DriverContext

ENGINE_FAILED: Final = 125
NOT_EXECUTABLE: Final = 126
NOT_FOUND: Final = 127
KILLED: Final = 137
REMOVE_SECONDS_MAX: Final = 60.0
_VARIABLE: Final = re.compile(r"[^\s#=][^\s=]*")
_PLACE_IN_CONTAINER: Final = re.compile(r"/[^:\0\n]*(:ro)?")


class ContainerSettings(msgspec.Struct, frozen=True, kw_only=True):
    engine: Engine
    run_options: tuple[str, ...] = ()
    """Of the worker's owner, for every container."""
    allow_mounts: tuple[str, ...] = ()
    """Paths that tasks may mount, and all below them."""
    gpus: tuple[Gpu, ...] = ()
    memory_max: int = 0
    """Bytes; 0 is no limit but the task's own."""
    processes_max: int = 4096


def open_images(context: DriverContext) -> ImageCache:
    """The images that this worker's tasks name."""
    assert context.containers is not None
    root = context.root / "container"
    root.mkdir(parents=True, exist_ok=True)
    worker = blake3(os.fsencode(root.resolve())).hexdigest()[:16]
    # Every container under way has a folder there: if there is none, nothing was left running.
    left = any(root.iterdir())
    return ImageCache(context.containers.engine, HelperCommands(context), worker, any_left=left)


class ContainerDriver(CommandDriver):
    name = "container"

    def __init__(self, context: DriverContext, images: ImageCache) -> None:
        super().__init__(context)
        assert context.containers is not None
        self._settings = context.containers
        self._folder = (context.root / "container").resolve()
        self._images = images
        self._commands = HelperCommands(context)
        self._runs: dict[AttemptId, Run] = {}
        self._socket = ""
        """By which the runs that are being submitted report."""
        self._removals: set[asyncio.Task[None]] = set()
        for left in self._folder.iterdir():
            shutil.rmtree(left, ignore_errors=True)

    def submit(self, lane: LaneId, runs: list[Run]) -> None:
        self._socket = self.reporting_path(lane)
        super().submit(lane, [self._with_folder(run) for run in runs])

    def _with_folder(self, run: Run) -> Run:
        """Its own: the lane's would be used again while a container is still being removed."""
        self._runs[run.attempt] = run
        own = self._own(run.attempt)
        own.mkdir(mode=0o700)
        if run.folder:
            return run
        (own / "work").mkdir()
        return msgspec.structs.replace(run, folder=str(own / "work"))

    def _own(self, attempt: AttemptId) -> Path:
        return self._folder / str(attempt)

    def prepared(self, run: Run) -> Prepared:
        work = run.work
        command = work.command
        if run.arguments:
            work = fill_environment(work, run.arguments)
            command = fill_command(command, run.arguments)
        variables = {
            **dict(work.env),
            "MYCEL_JOB_ID": run.job_id,
            "MYCEL_TASK_ID": run.task_id,
            "MYCEL_ATTEMPT": str(run.number),
            "MYCEL_WORKDIR": FOLDER,
        }
        reporting: tuple[str, ...] = ()
        if self._socket:
            variables[SOCKET_VARIABLE] = SOCKET
            reporting = (f"{self._socket}:{SOCKET}",)
        bounds, settings = work.bounds, self._settings
        ask = ContainerSpec(
            name=self._name(run.attempt),
            worker=self._images.worker,
            image=work.image,
            command=command,
            folder=run.folder,
            variables_file=self._write_variables(run.attempt, variables),
            network=bounds.network,
            memory=min((m for m in (bounds.memory_max, settings.memory_max) if m), default=0),
            cores=bounds.cores_max,
            processes=settings.processes_max,
            gpus=self._gpus(run),
            mounts=(
                *reporting,
                *(f"{path}:{path}:ro" for path in run.readable),
                *(f"{path}:{path}" for path in run.writable),
                *(self._mount(one) for one in work.mounts),
            ),
            options=settings.run_options,
        )
        # Nothing of the task's own environment: the engine's client would heed some of it.
        client = msgspec.structs.replace(work, env=_engine_variables())
        return client, run_command(settings.engine, ask)

    def _name(self, attempt: AttemptId) -> str:
        return f"mycel-{self._images.worker}-{attempt}"

    def _write_variables(self, attempt: AttemptId, variables: dict[str, str]) -> str:
        """In a file: on a command line everybody could read them. A line of it without `=` would
        stand for variables of the worker's own, one with `#` before it for nothing."""
        for name, value in variables.items():
            if not _VARIABLE.fullmatch(name):
                raise BadArguments(f"{name!r} is no variable that a container can be given")
            if "\n" in value or "\r" in value:
                raise BadArguments(f"{name} has a line break, which no container can be given")
        file = self._own(attempt) / "variables"
        file.touch(mode=0o600)
        file.write_text("".join(f"{name}={value}\n" for name, value in variables.items()))
        return str(file)

    def _gpus(self, run: Run) -> tuple[tuple[str, int], ...]:
        """Engines count the GPUs of each vendor by themselves."""
        booked = () if run.booking is None else run.booking.gpu_millis
        vendors = [gpu.vendor or "nvidia" for gpu in self._settings.gpus]
        return tuple((vendors[index], vendors[:index].count(vendors[index])) for index, _ in booked)

    def _mount(self, mount: str) -> str:
        source, _, rest = mount.partition(":")
        if not _PLACE_IN_CONTAINER.fullmatch(rest):
            # Engines know more options, and some of them change files of this machine.
            raise BadArguments(f'{mount!r} is no mount: at most ":ro" goes behind its paths')
        place = Path(source).resolve()
        allowed = [Path(one).resolve() for one in self._settings.allow_mounts]
        if not any(place.is_relative_to(one) for one in allowed):
            raise BadArguments(
                f"this worker does not let {source!r} be mounted; its owner may allow it with "
                "allow_mounts in [worker]"
            )
        if not place.exists():
            raise BadArguments(f"{source!r} cannot be mounted: this worker has no such path")
        return f"{place}:{rest}"

    # The end

    def dropped(self, attempts: Iterable[AttemptId]) -> None:
        for attempt in attempts:
            del self._runs[attempt]
            shutil.rmtree(self._own(attempt), ignore_errors=True)

    def concluded(self, finished: Finished) -> Finished | None:
        run = self._runs[finished.attempt]
        told = msgspec.structs.replace(
            _explained(finished, run, self._settings.engine.name), peak_memory=0, cpu_seconds=0.0
        )
        if told.driver_fault:
            self._images.forget(run.work.image)
        is_over = finished.state in ("succeeded", "failed") and finished.exit_code != ENGINE_FAILED
        removal = self._loop.create_task(self._clear(told, container_is_gone=is_over))
        self._removals.add(removal)
        removal.add_done_callback(self._removals.discard)
        return None

    async def _clear(self, finished: Finished, *, container_is_gone: bool) -> None:
        if not container_is_gone:
            command = self._settings.engine.remove(self._name(finished.attempt))
            await self._commands.run(command, timeout_seconds=REMOVE_SECONDS_MAX)
        await self._remove_folder(finished.attempt)
        self.tell([finished])

    async def _remove_folder(self, attempt: AttemptId) -> None:
        self._runs.pop(attempt, None)
        own = self._own(attempt)
        await asyncio.to_thread(shutil.rmtree, own, True)
        if own.exists() and self._settings.engine.name == "podman":
            # Files of the container's other users are not ours to remove, without root.
            command = self._settings.engine.command("unshare", "rm", "-rf", "--", str(own))
            await self._commands.run(command, timeout_seconds=REMOVE_SECONDS_MAX)

    async def close(self) -> None:
        await super().close()
        await self._commands.close()


def _explained(finished: Finished, run: Run, engine: str) -> Finished:
    """What the engine's exit codes mean."""
    if finished.state != "failed":
        return finished
    last = finished.stderr.decode(errors="replace").strip().rpartition("\n")[2]
    name = run.work.command[0] if run.work.command else ""
    code = finished.exit_code
    said_by_engine = last.startswith(("Error:", "docker: "))
    is_of_command = any(sign in last for sign in ("exec: ", "open executable"))
    if said_by_engine and (code == ENGINE_FAILED or (code == NOT_EXECUTABLE and not is_of_command)):
        error = f"{engine} could not run the container: {last}"
        return msgspec.structs.replace(finished, error=error, driver_fault=True, exit_code=None)
    if code == NOT_FOUND and said_by_engine:
        error = f"command not found in the image {run.work.image!r}: {name!r}"
        return msgspec.structs.replace(finished, error=error)
    if code == NOT_EXECUTABLE and said_by_engine:
        return msgspec.structs.replace(finished, error=f"{name!r} cannot be executed: {last}")
    memory = run.work.bounds.memory_max
    if code == KILLED and memory:
        error = f"{finished.error}: it may have used more than its {memory} bytes of memory"
        return msgspec.structs.replace(finished, error=error)
    return finished


def _engine_variables() -> tuple[tuple[str, str], ...]:
    """What tells the engine's client where its engine is, from the worker's own environment."""
    prefixes = ("XDG_", "DOCKER_", "CONTAINER_", "CONTAINERS_", "REGISTRY_", "DBUS_SESSION_")
    return tuple(pair for pair in os.environ.items() if pair[0].startswith(prefixes))
