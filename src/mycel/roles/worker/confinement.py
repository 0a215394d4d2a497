"""What holds a worker's tasks: tried at the start, told in the log, promised in what it offers."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

import msgspec

from mycel.config.settings import Worker
from mycel.core.model.resources import Capabilities
from mycel.drivers.sandbox.detection import NoSandbox, Standing, stand
from mycel.drivers.sandbox.run_confinement import Limits
from mycel.drivers.task_devices import Cores, Holding
from mycel.roles.role_process import Program, RoleFault

if TYPE_CHECKING:
    from mycel.drivers.helper.spawn_helper import HelperEnd

TASKS: Final = "tasks"
CAUSE: Final = "walls"
"""Why a worker takes no tasks that nothing would hold."""
PROCESSES_MAX: Final = 4096


def stand_by(program: Program, offered: Capabilities, end: HelperEnd) -> Standing:
    """Says in the log what tasks are held by, and what is missing. Raises `RoleFault`."""
    folder = program.folder.path
    try:
        standing = stand(
            program.configuration.worker,
            folder / TASKS,
            hidden=program.home.path,
            memory=offered.memory,
            own=(os.getpid(), end.process_id),
        )
    except NoSandbox as error:
        raise RoleFault(
            f'{error} (the configuration says [worker] sandbox = "required")'
        ) from error
    program.note(
        "tasks_held",
        sandbox=standing.sandbox or "none",
        walls=standing.line,
        network=standing.network,
        limits=", ".join(standing.limits),
        remarks=standing.remarks,
    )
    print(f"mycel: tasks are held by {standing.line}", file=sys.stderr, flush=True)
    return standing


def with_standing(offered: Capabilities, standing: Standing) -> Capabilities:
    return msgspec.structs.replace(
        offered,
        sandbox=standing.sandbox,
        walls=standing.walls,
        advice=standing.advice,
        network=standing.network,
        limits=standing.limits,
    )


def holding_of(worker: Worker, offered: Capabilities, standing: Standing) -> Holding:
    limits = worker.limits
    return Holding(
        cores=Cores(offered.cpu_cores),
        gpus=offered.gpus,
        limits=Limits(
            memory=int(limits.memory or 0),
            processes=limits.processes or (PROCESSES_MAX if standing.sandbox else 0),
            file_size=int(limits.file_size or 0),
            disk=int(limits.disk or 0),
        ),
        seconds_max=limits.wall_time,
        owner=standing.confine.user,
        keeps_files=standing.confine.keeps_files,
        own_network=standing.confine.parts_network,
    )
