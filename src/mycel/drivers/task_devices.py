"""A task's own devices: which GPUs and cores are its, and how its libraries learn of it.

A lane has booked a slice of the machine. Whole GPUs and fractions are told by their numbers; of
a fraction nothing is enforced, the others on that GPU are merely asked to leave room.
"""

from __future__ import annotations

import os
from typing import Final

import msgspec

from mycel.core.identifiers import LaneId
from mycel.core.model.resources import Booking, Gpu, Pairs
from mycel.core.model.work import Run
from mycel.drivers.sandbox.run_confinement import MEMORY_FLOOR_BYTES, Limits, RunConfinement

NVIDIA: Final = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-caps")
AMD: Final = ("/dev/kfd", "/dev/dri")
VARIABLES: Final = {
    "nvidia": ("CUDA_VISIBLE_DEVICES",),
    "amd": ("ROCR_VISIBLE_DEVICES",),
}


def vendor_of(gpu: Gpu) -> str:
    """A declared GPU without a vendor is taken for one that CUDA knows."""
    return gpu.vendor or "nvidia"


def own_gpus(gpus: tuple[Gpu, ...], booking: Booking | None) -> tuple[Pairs, tuple[str, ...]]:
    """Variables and device files. A task that has booked none is to see none."""
    booked = () if booking is None else booking.gpu_millis
    mine = {index for index, _ in booked}
    variables: list[tuple[str, str]] = []
    devices: list[str] = []
    for vendor, names in VARIABLES.items():
        of_vendor = [index for index, gpu in enumerate(gpus) if vendor_of(gpu) == vendor]
        if not of_vendor:
            continue
        # Vendors count their own alone.
        numbers = [number for number, index in enumerate(of_vendor) if index in mine]
        variables += [(name, ",".join(map(str, numbers))) for name in names]
        if numbers and vendor == "nvidia":
            devices += [*(f"/dev/nvidia{number}" for number in numbers), *NVIDIA]
        elif numbers:
            devices += AMD
    return tuple(variables), tuple(devices)


class Cores:
    """Which cores belong to whom, for tasks that ask for whole ones.

    Only a worker that has the whole machine hands cores out: two workers that share one do not
    know of each other, and would both begin with the first.
    """

    def __init__(self, cores_offered: float) -> None:
        here = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        self._free = here if cores_offered >= len(here) else []
        self._taken: dict[LaneId, tuple[int, ...]] = {}

    def of(self, lane: LaneId, wanted: float) -> tuple[int, ...]:
        """The cores of this lane; none where it wants parts of one, or they do not suffice."""
        count = int(wanted)
        if count != wanted or count < 1:
            return ()
        taken = self._taken.get(lane)
        if taken is None and count <= len(self._free):
            taken = self._taken[lane] = tuple(self._free[:count])
            self._free = self._free[count:]
        return taken or ()

    def give_back(self, lane: LaneId) -> None:
        taken = self._taken.pop(lane, None)
        if taken:
            self._free = sorted({*self._free, *taken})


class ConfinementPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker holds its runs: the same for all of its drivers."""

    cores: Cores = msgspec.field(default_factory=lambda: Cores(0.0))
    gpus: tuple[Gpu, ...] = ()
    limits: Limits = Limits()
    """Of the configuration; a task may have less."""
    seconds_max: float | None = None
    owner: int = -1
    """Whom working folders are given to; -1 is nobody else."""
    keeps_files: bool = False
    """Whether anything keeps runs from the machine's files, …"""
    own_network: bool = False
    """… and whether a run without the network has one of its own, which leads nowhere."""

    def of(self, lane: LaneId, run: Run) -> RunConfinement:
        bounds = run.work.bounds
        cores = self.cores.of(lane, bounds.cores_max)
        variables, devices = own_gpus(self.gpus, run.booking)
        disk = 0 if run.booking is None else run.booking.disk
        memory = _least(bounds.memory_max, self.limits.memory)
        return RunConfinement(
            network=bounds.network,
            limits=Limits(
                memory=max(memory, MEMORY_FLOOR_BYTES) if memory else 0,
                cores=0.0 if cores else bounds.cores_max,
                processes=self.limits.processes,
                file_size=self.limits.file_size,
                disk=_least(disk, self.limits.disk),
            ),
            cores=cores,
            devices=devices,
            environment=variables,
            readable=run.readable,
            writable=run.writable,
        )

    def timeout(self, seconds: float | None) -> float | None:
        if self.seconds_max is None:
            return seconds
        return self.seconds_max if seconds is None else min(seconds, self.seconds_max)


def _least(*amounts: int) -> int:
    """0 is no limit."""
    return min((one for one in amounts if one), default=0)
