"""The names of selection algorithms: ours, and those that other packages bring.

A package brings one as an entry point:

    [project.entry-points."mycel.selection"]
    nearest = "my_package:nearest"

where `nearest(mask, view)` cuts a set of workers into sets of equals, the best first; see
`mycel.core.matching.ranking`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mycel.plugins import installed

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ALGORITHMS: Final = ("best", "round-robin", "capability-based", "performance-aware")
ALGORITHMS_GROUP: Final = "mycel.selection"


def installed_algorithms() -> dict[str, EntryPoint]:
    """Looks through all installed packages: only where a name is not ours."""
    return installed(ALGORITHMS_GROUP)
