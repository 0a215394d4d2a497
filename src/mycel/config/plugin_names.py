"""Names that the configuration may use: ours, and those that other packages bring.

A package brings a driver or a selection algorithm as an entry point:

    [project.entry-points."mycel.selection"]
    nearest = "my_package:nearest"

where `nearest(mask, view)` cuts a set of workers into sets of equals, the best first; see
`mycel.core.matching.ranking`. `mycel.drivers.registry` says what a driver is.

Looking for entry points reads the metadata of all installed packages, so it happens only where a
name is not ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mycel.plugins import installed

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ALGORITHMS: Final = ("best", "round-robin", "capability-based", "performance-aware")
ALGORITHMS_GROUP: Final = "mycel.selection"
DRIVERS: Final = ("process", "python", "container", "model")
"""What `[worker] drivers` may name of ours."""
DRIVERS_GROUP: Final = "mycel.drivers"


def installed_algorithms() -> dict[str, EntryPoint]:
    return installed(ALGORITHMS_GROUP)


def installed_drivers() -> dict[str, EntryPoint]:
    """Without those that take the name of one of ours."""
    taken = (*DRIVERS, "service")
    return {name: one for name, one in installed(DRIVERS_GROUP).items() if name not in taken}
