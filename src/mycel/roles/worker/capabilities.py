"""What a worker brings: as configured, and measured where it is not."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import msgspec

from mycel.config.settings import Environments, Price, Worker
from mycel.core.model.prices import Tariff
from mycel.core.model.resources import Capabilities, Gpu
from mycel.devices import gpus, host, software
from mycel.drivers.container.container_driver import ContainerSettings
from mycel.drivers.container.engine_detection import NoEngine, find_engine
from mycel.drivers.environments.build import EnvironmentSettings

from .model_offers import footprint


def capabilities_of(worker: Worker, folder: Path, drivers: tuple[str, ...] = ()) -> Capabilities:
    cores, memory, disk = worker.cpu_cores, worker.memory, worker.disk
    available = host.memory_bytes() if memory is None else int(memory)
    return Capabilities(
        cpu_cores=host.cpu_cores() if cores is None else float(cores),
        memory=max(0, available - sum(footprint(*one).memory for one in worker.models.items())),
        disk=host.disk_bytes(folder) if disk is None else int(disk),
        gpus=_gpus(worker),
        drivers=drivers,
        labels=tuple(sorted(worker.labels.items())),
        arch=platform.machine(),
        os=platform.system().lower(),
        software=software.detect(),
        custom=tuple(sorted(worker.custom.items())),
        price=tariff_of(worker),
    )


def container_settings(worker: Worker, folder: Path) -> ContainerSettings | NoEngine:
    """Tries the engines; the reason if none works."""
    given = worker.containers
    # What holds for all workers of this user is remembered for all.
    place = folder if given.options else _cache(folder)
    try:
        engine = find_engine(given.engine, given.options, place / "containers.json")
    except NoEngine as reason:
        return reason
    return ContainerSettings(
        engine=engine,
        run_options=given.run_options,
        allow_mounts=worker.allow_mounts,
        gpus=_gpus(worker),
        processes_max=given.max_processes,
    )


def _cache(folder: Path) -> Path:
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "mycel"
    except RuntimeError:  # a user without a home
        return folder


def environment_settings(environments: Environments) -> EnvironmentSettings:
    return EnvironmentSettings(
        size_max=int(environments.max_size),
        build_seconds_max=environments.build_seconds,
        allow_builds=environments.allow_builds,
        environment_bytes_max=int(environments.max_environment_size),
        download_bytes_max=int(environments.max_download),
        allow_addresses=environments.allow_addresses,
    )


def tariff_of(worker: Worker) -> Tariff:
    price = worker.price
    if not isinstance(price, Price):
        return Tariff(floor=price)
    return Tariff(**msgspec.structs.asdict(price))


def _gpus(worker: Worker) -> tuple[Gpu, ...]:
    if worker.gpus is None:
        return tuple(Gpu(gpu.model, gpu.memory, gpu.vendor) for gpu in gpus.detect())
    return tuple(Gpu(gpu.model, int(gpu.memory), gpu.vendor) for gpu in worker.gpus)
