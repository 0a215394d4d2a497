"""Which workers can run a task, which of them should, and what the others lack."""

from .fits import has_room, left_after, slots_that_fit, total_of
from .obstacles import all_obstacles, obstacle
from .pool import Pool
from .selection import ALGORITHMS, STRATEGIES, Algorithm, SelectionSettings, View
from .standing import LOAD_METRICS, Member
from .versions import is_version_range, version_satisfies

__all__ = [
    "ALGORITHMS",
    "LOAD_METRICS",
    "STRATEGIES",
    "Algorithm",
    "Member",
    "Pool",
    "SelectionSettings",
    "View",
    "all_obstacles",
    "has_room",
    "is_version_range",
    "left_after",
    "obstacle",
    "slots_that_fit",
    "total_of",
    "version_satisfies",
]
