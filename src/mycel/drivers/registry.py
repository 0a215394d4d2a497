"""Drivers by name. The rest of Mycel asks here, and knows none of them itself.

Each is imported only when it is asked for: the spawn helper, which is forked first of all,
shall not carry them all. Other packages bring further drivers as entry points:

    [project.entry-points."mycel.drivers"]
    shout = "my_package:Shout"

where `Shout(context)` makes a `Driver` of that name; see `docs/guides/drivers.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from mycel.config.plugin_names import DRIVERS_GROUP, installed_drivers

from .interface import GRACE_SECONDS, OUTPUT_BYTES_MAX
from .task_devices import ConfinementPolicy

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from mycel.drivers.container.container_driver import ContainerSettings
    from mycel.drivers.environments.build import EnvironmentSettings
    from mycel.drivers.environments.environment_cache import EnvironmentCache
    from mycel.drivers.helper.helper_client import HelperClient

    from .file_staging import Files
    from .interface import Driver, DriverListener
    from .preparation import Preparation
    from .report_server import ReportServer


class DriverContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker gives to each of its drivers."""

    helper: HelperClient
    listener: DriverListener
    root: Path
    """A folder for all drivers; each has one of its own name in it."""
    grace_seconds: float = GRACE_SECONDS
    """From SIGTERM to SIGKILL."""
    output_bytes_max: int = OUTPUT_BYTES_MAX
    environment_settings: EnvironmentSettings | None = None
    """How the environments of tasks are built; unset, as is usual."""
    containers: ContainerSettings | None = None
    """Unset where no engine works."""
    environments: EnvironmentCache | None = None
    """`create_drivers` sets this: they share it."""
    report_server: ReportServer | None = None
    """Where tasks report; unset, they cannot."""
    files: Files | None = None
    """Who sees to the files of tasks; without it tasks have none."""
    policy: ConfinementPolicy = ConfinementPolicy()
    """What holds the tasks of drivers that have no walls of their own."""


class DriverFault(Exception):
    """The worker's owner has to mend the configuration or the installed packages."""


class UnknownDriver(DriverFault):
    """The configuration names a driver that is not installed."""

    def __init__(self, name: str) -> None:
        known = ", ".join(sorted({*FACTORIES, *installed_drivers()}))
        super().__init__(f"unknown driver {name!r}: there are {known}")


class BrokenDriver(DriverFault):
    """A package promises a driver and does not bring it."""

    def __init__(self, name: str, entry_point: EntryPoint, reason: object) -> None:
        super().__init__(
            f"the driver {name!r} ({entry_point.value}, entry point group {DRIVERS_GROUP}) cannot "
            f"be loaded: {reason}; mend or uninstall its package, or leave it out of [worker] "
            "drivers"
        )


def _process(context: DriverContext) -> Driver:
    from mycel.drivers.process.process_driver import ProcessDriver

    return _staged(context, ProcessDriver, context.environments)


def _python(context: DriverContext) -> Driver:
    from mycel.drivers.python.code_cache import CodeCache
    from mycel.drivers.python.interpreter_pool import PoolLimits
    from mycel.drivers.python.python_driver import PythonDriver

    return _staged(
        context,
        lambda inner: PythonDriver(
            inner.helper,
            inner.listener,
            inner.root / "python",
            grace_seconds=inner.grace_seconds,
            limits=PoolLimits(output_bytes_max=inner.output_bytes_max),
            policy=inner.policy,
            report_server=inner.report_server,
        ),
        context.environments,
        None if context.files is None else CodeCache(context.root / "code", context.files),
    )


def _staged(
    context: DriverContext,
    make: Callable[[DriverContext], Driver],
    *preparations: Preparation | None,
) -> Driver:
    """A driver whose tasks may have files, and may need what each of `preparations` makes."""
    needed = [one for one in preparations if one is not None]
    if not needed and context.files is None:
        return make(context)
    from .staged_driver import StagedDriver

    return StagedDriver(
        lambda listener: make(msgspec.structs.replace(context, listener=listener)),
        context.listener,
        preparations=needed,
        files=context.files,
        timeout=context.policy.timeout,
    )


def _container(context: DriverContext) -> Driver:
    from mycel.drivers.container.container_driver import ContainerDriver, open_images

    if context.containers is None:
        raise DriverFault(
            "the driver 'container' was asked for, and neither podman nor docker works here: the "
            "log says why"
        )
    images = open_images(context)
    return _staged(context, lambda inner: ContainerDriver(inner, images), images)


def _model(context: DriverContext) -> Driver:
    from mycel.drivers.model.model_driver import ModelDriver

    return _staged(context, lambda inner: ModelDriver(inner.listener))


def _service(context: DriverContext) -> Driver:
    from mycel.drivers.model.service_driver import ServiceDriver

    return ServiceDriver(
        context.helper,
        context.listener,
        context.root / "service",
        context.grace_seconds,
        context.policy,
    )


FACTORIES: Final[dict[str, Callable[[DriverContext], Driver]]] = {
    "process": _process,
    "python": _python,
    "container": _container,
    "model": _model,
    "service": _service,
}


def offered_drivers(
    wanted: tuple[str, ...] | None, *, has_containers: bool = False
) -> tuple[str, ...]:
    """Those that were asked for; else all that work here."""
    if wanted is not None:
        return tuple(dict.fromkeys(wanted))
    ours = [name for name in FACTORIES if name != "container" or has_containers]
    return (*ours, *sorted(installed_drivers()))


def create_drivers(names: Iterable[str], context: DriverContext) -> list[Driver]:
    """All that a worker has. Raises `DriverFault`."""
    from mycel.drivers.environments.build import EnvironmentSettings
    from mycel.drivers.environments.environment_cache import EnvironmentCache

    from .helper_commands import HelperCommands

    environments = EnvironmentCache(
        context.root / "environments",
        HelperCommands(context),
        context.environment_settings or EnvironmentSettings(),
        policy=context.policy,
    )
    context = msgspec.structs.replace(context, environments=environments)
    return [create_driver(name, context) for name in names]


def create_driver(name: str, context: DriverContext) -> Driver:
    """One of them. Raises `DriverFault`."""
    factory = FACTORIES.get(name)
    if factory is not None:
        return factory(context)
    entry_point = installed_drivers().get(name)
    if entry_point is None:
        raise UnknownDriver(name)
    try:
        driver = _staged(context, entry_point.load())
    except Exception as error:
        raise BrokenDriver(name, entry_point, f"{type(error).__name__}: {error}") from error
    if getattr(driver, "name", None) != name:
        reason = f"it makes a driver of another name: {getattr(driver, 'name', None)!r}"
        raise BrokenDriver(name, entry_point, reason)
    return driver
