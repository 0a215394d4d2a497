"""The scheduler, as a machine: `Scheduler.handle(event, now)` returns effects."""

from .machine import Scheduler

__all__ = ["Scheduler"]
