"""`mycel sim`: run, compare, topology show, list."""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mycel.cli.arguments import add_swarm
from mycel.console.errors import CommandError, UsageError
from mycel.console.tables import duration, print_json, print_table

from . import sim_sweep

if TYPE_CHECKING:
    from mycel.sim.results.run_results import Outcome
    from mycel.topology.network_graph import Topology

PACKAGES: Final = ("numba", "numpy", "plotly", "pyarrow", "rustworkx", "scipy")
INTERRUPTED: Final = 130
LOAD_MAX: Final = 100
NUMBER_MAX: Final = 1_000_000


def main(given: list[str]) -> int:
    options = _parser().parse_args(given)
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise CommandError(
            f"mycel sim needs {', '.join(missing)}, which are not installed: "
            "pip install 'mycel[sim]'"
        )
    command: Callable[[argparse.Namespace], int] = options.command
    return command(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mycel sim", description="Simulate a cluster.", allow_abbrev=False
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="run a scenario")
    run.add_argument("scenario", help="a TOML file, or a name that 'mycel sim list' prints")
    run.add_argument("--seed", type=_at_least(0), help="instead of the scenario's")
    run.add_argument("--policy", help="instead of the scenario's")
    run.set_defaults(command=_run)
    compare = commands.add_parser("compare", help="run policies on the same work")
    compare.add_argument("scenario", nargs="?", default="sparrow-setting-small")
    compare.add_argument("--policies", required=True, help="names, separated by commas")
    compare.add_argument("--loads", help="such as 0.7,0.8,0.9; else the scenario's")
    compare.add_argument("--trace", metavar="FILE", help="a trace instead of the workload")
    compare.add_argument("--seeds", type=_at_least(1), help="how many, from the scenario's seed on")
    compare.add_argument("--processes", type=_at_least(1), help="at once; else one for each core")
    compare.add_argument(
        "--on-swarm", action="store_true", help="send the runs as tasks to a Mycel swarm"
    )
    compare.add_argument(
        "--home", metavar="DIR", help="the swarm's folder (MYCEL_HOME, else ~/.mycel)"
    )
    add_swarm(compare)
    compare.set_defaults(command=_compare)
    for one in (run, compare):
        one.add_argument("--out", metavar="DIR", help="write jobs, summary, trace and report here")
        one.add_argument("--json", action="store_true", help="print the summaries as JSON")
    topology = commands.add_parser("topology", help="show a topology")
    topology.add_argument("action", choices=["show"])
    topology.add_argument("scenario", help="a scenario, or a topology file")
    topology.add_argument("--svg", metavar="FILE", help="write the picture here")
    topology.add_argument("--json", action="store_true", help="print nodes and links as JSON")
    topology.set_defaults(command=_topology)
    listing = commands.add_parser("list", help="list policies and scenarios")
    listing.add_argument("--json", action="store_true", help="print JSON")
    listing.set_defaults(command=_list)
    return parser


def _scenario_path(name: str) -> Path:
    from mycel.sim.scenario import SCENARIOS

    shipped = SCENARIOS / f"{name}.toml"
    path = Path(name) if Path(name).is_file() or not shipped.is_file() else shipped
    if not path.exists():
        raise CommandError(
            f"there is no scenario {name!r}: give a file, or a name that 'mycel sim list' prints"
        )
    return path


def _run(options: argparse.Namespace) -> int:
    from mycel.sim.scenario import load_scenario

    loaded = load_scenario(_scenario_path(options.scenario))
    run = loaded.scenario.run
    first = run.seed if options.seed is None else options.seed
    seeds = range(first, first + (1 if options.seed is not None else run.seeds))
    outcomes: list[Outcome] = []
    topology: Topology | None = None
    with _Progress() as progress:
        for number, seed in enumerate(seeds):
            progress.begin(number, len(seeds))
            try:
                outcome, topology = loaded.run(
                    policy=options.policy, seed=seed, progress=progress.show
                )
            except KeyboardInterrupt:
                break  # between runs, or in a compiled one: what is done is written
            outcomes.append(outcome)
            if outcome.interrupted:
                break
    title = loaded.scenario.title or loaded.path.stem
    _finish(options, outcomes, topology, title)
    is_whole = len(outcomes) == len(seeds) and not outcomes[-1].interrupted
    return 0 if is_whole else INTERRUPTED


def _compare(options: argparse.Namespace) -> int:
    from mycel.sim.policies import policy_named
    from mycel.sim.scenario import load_scenario
    from mycel.sim.sweep_runs import check_can_travel

    policies = [name.strip() for name in options.policies.split(",")]
    for name in policies:
        policy_named(name)
    path = _scenario_path(options.scenario)
    loaded = load_scenario(path)
    run = loaded.scenario.run
    loads = [run.load] if options.loads is None else _numbers(options.loads)
    seeds = range(run.seed, run.seed + (options.seeds or run.seeds))
    runs = [(name, load, seed) for load in loads for seed in seeds for name in policies]
    outcomes: dict[int, Outcome] = {}
    is_whole = True
    if options.on_swarm:
        check_can_travel(loaded, options.trace)
        ended = sim_sweep.on_swarm(options, path, runs)
    else:
        ended = sim_sweep.on_cores(path, options.trace, runs, options.processes)
    with _Progress() as progress, closing(ended):
        try:
            for number, outcome in ended:
                outcomes[number] = outcome
                progress.show(len(outcomes), len(runs))
        except KeyboardInterrupt:
            is_whole = False
    ordered = [outcomes[number] for number in sorted(outcomes)]
    _finish(options, ordered, None, f"{', '.join(policies)}: {loaded.scenario.title or path.stem}")
    return 0 if is_whole else INTERRUPTED


def _numbers(text: str) -> list[float]:
    try:
        loads = [float(one) for one in text.split(",")]
    except ValueError:
        loads = []
    if not loads or not all(0 < load <= LOAD_MAX for load in loads):
        raise UsageError(
            f"expected loads such as 0.7,0.8,0.9, each above 0 and at most {LOAD_MAX}, got {text!r}"
        )
    return loads


def _at_least(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        value = int(text)
        if not least <= value <= NUMBER_MAX:
            raise argparse.ArgumentTypeError(
                f"expected a number from {least} to {NUMBER_MAX}, got {value}"
            )
        return value

    read.__name__ = "whole number"  # argparse says what is no such thing
    return read


def _finish(
    options: argparse.Namespace,
    outcomes: Sequence[Outcome],
    topology: Topology | None,
    title: str,
) -> None:
    from mycel.sim.results.run_results import summary

    if not outcomes:
        print("mycel: interrupted before the first run had ended", file=sys.stderr)
        return
    if options.out is not None:
        _write(outcomes, topology, title, Path(options.out))
    summaries = [summary(outcome) for outcome in outcomes]
    if options.json:
        print_json(summaries)
        return
    names = {
        "policy": "POLICY",
        "load": "LOAD",
        "seed": "SEED",
        "response_mean_s": "MEAN s",
        "response_p99_s": "P99 s",
        "response_over_ideal": "÷ IDEAL",
        "messages_per_task": "MESSAGES/TASK",
        "jobs_unfinished": "UNFINISHED",
    }
    rows = [[_text(one.get(key)) for key in names] for one in summaries]
    print_table(list(names.values()), rows)


def _text(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)


def _write(
    outcomes: Sequence[Outcome], topology: Topology | None, title: str, folder: Path
) -> None:
    from mycel.sim.results import run_results
    from mycel.sim.results.html_report import write_report

    folder.mkdir(parents=True, exist_ok=True)
    run_results.write_summary(outcomes, folder / "summary.json")
    run_results.write_csv(outcomes, folder / "jobs.csv")
    run_results.write_parquet(outcomes, folder / "jobs.parquet")
    shown = run_results.write_chrome_trace(outcomes[0], folder / "trace.json")
    write_report(outcomes, topology, title, folder / "report.html")
    print(f"wrote {folder}/report.html and more ({shown} tasks in trace.json)", file=sys.stderr)


def _topology(options: argparse.Namespace) -> int:
    from mycel.config.loader import read_toml
    from mycel.sim.scenario import load_scenario
    from mycel.topology import picture, spec

    path = _scenario_path(options.scenario)
    content, _ = read_toml(path)
    if "workload" in content:
        wanted = load_scenario(path).scenario.topology
        if wanted is None:
            raise CommandError(f"{path} has no [topology]")
        topology = spec.make(wanted, path.parent)
    else:
        topology = spec.read_file(path)
    if options.json:
        print_json(spec.as_data(topology))
    elif options.svg is not None:
        Path(options.svg).write_text(picture.picture(topology), encoding="utf-8")
    else:
        _print_topology(topology)
    return 0


def _print_topology(topology: Topology) -> None:
    from mycel.topology.network_graph import Kind

    for kind in (Kind.SPINE, Kind.SWITCH, Kind.LEAF):
        names = [node.name for node in topology.nodes if node.kind is kind]
        if names:
            print(f"{kind.value:>8}  {'  '.join(names[:12])}{'  …' if len(names) > 12 else ''}")
    below: dict[int, int] = {}
    for server in topology.servers:
        place = topology.place(server)
        below[place] = below.get(place, 0) + 1
    rows = [
        (
            topology.nodes[place].name,
            str(count),
            " ".join(
                topology.nodes[near].name
                for _, near in topology.live_links_of(place)
                if near in topology.position
            ),
        )
        for place, count in below.items()
    ]
    print_table(["PLACE", "SERVERS", "LINKED TO"], rows[:40])
    if len(rows) > 40:
        print(f"… and {len(rows) - 40} more places; --svg draws them")


def _list(options: argparse.Namespace) -> int:
    from mycel.config.loader import read_toml
    from mycel.sim.policies import POLICIES
    from mycel.sim.scenario import SCENARIOS

    policies = {name: about for name, (_, _, about) in POLICIES.items()}
    scenarios = {
        path.stem: str(read_toml(path)[0].get("title", ""))
        for path in sorted(SCENARIOS.glob("*.toml"))
    }
    if options.json:
        print_json({"policies": policies, "scenarios": scenarios})
        return 0
    print_table(["POLICY", ""], list(policies.items()))
    print()
    print_table(["SCENARIO", ""], list(scenarios.items()))
    return 0


class _Progress:
    """One line on a terminal: how far, and how long it will take."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()
        self._began_s = time.monotonic()
        self._done, self._runs = 0, 1

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_shown:
            print("\r\033[K", end="", file=sys.stderr)

    def begin(self, done: int, runs: int) -> None:
        self._done, self._runs = done, runs

    def show(self, finished: int, total: int) -> None:
        if not self._is_shown or not finished:
            return
        share = (self._done + finished / total) / self._runs
        left_s = (time.monotonic() - self._began_s) * (1 - share) / share
        print(f"\r\033[K{share:.0%}, {duration(left_s)} left", end="", file=sys.stderr)
