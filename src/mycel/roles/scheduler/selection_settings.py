"""Selection as configured: the settings, and the algorithms that the core may use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from mycel.config.plugin_names import ALGORITHMS_GROUP, installed_algorithms
from mycel.config.settings import Scheduler
from mycel.core.matching import ALGORITHMS, Algorithm, SelectionSettings
from mycel.core.matching.score import Weights
from mycel.roles.role_process import RoleFault

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from mycel.core.matching.ranking import View

FAULTS_TOLD_MAX: Final = 20


class Note(Protocol):
    def __call__(self, event: str, **fields: object) -> None: ...


def selection_of(scheduler: Scheduler) -> SelectionSettings:
    balancing = scheduler.load_balancing
    return SelectionSettings(
        algorithm=scheduler.selection_algorithm,
        strategy=balancing.strategy,
        load_metric=balancing.load_metric,
        prefer_local_workers=balancing.prefer_local_workers,
        max_network_latency_seconds=balancing.max_network_latency / 1000.0,
        weights=Weights(**msgspec.structs.asdict(balancing.weights)),
    )


def load_algorithms(chosen: str, note: Note) -> dict[str, Algorithm]:
    """Ours, and all that are installed: a changed configuration may name any of them. Only the
    chosen one has to be sound."""
    found: dict[str, Algorithm] = dict(ALGORITHMS)
    for name, entry_point in installed_algorithms().items():
        if name in ALGORITHMS:
            continue  # nobody takes the name of one of ours
        try:
            found[name] = held(_loaded(name, entry_point), _reporter(name, note))
        except RoleFault as fault:
            if name == chosen:
                raise
            note("selection_algorithm_left_out", error=str(fault))
    return found


def held(algorithm: Algorithm, failed: Callable[[Exception], None]) -> Algorithm:
    """What another package brings, held to its promise: to cut the set it is given. Workers that
    it makes up or names twice are skipped, and those that it leaves out come last, as equals;
    also if it fails, because tasks should not wait for its author."""

    def cut(mask: int, view: View) -> Iterator[int]:
        rest = mask
        try:
            for part in islice(algorithm(mask, view), mask.bit_count()):
                equal = part & rest
                if equal:
                    rest ^= equal
                    yield equal
        except Exception as error:  # noqa: BLE001 - the edge to another package
            failed(error)
        if rest:
            yield rest

    return cut


def _loaded(name: str, entry_point: EntryPoint) -> Algorithm:
    try:
        algorithm: Algorithm = entry_point.load()
    except Exception as error:
        raise RoleFault(
            f"the selection algorithm {name!r} ({entry_point.value}, entry point group "
            f"{ALGORITHMS_GROUP}) cannot be loaded: {error}; mend or uninstall its package"
        ) from error
    if not callable(algorithm):
        raise RoleFault(f"the selection algorithm {name!r} is no function: {algorithm!r}")
    return algorithm


def _reporter(name: str, note: Note) -> Callable[[Exception], None]:
    """Tells of each fault once, and not at every decision."""
    told: set[str] = set()

    def failed(error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        if text not in told and len(told) < FAULTS_TOLD_MAX:
            told.add(text)
            note("selection_algorithm_failed", algorithm=name, error=text)

    return failed
