"""The `process` driver: each task is a command, in a process group and a folder of its own."""

from __future__ import annotations

from .arguments import fill_command, fill_environment
from .commands import CommandDriver, Prepared
from .interface import Run


class ProcessDriver(CommandDriver):
    name = "process"
    is_held = True

    def prepared(self, run: Run) -> Prepared:
        if not run.arguments:
            return run.work, ()
        work = fill_environment(run.work, run.arguments)
        return work, fill_command(run.work.command, run.arguments)
