"""Our real drivers, held as a worker holds them: by bubblewrap, without it, or by limits alone.

Without bubblewrap a worker makes the sandbox itself, or, where it may not, has Landlock."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from mycel.config.settings import Worker
from mycel.core.model.resources import Booking, Gpu
from mycel.core.model.work import Run, Work
from mycel.drivers.interface import Driver
from mycel.drivers.registry import DriverContext
from mycel.drivers.sandbox import landlock
from mycel.drivers.sandbox.detection import NoSandbox, SandboxStatus, detect_sandbox
from mycel.drivers.sandbox.run_confinement import Limits
from mycel.drivers.task_devices import ConfinementPolicy, Cores
from mycel.testing.drivers.conformance import Subject
from tests.adapters.drivers.subjects import Functions, Processes

has_bubblewrap = shutil.which("bwrap") is not None
needs_bubblewrap = pytest.mark.skipif(
    not has_bubblewrap, reason="bubblewrap is not installed: make test-tools"
)
has_landlock = landlock.version() > 0
needs_landlock = pytest.mark.skipif(not has_landlock, reason="this kernel has no Landlock")
Mode = Literal["required", "auto", "off"]
BOOKING = Booking(cpu_millis=1000, memory=0, disk=0, gpu_millis=(), custom=())


def skip_if_missing(kind: str) -> None:
    if kind.startswith("confined") and not has_bubblewrap:
        pytest.skip("bubblewrap is not installed: make test-tools")


def standing_in(folder: Path, mode: Mode, **settings: Any) -> SandboxStatus:
    """As a worker finds it with this home; `folder / "home"` is the node's own. By itself it
    finds no bubblewrap."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    worker = Worker(sandbox=mode, readable_paths=(str(folder / "modules"),), **settings)
    with pytest.MonkeyPatch.context() as patch:
        if mode == "auto":
            patch.setenv("PATH", str(folder))
        try:
            return detect_sandbox(
                worker, folder / "root", hidden=home, memory=0, own=(os.getpid(),)
            )
        except NoSandbox as error:
            pytest.skip(f"no sandbox here: {error}")


class Held(Subject):
    mode: Mode = "required"

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__()
        self._folder = folder
        self._gpus: tuple[Gpu, ...] = options.pop("gpus", ())
        self._task_limits: Limits = options.pop("limits", Limits(processes=512))
        self._seconds: float | None = options.pop("wall_time", None)
        self._cores: float = options.pop("cores", 0.0)
        self._settings = options
        self.status: SandboxStatus | None = None

    def create(self, context: DriverContext) -> Driver:
        self.status = status = standing_in(self._folder, self.mode, **self._settings)
        context.helper.post(status.plan)
        policy = ConfinementPolicy(
            cores=Cores(self._cores),
            gpus=self._gpus,
            limits=self._task_limits,
            seconds_max=self._seconds,
            owner=status.plan.user,
            keeps_files=status.plan.keeps_files,
            own_network=status.plan.parts_network,
        )
        return self._made(msgspec.structs.replace(context, policy=policy))

    def _made(self, context: DriverContext) -> Driver:
        raise NotImplementedError


class ConfinedProcesses(Held, Processes):
    def _made(self, context: DriverContext) -> Driver:
        return Processes.create(self, context)


class ConfinedFunctions(Held, Functions):
    def talking(self, folder: Path) -> Work | None:
        return super().talking(folder / "modules")  # where it can be read

    def _made(self, context: DriverContext) -> Driver:
        self._options["policy"] = context.policy
        return Functions.create(self, context)


class KeptProcesses(ConfinedProcesses):
    mode = "auto"


class KeptFunctions(ConfinedFunctions):
    mode = "auto"


class LimitedProcesses(ConfinedProcesses):
    mode = "off"


class LimitedFunctions(ConfinedFunctions):
    mode = "off"


HELD: dict[str, type[Held]] = {
    "confined process": ConfinedProcesses,
    "confined python": ConfinedFunctions,
    "kept process": KeptProcesses,
    "kept python": KeptFunctions,
    "limited process": LimitedProcesses,
    "limited python": LimitedFunctions,
}


def with_booking(run: Run, **changes: Any) -> Run:
    return msgspec.structs.replace(run, booking=msgspec.structs.replace(BOOKING, **changes))
