"""The `process` driver: each task is a command, in a process group and a folder of its own."""

from __future__ import annotations

from mycel.drivers.interface import Run

from .command_arguments import fill_command, fill_environment
from .command_driver import CommandDriver, Prepared


class ProcessDriver(CommandDriver):
    name = "process"
    is_confined = True

    def prepared(self, run: Run) -> Prepared:
        if not run.arguments:
            return run.work, ()
        work = fill_environment(run.work, run.arguments)
        return work, fill_command(run.work.command, run.arguments)
