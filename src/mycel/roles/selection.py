"""Selection as configured: the settings, and the algorithms that the core may use."""

from __future__ import annotations

from collections.abc import Mapping

from mycel.config.algorithms import ALGORITHMS_GROUP, installed_algorithms
from mycel.config.settings import Scheduler
from mycel.core.matching import ALGORITHMS, Algorithm, SelectionSettings

from .program import RoleFault


def selection_of(scheduler: Scheduler) -> SelectionSettings:
    balancing = scheduler.load_balancing
    return SelectionSettings(
        algorithm=scheduler.selection_algorithm,
        strategy=balancing.strategy,
        load_metric=balancing.load_metric,
        prefer_local_workers=balancing.prefer_local_workers,
        max_network_latency_seconds=balancing.max_network_latency / 1000.0,
    )


def load_algorithms() -> Mapping[str, Algorithm]:
    """Ours, and all that are installed: a changed configuration may name any of them."""
    found: dict[str, Algorithm] = dict(ALGORITHMS)
    for name, entry_point in installed_algorithms().items():
        if name in ALGORITHMS:
            continue  # nobody takes the name of one of ours
        try:
            algorithm = entry_point.load()
        except Exception as error:
            raise RoleFault(
                f"the selection algorithm {name!r} ({entry_point.value}, entry point group "
                f"{ALGORITHMS_GROUP}) cannot be loaded: {error}; mend or uninstall its package"
            ) from error
        if not callable(algorithm):
            raise RoleFault(f"the selection algorithm {name!r} is no function: {algorithm!r}")
        found[name] = algorithm
    return found
