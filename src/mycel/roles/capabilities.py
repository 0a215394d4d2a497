"""What a worker brings: as configured, and measured where it is not."""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path

from mycel.config.settings import Worker
from mycel.core.resources import Capabilities, Gpu


def capabilities_of(worker: Worker, folder: Path, drivers: tuple[str, ...]) -> Capabilities:
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    gpus = worker.gpus or ()
    return Capabilities(
        cpu_cores=float(cores if worker.cpu_cores is None else worker.cpu_cores),
        memory=int(memory if worker.memory is None else worker.memory),
        disk=int(shutil.disk_usage(folder).free if worker.disk is None else worker.disk),
        gpus=tuple(Gpu(gpu.model, int(gpu.memory)) for gpu in gpus),
        models=worker.models,
        drivers=drivers,
        labels=tuple(sorted(worker.labels.items())),
        arch=platform.machine(),
        os=platform.system().lower(),
        software=(("python", platform.python_version()),),
        custom=tuple(sorted(worker.custom.items())),
    )
