"""`mycel bench drivers`: what each driver gives, beside what the machine itself does.

    in turns, three times ─ bare posix_spawn, two in flight
                          ├ process, python: without and with the sandbox
                          └ the container engine alone, container
    once ─ blobs beside a plain socket copy; a model through the swarm beside the model itself

What cannot be measured here is null, and a reason stands beside it.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from mycel.bench.percentiles import median
from mycel.bench.quick import references
from mycel.console.errors import CommandError, UsageError
from mycel.console.tables import print_json
from mycel.local import scratch_homes

from .container_runs import Containers
from .driver_runs import LANES, NotMeasured, Order, Outcome, measure

RUNS: Final = 3
"""In turns, so that what else the machine does falls on all of them; the median counts."""
COUNTS: Final = {"process": 1_000, "python": 50_000, "container": 20}
SPAWNS: Final = 1_000
PARTS: Final = {
    "blobs": "transfer of blobs beside a plain socket copy",
    "models": "a model through the swarm beside the same model called directly",
}
Figure = float | str | None


def main(given: list[str]) -> int:
    options = _parser().parse_args(given)
    if not 0 < options.scale <= 100:
        raise UsageError("--scale is above 0 and at most 100")
    with scratch_homes.workspace(options.folder or scratch_homes.default_folder()) as folder:
        figures = _measure(folder, options)
    if options.json:
        print_json(figures)
    else:
        for name, value in figures.items():
            print(f"{name:<36}{_shown(value)}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mycel bench drivers",
        description="Measure each driver on this machine, beside what runs without it.",
    )
    parser.add_argument("--json", action="store_true", help="print one flat JSON object")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="on the disk to measure")
    parser.add_argument(
        "--scale", type=float, default=1.0, metavar="F", help="so many times as many tasks (1)"
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=["process", "python", "container", *PARTS],
        help="these parts alone; may be repeated",
    )
    parser.add_argument(
        "--image", metavar="NAME", help="for containers; unset, one is made of busybox"
    )
    parser.add_argument(
        "--engine-option",
        action="append",
        default=[],
        metavar="OPTION",
        help="of podman or docker, such as --engine-option=--root=DIR",
    )
    return parser


def _measure(folder: Path, options: argparse.Namespace) -> dict[str, Figure]:
    wanted: list[str] = options.only or ["process", "python", "container", *PARTS]
    figures: dict[str, Figure] = {"scale": options.scale}
    runs = _Runs(folder, options.scale)
    with Containers(tuple(options.engine_option), options.image, "container" in wanted) as engine:
        for number in range(RUNS):
            _say(f"round {number + 1} of {RUNS}")
            runs.spawns()
            for driver in ("process", "python"):
                if driver in wanted:
                    runs.take(driver, Order(driver=driver, count=0, folder=""))
                    runs.take(
                        f"{driver}_sandboxed",
                        Order(driver=driver, count=0, folder="", sandbox=True),
                    )
            if "container" in wanted:
                runs.containers(engine)
    figures |= runs.figures()
    for part, what in PARTS.items():
        if part in wanted:
            _say(what)
            figures |= _figures_of(part, folder, options.scale)
    return {name: _rounded(value) for name, value in figures.items()}


class _Runs:
    """What came of each measurement, round by round; after a failure it is not tried again."""

    def __init__(self, folder: Path, scale: float) -> None:
        self._folder = folder
        self._scale = scale
        self._outcomes: dict[str, list[Outcome]] = {}
        self._references: dict[str, list[float]] = {}
        self._reasons: dict[str, str] = {}

    def spawns(self) -> None:
        self._refer("ref_spawn_per_s", lambda: references.spawns_per_s(self._count(SPAWNS)))

    def containers(self, engine: Containers) -> None:
        outcomes = self._outcomes.setdefault("container", [])
        count = self._count(COUNTS["container"])
        try:
            order = engine.order()
            # First by the driver, which says more of what goes wrong.
            self.take("container", order)
            if outcomes:
                self._refer("ref_container_per_s", lambda: engine.bare_per_s(count, LANES))
        except NotMeasured as reason:
            self._reasons["container"] = str(reason)
            outcomes.clear()

    def take(self, name: str, order: Order) -> None:
        outcomes = self._outcomes.setdefault(name, [])
        if name in self._reasons:
            return
        count = self._count(COUNTS[order.driver])
        _say(f"{name.replace('_', ', ')}: {count:,} tasks")
        place = self._folder / name
        try:
            outcomes.append(
                measure(
                    Order(
                        driver=order.driver,
                        count=count,
                        folder=str(place),
                        sandbox=order.sandbox,
                        engine=order.engine,
                        image=order.image,
                    )
                )
            )
        except NotMeasured as reason:
            self._reasons[name] = str(reason)
            outcomes.clear()

    def figures(self) -> dict[str, Figure]:
        figures: dict[str, Figure] = {
            name: median(rates) for name, rates in self._references.items()
        }
        spawn = figures["ref_spawn_per_s"]
        assert isinstance(spawn, float)
        for name, outcomes in self._outcomes.items():
            bare = figures.get("ref_container_per_s") if name == "container" else spawn
            figures |= _of_driver(name, outcomes, bare)
            if name in self._reasons:
                figures[f"{name}_reason"] = self._reasons[name]
        return figures

    def _refer(self, name: str, run: Callable[[], float]) -> None:
        self._references.setdefault(name, []).append(run())

    def _count(self, count: int) -> int:
        return max(LANES, round(count * self._scale))


def _of_driver(name: str, outcomes: list[Outcome], bare: Figure) -> dict[str, Figure]:
    """`overhead_ms`: what a lane spends on a task beyond what it would on the bare thing."""
    rate_name, overhead_name = f"{name}_tasks_per_s", f"{name}_overhead_ms"
    share_name, cpu_name = f"{name}_share_of_bare", f"{name}_cpu_ms"
    if not outcomes:
        return dict.fromkeys((rate_name, overhead_name, share_name, cpu_name))
    rate = median([one.tasks_per_s for one in outcomes])
    # A call starts no process: all of its time is overhead.
    is_call = name.startswith("python")
    assert isinstance(bare, float)
    bare_ms = 0.0 if is_call else 1000 * LANES / bare
    return {
        rate_name: rate,
        overhead_name: 1000 * LANES / rate - bare_ms,
        share_name: None if is_call else rate / bare,
        cpu_name: median([1000 * one.cpu_seconds / one.count for one in outcomes]),
    }


def _figures_of(part: str, folder: Path, scale: float) -> dict[str, Figure]:
    place = folder / part
    place.mkdir()
    try:
        return _blobs(place, scale) if part == "blobs" else _models(place, scale)
    except (ImportError, CommandError, NotMeasured) as error:
        return {f"{part}_reason": str(error)}


def _blobs(folder: Path, scale: float) -> dict[str, Figure]:
    from . import blob_bench

    return blob_bench.measure(folder, max(1, round(blob_bench.SIZE_MB * scale)))


def _models(folder: Path, scale: float) -> dict[str, Figure]:
    models = importlib.import_module("mycel.bench.drivers.model_bench")
    found: dict[str, Figure] = models.measure(folder, max(1, round(models.ROUNDS * scale)))
    return found


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _rounded(value: Figure) -> Figure:
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _shown(value: Figure) -> str:
    return f"{value:>12,.10g}" if isinstance(value, float | int) else f"  {value or '-'}"
