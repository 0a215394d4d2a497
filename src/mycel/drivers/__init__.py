"""Drivers by name. The rest of Mycel asks here, and knows none of them itself.

Each is imported only when it is asked for: the spawn helper, which is forked first of all,
shall not carry them all. Drivers from other packages will be added to this table by entry
points of the group `mycel.drivers`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from .interface import OUTPUT_BYTES_MAX

if TYPE_CHECKING:
    from .helper_client import Helper
    from .interface import Driver, DriverListener
    from .model import ServedModel


class DriverContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker gives to each of its drivers."""

    helper: Helper
    listener: DriverListener
    root: Path
    """A folder for all drivers; each has one of its own name in it."""
    grace_seconds: float = 5.0
    """From SIGTERM to SIGKILL."""
    output_bytes_max: int = OUTPUT_BYTES_MAX
    models: tuple[ServedModel, ...] = ()


class UnknownDriver(Exception):
    """The configuration names a driver that is not installed."""

    def __init__(self, name: str) -> None:
        super().__init__(f"unknown driver {name!r}: there are {', '.join(sorted(FACTORIES))}")


def _process(context: DriverContext) -> Driver:
    from .process import ProcessDriver

    return ProcessDriver(
        context.helper,
        context.listener,
        context.root / "process",
        grace_seconds=context.grace_seconds,
        output_bytes_max=context.output_bytes_max,
    )


def _python(context: DriverContext) -> Driver:
    from .interpreter_pool import PoolLimits
    from .python import PythonDriver

    return PythonDriver(
        context.helper,
        context.listener,
        context.root / "python",
        grace_seconds=context.grace_seconds,
        limits=PoolLimits(output_bytes_max=context.output_bytes_max),
    )


def _model(context: DriverContext) -> Driver:
    from .model import ModelDriver

    return ModelDriver(context.listener, list(context.models))


FACTORIES: dict[str, Callable[[DriverContext], Driver]] = {
    "process": _process,
    "python": _python,
    "model": _model,
}


def create_driver(name: str, context: DriverContext) -> Driver:
    factory = FACTORIES.get(name)
    if factory is None:
        raise UnknownDriver(name)
    return factory(context)
