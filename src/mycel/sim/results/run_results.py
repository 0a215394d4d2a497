"""What a run gives: jobs and tasks as columns, a summary, and files of both."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy
from numpy.typing import NDArray

from mycel.sim.entities import Task
from mycel.sim.fast.fast_engine import FastResult
from mycel.sim.reference_engine import Engine
from mycel.sim.run_records import Sample
from mycel.sim.workloads.slot_work import SlotWork

Integers = NDArray[numpy.int64]
CHROME_TASKS_MAX: Final = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Times in nanoseconds; -1 where it has not happened."""

    policy: str
    seed: int
    load: float | None
    slots: int
    arrival_ns: Integers
    end_ns: Integers
    longest_ns: Integers
    """Of each job: its longest task, which is how long it takes if nothing waits."""
    priority: Integers
    task_job: Integers
    task_start_ns: Integers
    task_end_ns: Integers
    task_server: Integers
    task_arrived_at: Integers
    """The server that the task's job arrived at; -1 where jobs arrive at schedulers."""
    messages: int
    completions: int
    events: int
    bytes: int = 0
    preemptions: int = 0
    losses: int = 0
    undelivered: int = 0
    warm_up_ns: int = 0
    interrupted: bool = False
    samples: Sequence[Sample] = ()
    marks: Sequence[tuple[int, str]] = ()
    link_share: dict[int, float] = field(default_factory=dict)
    """Of each link: what job data used of its bandwidth over the run."""
    belief_ages_ns: Sequence[int] = ()
    preempted_ns: Sequence[int] = ()

    @property
    def local(self) -> NDArray[numpy.bool_] | None:
        """By task that has started: whether it ran where its job arrived."""
        if (self.task_arrived_at < 0).all():
            return None
        local: NDArray[numpy.bool_] = self.task_server == self.task_arrived_at
        return local[self.task_start_ns >= 0]

    @property
    def measured(self) -> NDArray[numpy.bool_]:
        """Finished jobs that arrived after the warm-up."""
        return (self.arrival_ns >= self.warm_up_ns) & (self.end_ns >= 0)

    @property
    def response_s(self) -> NDArray[numpy.float64]:
        kept = self.measured
        return (self.end_ns[kept] - self.arrival_ns[kept]) / 1e9


def from_fast(
    result: FastResult, work: SlotWork, *, policy: str, seed: int, load: float, slots: int
) -> Outcome:
    first = work.first_task[:-1]
    return Outcome(
        policy=policy,
        seed=seed,
        load=load,
        slots=slots,
        arrival_ns=work.arrival_ns,
        end_ns=numpy.maximum.reduceat(result.end_ns, first),
        longest_ns=numpy.maximum.reduceat(work.duration_ns, first),
        priority=numpy.zeros(work.job_count, numpy.int64),
        task_job=numpy.repeat(numpy.arange(work.job_count), numpy.diff(work.first_task)),
        task_start_ns=result.start_ns,
        task_end_ns=result.end_ns,
        task_server=result.server,
        task_arrived_at=numpy.full(work.task_count, -1, numpy.int64),
        messages=result.messages,
        completions=result.completions,
        events=result.events,
    )


def from_engine(engine: Engine, *, load: float | None, interrupted: bool = False) -> Outcome:
    jobs = engine.jobs
    tasks = [task for job in jobs for task in job.tasks]
    counters = engine.counters

    def column(values: Sequence[int]) -> Integers:
        return numpy.array(values, numpy.int64)

    cores = sum(server.resources.capacity.cores_milli for server in engine.servers)
    return Outcome(
        policy=engine.policy.name,
        seed=engine.settings.seed,
        load=load,
        slots=cores // 1000,
        arrival_ns=column([job.arrival_ns for job in jobs]),
        end_ns=column([job.end_ns for job in jobs]),
        longest_ns=column([max(task.duration_ns for task in job.tasks) for job in jobs]),
        priority=column([job.priority for job in jobs]),
        task_job=column([task.job.index for task in tasks]),
        task_start_ns=column([task.start_ns for task in tasks]),
        task_end_ns=column([task.end_ns for task in tasks]),
        task_server=column([task.server for task in tasks]),
        task_arrived_at=column([_arrived_at(engine, task) for task in tasks]),
        messages=counters.messages,
        completions=counters.completions,
        events=counters.events,
        bytes=counters.bytes,
        preemptions=counters.preemptions,
        losses=counters.losses,
        undelivered=counters.undelivered,
        interrupted=interrupted,
        samples=engine.samples,
        marks=engine.marks,
        link_share=_link_share(engine),
        preempted_ns=engine.preempted_ns,
        belief_ages_ns=getattr(engine.policy, "ages_ns", ()),
    )


def _arrived_at(engine: Engine, task: Task) -> int:
    if engine.policy.jobs_arrive_at != "servers":
        return -1
    return engine.policy.entry(task.job)


def _link_share(engine: Engine) -> dict[int, float]:
    from mycel.sim.sim_network import RoutedNetwork

    if not isinstance(engine.network, RoutedNetwork) or not engine.now:
        return {}
    links = engine.network.topology.links
    shares: dict[int, float] = {}
    for (link, _), bits in engine.bits_carried.items():
        share = bits / (links[link].bandwidth_bits_per_s * engine.now / 1e9)
        shares[link] = max(shares.get(link, 0.0), share)
    return shares


def summary(outcome: Outcome) -> dict[str, Any]:
    """Response is from a job's arrival to the end of its last task."""
    response = outcome.response_s
    kept = outcome.measured
    ideal_s = outcome.longest_ns[kept] / 1e9
    tasks = len(outcome.task_job)
    ended = outcome.task_end_ns >= 0
    counted = max(1, int(ended.sum()))  # of an interrupted run, those that ended
    busy_s = float((outcome.task_end_ns[ended] - outcome.task_start_ns[ended]).sum()) / 1e9
    makespan_s = float(outcome.task_end_ns.max(initial=0)) / 1e9
    found: dict[str, Any] = {
        "policy": outcome.policy,
        "seed": outcome.seed,
        "load": outcome.load,
        "jobs": len(outcome.arrival_ns),
        "jobs_measured": len(response),
        "jobs_unfinished": int((outcome.end_ns < 0).sum()),
        "tasks": tasks,
        "makespan_s": makespan_s,
        "busy_slots_share": busy_s / (outcome.slots * makespan_s) if makespan_s else 0.0,
        "messages_per_task": outcome.messages / counted,
        "completions_per_task": outcome.completions / counted,
        "events": outcome.events,
        "bytes": outcome.bytes,
        "preemptions": outcome.preemptions,
        "losses": outcome.losses,
        "undelivered": outcome.undelivered,
        "interrupted": outcome.interrupted,
    }
    if len(response):
        p50, p90, p99 = numpy.percentile(response, [50, 90, 99])
        found |= {
            "response_mean_s": float(response.mean()),
            "response_p50_s": float(p50),
            "response_p90_s": float(p90),
            "response_p99_s": float(p99),
            "response_over_ideal": float(response.mean() / ideal_s.mean()),
            "wait_mean_s": float((response - ideal_s).mean()),
        }
    if outcome.local is not None and len(outcome.local):
        found["local_share"] = float(outcome.local.mean())
    if len(outcome.belief_ages_ns):
        found["belief_age_mean_s"] = float(numpy.mean(outcome.belief_ages_ns)) / 1e9
    return found


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean, and half the width of its 95 % confidence interval (Student's t)."""
    from scipy.stats import t

    mean = float(numpy.mean(values))
    if len(values) < 2:
        return mean, float("nan")
    error = float(numpy.std(values, ddof=1)) / len(values) ** 0.5
    return mean, float(t.ppf(0.975, len(values) - 1)) * error


def _job_columns(outcome: Outcome) -> dict[str, NDArray[Any]]:
    jobs = len(outcome.arrival_ns)
    return {
        "job": numpy.arange(jobs),
        "policy": numpy.full(jobs, outcome.policy),
        "seed": numpy.full(jobs, outcome.seed),
        "arrival_ns": outcome.arrival_ns,
        "end_ns": outcome.end_ns,
        "longest_task_ns": outcome.longest_ns,
        "tasks": numpy.bincount(outcome.task_job, minlength=jobs),
        "priority": outcome.priority,
    }


def write_csv(outcomes: Sequence[Outcome], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        for number, outcome in enumerate(outcomes):
            columns = _job_columns(outcome)
            if not number:
                writer.writerow(columns)
            writer.writerows(zip(*(one.tolist() for one in columns.values()), strict=True))


def write_parquet(outcomes: Sequence[Outcome], path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    tables = [pyarrow.table(_job_columns(outcome)) for outcome in outcomes]
    pyarrow.parquet.write_table(pyarrow.concat_tables(tables), path)


def write_summary(outcomes: Sequence[Outcome], path: Path) -> None:
    path.write_text(json.dumps([summary(one) for one in outcomes], indent=2) + "\n")


def write_chrome_trace(outcome: Outcome, path: Path) -> int:
    """Servers as processes, for chrome://tracing and Perfetto. Returns how many tasks are in it:
    of a large run the first ones."""
    started = numpy.flatnonzero(outcome.task_start_ns >= 0)
    order = started[numpy.argsort(outcome.task_start_ns[started], kind="stable")]
    events: list[dict[str, Any]] = []
    lanes: dict[int, list[int]] = {}
    for task in order[:CHROME_TASKS_MAX].tolist():
        start, end = int(outcome.task_start_ns[task]), int(outcome.task_end_ns[task])
        if end < 0:
            continue
        server = int(outcome.task_server[task])
        ends = lanes.setdefault(server, [])
        # The first lane that is free again: tasks of one lane do not overlap.
        lane = next((n for n, last in enumerate(ends) if last <= start), len(ends))
        if lane == len(ends):
            ends.append(0)
        ends[lane] = end
        events.append(
            {
                "name": f"job {outcome.task_job[task]}",
                "ph": "X",
                "ts": start / 1000,
                "dur": (end - start) / 1000,
                "pid": server,
                "tid": lane,
            }
        )
    for time_ns, text in outcome.marks:
        events.append({"name": text, "ph": "i", "ts": time_ns / 1000, "pid": 0, "s": "g"})
    path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}))
    return len(events) - len(outcome.marks)
