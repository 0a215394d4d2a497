"""The worker, as a machine: `WorkerMachine.handle(event, now)` returns effects."""

from .machine import WorkerMachine

__all__ = ["WorkerMachine"]
