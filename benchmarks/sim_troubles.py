"""Homes under trouble, beside Sparrow and central: the table in docs/simulation.md.

    python benchmarks/sim_troubles.py [--seeds N] [--processes N] [--workers N]

The seeds begin at 101: nothing was tuned on them. Where the fast engine can run a case, it does.
Prints a row for each case and policy: mean response of a job ÷ ideal over all seeds, the worst
seed, p99 and messages a task.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

FIRST_SEED: Final = 101
POLICIES: Final = {
    "central-fifo": 'name = "central-fifo"',
    "sparrow": 'name = "sparrow"',
    "homes": 'name = "homes"',
}
CENTRAL_DIES: Final = "central-fifo, the one scheduler dies"
AHEAD: Final = 'name = "homes"\nfetch_ahead = true'
DEATHS: Final = """
[[events]]
at_s = 1.0
until_s = 2.5
kind = "fail"
servers_share = 0.01
[[events]]
at_s = 1.5
kind = "fail"
scheduler = 3
[[events]]
at_s = 2.5
kind = "return"
scheduler = 3
"""


class Case(NamedTuple):
    title: str
    workload: str = ""
    cluster: str = ""
    events: str = ""
    one_way_ms: float = 0.5
    ahead: bool = False


CASES: Final = (
    Case("none"),
    Case("1 % of workers die, one scheduler in ten for 1 s", events=DEATHS),
    Case("Zipf demand (exponent 1)", workload="skew = 1.0"),
    Case("exponential tasks", workload='durations = "exponential"'),
    Case("heavy-tailed tasks", workload='durations = "heavy_tailed"'),
    Case("5 ms one way", one_way_ms=5.0, ahead=True),
    Case(
        "two shapes, one rare",
        workload="gpus = 1\ngpu_jobs_share = 0.02",
        cluster="gpus = 4\ngpu_servers = {rare}",
    ),
)


def scenario(case: Case, policy: str, workers: int) -> str:
    jobs = round(3.0 * workers * 4 * 0.9 / 0.1 / 100)
    cluster = case.cluster.format(rare=workers // 25)
    return f"""
[cluster]
servers = {workers}
cores = 4
schedulers = 10
{cluster}
[network]
one_way_ms = {case.one_way_ms}
[policy]
{policy}
[workload]
jobs = {jobs}
tasks_per_job = 100
task_s = 0.1
ramp_s = 0.5
{case.workload}
[run]
load = 0.9
warm_up_s = 1.0
detection_ms = 200
{case.events}
"""


def run(title: str, name: str, text: str, seed: int) -> tuple[str, str, dict[str, Any]]:
    """In a process of its own."""
    from mycel.sim.results.run_results import summary
    from mycel.sim.scenario import load_scenario

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trouble.toml"
        path.write_text(text, encoding="utf-8")
        outcome, _ = load_scenario(path).run(seed=seed)
    return title, name, summary(outcome)


def main(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", type=int)
    parser.add_argument("--workers", type=int, default=1000)
    options = parser.parse_args(given)
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    with ProcessPoolExecutor(options.processes) as pool:
        waiting: list[Future[tuple[str, str, dict[str, Any]]]] = []
        for case in CASES:
            policies = POLICIES | ({"homes, fetching ahead": AHEAD} if case.ahead else {})
            if case.events:
                policies |= {CENTRAL_DIES: POLICIES["central-fifo"]}
            for name, policy in policies.items():
                text = scenario(case, policy, options.workers)
                if name == CENTRAL_DIES:
                    text = text.replace("scheduler = 3", "scheduler = 0")
                seeds = range(FIRST_SEED, FIRST_SEED + options.seeds)
                waiting += [pool.submit(run, case.title, name, text, seed) for seed in seeds]
        for future in waiting:
            title, name, figures = future.result()
            found.setdefault((title, name), []).append(figures)
            print(title, name, figures.get("response_over_ideal"), file=sys.stderr, flush=True)
    for (title, name), rows in found.items():
        ratios = [row["response_over_ideal"] for row in rows]
        print(
            json.dumps(
                {
                    "trouble": title,
                    "policy": name,
                    "mean": round(sum(ratios) / len(ratios), 4),
                    "worst": round(max(ratios), 4),
                    "p99_s": round(max(row["response_p99_s"] for row in rows), 3),
                    "messages": round(sum(row["messages_per_task"] for row in rows) / len(rows), 2),
                    "unfinished": sum(row["jobs_unfinished"] for row in rows),
                }
            )
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
