"""Batch systems by name: ours, and those of other packages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mycel import plugins
from mycel.core.agent.batch_jobs import BatchFailure

from .batch_system import BatchSystem
from .errors import BatchError

GROUP: Final = "mycel.batch_systems"
"""Entry points: callables without arguments that make a batch system."""


def _slurm() -> BatchSystem:
    from .slurm.slurm_system import SlurmSystem

    return SlurmSystem()


def _ray() -> BatchSystem:
    from .ray.ray_system import RaySystem

    return RaySystem()


BATCH_SYSTEMS: Final[dict[str, Callable[[], BatchSystem]]] = {"slurm": _slurm, "ray": _ray}


def make_batch_system(name: str) -> BatchSystem:
    """Raises BatchError."""
    if name in BATCH_SYSTEMS:
        return BATCH_SYSTEMS[name]()
    found = plugins.installed(GROUP)
    if name not in found:
        known = ", ".join(sorted({*BATCH_SYSTEMS, *found}))
        raise BatchError(BatchFailure.MISSING, f"there is no batch system {name!r}; known: {known}")
    made: BatchSystem = found[name].load()()
    return made
