"""Which workers can run a task, which of them should, and what the others lack."""

from .obstacles import all_obstacles, obstacle
from .rank_terms import LOAD_METRICS, Member
from .ranking import ALGORITHMS, STRATEGIES, Algorithm, SelectionSettings, View
from .slot_counts import has_room, left_after, less, slots_that_fit, total_of
from .version_ranges import is_version_range, version_satisfies
from .worker_pool import Pool

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
    "less",
    "obstacle",
    "slots_that_fit",
    "total_of",
    "version_satisfies",
]
