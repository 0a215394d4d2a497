"""What holds a worker's tasks: tried at the start, told in the log, promised in what it offers."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

import msgspec

from mycel.config.settings import Worker
from mycel.core.model.resources import Capabilities
from mycel.drivers.sandbox.detection import NoSandbox, SandboxStatus, detect_sandbox
from mycel.drivers.sandbox.run_confinement import Limits
from mycel.drivers.task_devices import ConfinementPolicy, Cores
from mycel.roles.role_process import Program, RoleFault

if TYPE_CHECKING:
    from mycel.drivers.helper.spawn_helper import HelperHandle

TASKS: Final = "tasks"
CAUSE: Final = "walls"
"""Why a worker takes no tasks that nothing would hold."""
PROCESSES_MAX: Final = 4096


def sandbox_status(program: Program, offered: Capabilities, end: HelperHandle) -> SandboxStatus:
    """Says in the log what tasks are held by, and what is missing. Raises `RoleFault`."""
    folder = program.folder.path
    try:
        status = detect_sandbox(
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
        sandbox=status.sandbox or "none",
        walls=status.line,
        network=status.network,
        limits=", ".join(status.limits),
        remarks=status.remarks,
    )
    print(f"mycel: tasks are held by {status.line}", file=sys.stderr, flush=True)
    return status


def with_sandbox(offered: Capabilities, status: SandboxStatus) -> Capabilities:
    return msgspec.structs.replace(
        offered,
        sandbox=status.sandbox,
        walls=status.walls,
        advice=status.advice,
        network=status.network,
        limits=status.limits,
    )


def confinement_policy(
    worker: Worker, offered: Capabilities, status: SandboxStatus
) -> ConfinementPolicy:
    limits = worker.limits
    return ConfinementPolicy(
        cores=Cores(offered.cpu_cores),
        gpus=offered.gpus,
        limits=Limits(
            memory=int(limits.memory or 0),
            processes=limits.processes or (PROCESSES_MAX if status.sandbox else 0),
            file_size=int(limits.file_size or 0),
            disk=int(limits.disk or 0),
        ),
        seconds_max=limits.wall_time,
        owner=status.plan.user,
        keeps_files=status.plan.keeps_files,
        own_network=status.plan.parts_network,
    )
