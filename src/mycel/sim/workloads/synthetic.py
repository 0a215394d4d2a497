"""Synthetic work: when jobs arrive, and how long their tasks take.

    arrivals    poisson, bursty (two rates in turn), diurnal (one sine a day)
    durations   constant, exponential, heavy_tailed (bounded Pareto)

The seed decides everything. Runs of different policies on one seed get the same jobs.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
import numpy
from numpy.typing import NDArray

from mycel.sim.entities import NS_PER_S, Demand, Job
from mycel.sim.errors import ScenarioError

from .slot_work import SlotWork

Positive = Annotated[float, msgspec.Meta(gt=0, le=1e9)]
TASKS_MAX: Final = 200_000_000
TIME_MAX_S: Final = 2**62 / NS_PER_S


class Synthetic(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The scenario's `[workload]` with kind "synthetic". What follows `ramp_s` needs the reference
    engine."""

    kind: Literal["synthetic"] = "synthetic"
    jobs: Annotated[int, msgspec.Meta(ge=1, le=TASKS_MAX)]
    tasks_per_job: Annotated[int, msgspec.Meta(ge=1, le=TASKS_MAX)] = 1
    task_s: Positive = 1.0
    """Mean length of a task."""
    durations: Literal["constant", "exponential", "heavy_tailed"] = "constant"
    arrivals: Literal["poisson", "bursty", "diurnal"] = "poisson"
    burst_factor: Annotated[float, msgspec.Meta(ge=1, le=1e9)] = 4.0
    """Bursty: how much faster jobs arrive during a burst. A fifth of the time is burst."""
    burst_s: Positive = 10.0
    """Bursty: mean length of a burst."""
    day_s: Positive = 86_400.0
    """Diurnal: length of a day. The rate swings by half around its mean."""
    tail_exponent: Annotated[float, msgspec.Meta(gt=1, le=1e9)] = 1.5
    tail_ratio: Annotated[float, msgspec.Meta(gt=1, le=1e9)] = 1000.0
    """Heavy-tailed: longest ÷ shortest task."""
    skew: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 0.0
    """Zipf exponent of where jobs arrive; 0 is evenly."""
    ramp_s: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 0.0
    """The rate rises from zero to its value over this long."""
    cores: Annotated[float, msgspec.Meta(gt=0, le=1e9)] = 1.0
    memory_mib: Annotated[int, msgspec.Meta(ge=0)] = 0
    gpus: Annotated[int, msgspec.Meta(ge=0)] = 0
    gpu_share: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    gpu_jobs_share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0
    """The share of the jobs whose tasks need GPUs, if any do."""
    gang: bool = False
    data_mb: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 0.0
    """Moved to the server before each task, from where its job arrived."""
    urgent_share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    """The share of the jobs with priority 10 instead of 0."""
    estimate_error: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 0.0
    """Standard deviation of the logarithm of estimate ÷ duration."""

    @property
    def is_plain(self) -> bool:
        """Whether the fast engine can run it."""
        special = (self.memory_mib, self.gpus, self.data_mb, self.urgent_share)
        return self.cores == 1.0 and not self.gang and not any(special)


def as_jobs(spec: Synthetic, work: SlotWork, seed: int) -> list[Job]:
    """For the reference engine, with all that the fast one does not know."""
    demand = Demand(
        round(spec.cores * 1000), spec.memory_mib, spec.gpus, round(spec.gpu_share * 1000)
    )
    jobs = work.jobs(demand)
    if spec.gpus and spec.gpu_jobs_share < 1:
        draws = numpy.random.Generator(numpy.random.PCG64([seed, 2])).random(len(jobs))
        without = Demand(demand.cores_milli, demand.memory_mib)
        for job, draw in zip(jobs, draws.tolist(), strict=True):
            if draw >= spec.gpu_jobs_share:
                for task in job.tasks:
                    task.demand = without
    random = numpy.random.Generator(numpy.random.PCG64([seed, 1]))
    urgent = random.random(len(jobs)) < spec.urgent_share
    errors = numpy.exp(random.normal(0.0, spec.estimate_error, work.task_count))
    for job, is_urgent in zip(jobs, urgent.tolist(), strict=True):
        job.priority = 10 if is_urgent else 0
        job.is_gang = spec.gang
        job.data_bytes = round(spec.data_mb * 1e6)
        if spec.estimate_error:
            for task in job.tasks:
                task.estimate_ns = max(1, round(task.duration_ns * float(errors[task.index])))
    return jobs


def generate(spec: Synthetic, load: float, slots: int, entries: int, seed: int) -> SlotWork:
    """`load` is the share of the slots that the work keeps busy on average."""
    tasks = spec.jobs * spec.tasks_per_job
    if tasks > TASKS_MAX:
        raise ScenarioError(f"{tasks} tasks do not fit into memory: at most {TASKS_MAX}")
    random = numpy.random.Generator(numpy.random.PCG64(seed))
    jobs_per_s = load * slots / (spec.tasks_per_job * spec.task_s)
    arrival_s = _arrivals(spec, jobs_per_s, random)
    if spec.ramp_s:
        # During the ramp the rate grows linearly: time t stands for t²/2ramp of full rate.
        half = spec.ramp_s / 2
        ramped = numpy.sqrt(2 * spec.ramp_s * arrival_s)
        arrival_s = numpy.where(arrival_s < half, ramped, arrival_s + half)
    duration_s = _durations(spec, tasks, random)
    if not arrival_s[-1] + duration_s.sum() < TIME_MAX_S:
        raise ScenarioError(
            "the work takes longer than can be counted in nanoseconds (146 years, if all tasks run "
            "one after the other): fewer jobs, shorter tasks or a higher load"
        )
    return SlotWork(
        arrival_ns=numpy.round(arrival_s * NS_PER_S).astype(numpy.int64),
        entry=_entries(spec, entries, random),
        first_task=numpy.arange(0, tasks + 1, spec.tasks_per_job, dtype=numpy.int64),
        duration_ns=numpy.maximum(1, numpy.round(duration_s * NS_PER_S)).astype(numpy.int64),
    )


def _arrivals(
    spec: Synthetic, jobs_per_s: float, random: numpy.random.Generator
) -> NDArray[numpy.float64]:
    # Unit-rate arrivals, stretched by the inverse of the cumulated rate.
    steps = numpy.cumsum(random.exponential(1.0, spec.jobs))
    if spec.arrivals == "poisson":
        return steps / jobs_per_s
    if spec.arrivals == "diurnal":
        return _diurnal(steps / jobs_per_s, spec.day_s)
    return _bursty(spec, steps / jobs_per_s, random)


def _diurnal(mean_times: NDArray[numpy.float64], day_s: float) -> NDArray[numpy.float64]:
    """Rate 1 - cos(2πt/day)/2: a quiet night, a busy noon."""
    grid = numpy.linspace(0, mean_times[-1] + day_s, max(1000, int(mean_times[-1] / day_s) * 500))
    turn = 2 * numpy.pi / day_s
    cumulated = grid - numpy.sin(turn * grid) / (2 * turn)
    return numpy.interp(mean_times, cumulated, grid)


def _bursty(
    spec: Synthetic, mean_times: NDArray[numpy.float64], random: numpy.random.Generator
) -> NDArray[numpy.float64]:
    """Quiet and burst in turn, of exponential lengths, quiet four times as long."""
    quiet_rate = 1 / (0.8 + 0.2 * spec.burst_factor)
    pairs = int(mean_times[-1] / (5 * spec.burst_s)) * 2 + 50
    lengths = numpy.empty(2 * pairs)
    lengths[0::2] = random.exponential(4 * spec.burst_s, pairs)
    lengths[1::2] = random.exponential(spec.burst_s, pairs)
    rates = numpy.tile([quiet_rate, quiet_rate * spec.burst_factor], pairs)
    ends = numpy.concatenate(([0.0], numpy.cumsum(lengths)))
    cumulated = numpy.concatenate(([0.0], numpy.cumsum(lengths * rates)))
    return numpy.interp(mean_times, cumulated, ends)


def _durations(
    spec: Synthetic, tasks: int, random: numpy.random.Generator
) -> NDArray[numpy.float64]:
    if spec.durations == "constant":
        return numpy.full(tasks, spec.task_s)
    if spec.durations == "exponential":
        return random.exponential(spec.task_s, tasks)
    exponent, ratio = spec.tail_exponent, spec.tail_ratio
    # Bounded Pareto from 1 to ratio, scaled to the mean.
    shares = 1 - random.random(tasks) * (1 - ratio**-exponent)
    drawn = shares ** (-1 / exponent)
    mean = (exponent / (exponent - 1)) * (1 - ratio ** (1 - exponent)) / (1 - ratio**-exponent)
    scaled: NDArray[numpy.float64] = drawn * (spec.task_s / mean)
    return scaled


def _entries(spec: Synthetic, entries: int, random: numpy.random.Generator) -> NDArray[numpy.int64]:
    if not spec.skew:
        return random.integers(0, entries, spec.jobs, dtype=numpy.int64)
    weights = 1 / numpy.arange(1, entries + 1) ** spec.skew
    return random.choice(entries, spec.jobs, p=weights / weights.sum()).astype(numpy.int64)
