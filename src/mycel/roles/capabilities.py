"""What a worker brings: as configured, and measured where it is not."""

from __future__ import annotations

import platform
from pathlib import Path

from mycel.config.settings import Model, Worker
from mycel.core.resources import Capabilities, Gpu
from mycel.core.work import model_slot
from mycel.devices import gpus, machine, software
from mycel.drivers.http_stream import Endpoint
from mycel.drivers.model import ServedModel


def capabilities_of(worker: Worker, folder: Path, drivers: tuple[str, ...]) -> Capabilities:
    cores, memory, disk = worker.cpu_cores, worker.memory, worker.disk
    return Capabilities(
        cpu_cores=machine.cpu_cores() if cores is None else float(cores),
        memory=machine.memory_bytes() if memory is None else int(memory),
        disk=machine.disk_bytes(folder) if disk is None else int(disk),
        gpus=_gpus(worker),
        models=tuple(worker.models),
        drivers=drivers,
        labels=tuple(sorted(worker.labels.items())),
        arch=platform.machine(),
        os=platform.system().lower(),
        software=software.detect(),
        custom=tuple(sorted({**worker.custom, **_model_slots(worker)}.items())),
        price=worker.price,
    )


def served_models(models: dict[str, Model]) -> tuple[ServedModel, ...]:
    return tuple(
        ServedModel(
            name=name,
            kind=model.kind,
            endpoint=Endpoint(model.endpoint, model.key),
            served_as=model.served_as,
        )
        for name, model in models.items()
    )


def _model_slots(worker: Worker) -> dict[str, float]:
    return {model_slot(name): float(one.concurrency) for name, one in worker.models.items()}


def _gpus(worker: Worker) -> tuple[Gpu, ...]:
    if worker.gpus is None:
        return tuple(Gpu(gpu.model, gpu.memory, gpu.vendor) for gpu in gpus.detect())
    return tuple(Gpu(gpu.model, int(gpu.memory), gpu.vendor) for gpu in worker.gpus)
