"""`mycel bench sim`: the simulator's engines beside SimPy, and what a run costs at each size.

    M/M/100, the same customers     fast engine ─ SimPy ─ reference engine, in turns
    1,000 to 100,000 servers        a million tasks under each policy

The three have to agree on the mean wait, and the fast engine's with Erlang C. An event is one entry
of an engine's own heap or one arrival; SimPy needs more of them for a customer than we do, so
`speedup_in_customers` is the larger ratio. Seconds are CPU time, after compilation.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

import msgspec

from mycel.bench.percentiles import median
from mycel.console.errors import CommandError
from mycel.console.tables import print_json, print_table

if TYPE_CHECKING:
    from mycel.sim.workloads.slot_work import SlotWork

P = ParamSpec("P")
T = TypeVar("T")
PACKAGES: Final = ("numba", "numpy", "scipy", "simpy")
SERVERS: Final = 100
LOAD: Final = 0.8
BUSY: Final = 0.9
FAST_CUSTOMERS: Final = 4_000_000
SLOW_CUSTOMERS: Final = 100_000
TURNS: Final = 5
BUSY_RUNS: Final = 10
SIZES: Final = (1_000, 10_000, 100_000)
POLICIES: Final = ("central-fifo", "sparrow", "homes")
TASKS: Final = 1_000_000
TASKS_PER_JOB: Final = 100
SLOTS: Final = 4
SCHEDULERS: Final = 10


class Row(msgspec.Struct, frozen=True, kw_only=True):
    servers: int
    policy: str
    tasks: int
    events: int
    seconds: float
    """To make the work and to run it."""
    events_per_s: float
    response_over_ideal: float
    messages_per_task: float


class Report(msgspec.Struct, frozen=True, kw_only=True):
    speedup_over_simpy: float
    """Events per second, the median of the turns."""
    speedup_in_customers: float
    reference_over_simpy: float
    events_per_s: float
    simpy_events_per_s: float
    reference_events_per_s: float
    million_tasks_s: float
    """10,000 servers with four slots and ten schedulers, under homes."""
    wait_over_erlang_c: float
    """The mean of ten runs of M/M/100 at load 0.9, of four million customers each."""
    waits_agree: bool
    """The fast engine's, the reference engine's and SimPy's mean wait of the same customers."""
    compilation_s: float
    rows: list[Row]


def main(given: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="mycel bench sim", description=__doc__)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--tasks", type=int, default=TASKS, help="in each row")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(given)
    if missing := [name for name in PACKAGES if importlib.util.find_spec(name) is None]:
        raise CommandError(
            f"mycel bench sim needs {', '.join(missing)}, which are not installed: "
            "pip install 'mycel[sim]' simpy"
        )
    report = measure(max(1, options.turns), max(TASKS_PER_JOB, options.tasks))
    if options.json:
        print_json(report)
    else:
        plain = msgspec.to_builtins(report)
        rows = plain.pop("rows")
        print_table(("figure", "value"), [(key, str(value)) for key, value in plain.items()])
        print()
        print_table(tuple(rows[0]), [tuple(str(one) for one in row.values()) for row in rows])
    return 0 if report.waits_agree else 1


def measure(turns: int, tasks: int) -> Report:
    _, compilation_s = _timed(_compile)
    fast: list[float] = []
    simpy: list[float] = []
    reference: list[float] = []
    customers: list[float] = []
    agree = True
    for turn in range(turns):
        small = _customers(SLOW_CUSTOMERS, turn)
        (simpy_wait, simpy_events), seconds = _timed(_simpy, small)
        simpy.append(simpy_events / seconds)
        simpy_customers = SLOW_CUSTOMERS / seconds
        (reference_wait, events), seconds = _timed(_reference, small)
        reference.append(events / seconds)
        agree &= _near(reference_wait, simpy_wait) and _near(_fast(small)[0], simpy_wait)
        large = _customers(FAST_CUSTOMERS, turn)
        (_, events), seconds = _timed(_fast, large)
        fast.append(events / seconds)
        customers.append(FAST_CUSTOMERS / seconds / simpy_customers)
        print(f"turn {turn + 1} of {turns}: {fast[-1] / simpy[-1]:.0f} times", file=sys.stderr)
    rows = [_row(servers, policy, tasks) for servers in SIZES for policy in POLICIES]
    pairs = list(zip(fast, simpy, reference, strict=True))
    return Report(
        speedup_over_simpy=round(median([mine / theirs for mine, theirs, _ in pairs]), 1),
        speedup_in_customers=round(median(customers), 1),
        reference_over_simpy=round(median([mine / theirs for _, theirs, mine in pairs]), 2),
        events_per_s=round(median(fast)),
        simpy_events_per_s=round(median(simpy)),
        reference_events_per_s=round(median(reference)),
        million_tasks_s=next(
            round(row.seconds * 1e6 / row.tasks, 2)
            for row in rows
            if (row.servers, row.policy) == (10_000, "homes")
        ),
        wait_over_erlang_c=round(_wait_over_erlang_c(), 4),
        waits_agree=agree,
        compilation_s=round(compilation_s, 1),
        rows=rows,
    )


def _timed(call: Callable[P, T], *given: P.args, **named: P.kwargs) -> tuple[T, float]:
    began = time.process_time()
    result = call(*given, **named)
    return result, time.process_time() - began


def _near(mine: float, theirs: float) -> bool:
    """SimPy counts time in floating point, we in nanoseconds of a mean service of one second."""
    return abs(mine - theirs) < 1e-6 * max(1.0, theirs)


def _wait_over_erlang_c() -> float:
    """Large systems under load forget slowly: one run of this length is off by 1.5 %."""
    from mycel.sim.theory import mean_wait

    works = (_customers(FAST_CUSTOMERS, seed, BUSY) for seed in range(BUSY_RUNS))
    return sum(_fast(work)[0] for work in works) / BUSY_RUNS / mean_wait(SERVERS, BUSY)


def _compile() -> None:
    for policy in POLICIES:
        _row(10, policy, TASKS_PER_JOB)


def _customers(count: int, seed: int, load: float = LOAD) -> SlotWork:
    from mycel.sim.workloads.synthetic import Synthetic, generate

    return generate(Synthetic(jobs=count, durations="exponential"), load, SERVERS, 1, seed=seed + 1)


def _simpy(work: SlotWork) -> tuple[float, int]:
    from . import simpy_queue

    arrivals, services = work.arrival_ns / 1e9, work.duration_ns / 1e9
    return simpy_queue.run(arrivals.tolist(), services.tolist(), SERVERS)


def _fast(work: SlotWork) -> tuple[float, int]:
    from mycel.sim.fast.fast_engine import Cluster, run_fast
    from mycel.sim.policies import policy_named

    cluster = Cluster(servers=SERVERS, slots=1, one_way_ns=0)
    result = run_fast(cluster, work, "central-fifo", policy_named("central-fifo").options_type())
    return float((result.start_ns - work.arrival_ns).mean()) / 1e9, result.events


def _reference(work: SlotWork) -> tuple[float, int]:
    from mycel.sim.entities import Capacity
    from mycel.sim.policies import policy_named
    from mycel.sim.reference_engine import Engine

    engine = Engine([Capacity(1000)] * SERVERS, work.jobs(), policy_named("central-fifo"))
    engine.run()
    waited = sum(job.tasks[0].start_ns - job.arrival_ns for job in engine.jobs)
    return waited / len(engine.jobs) / 1e9, engine.counters.events


def _row(servers: int, policy: str, tasks: int) -> Row:
    from mycel.sim.entities import NS_PER_MS
    from mycel.sim.fast.fast_engine import Cluster, run_fast
    from mycel.sim.policies import policy_named
    from mycel.sim.results.run_results import from_fast, summary
    from mycel.sim.workloads.synthetic import Synthetic, generate

    began = time.process_time()
    slots = servers * SLOTS
    spec = Synthetic(jobs=tasks // TASKS_PER_JOB, tasks_per_job=TASKS_PER_JOB, task_s=0.1)
    work = generate(spec, BUSY, slots, SCHEDULERS, seed=1)
    cluster = Cluster(
        servers=servers, slots=SLOTS, one_way_ns=NS_PER_MS // 2, schedulers=SCHEDULERS
    )
    result = run_fast(cluster, work, policy, policy_named(policy).options_type())
    seconds = time.process_time() - began
    outcome = from_fast(result, work, policy=policy, seed=1, load=BUSY, slots=slots)
    figures = summary(outcome)
    return Row(
        servers=servers,
        policy=policy,
        tasks=work.task_count,
        events=result.events,
        seconds=round(seconds, 2),
        events_per_s=round(result.events / seconds),
        response_over_ideal=round(figures["response_over_ideal"], 4),
        messages_per_task=round(figures["messages_per_task"], 3),
    )
