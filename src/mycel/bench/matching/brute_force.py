"""The rules of selection once more, in the plainest way: every worker is looked at, every time.

It shares no code with `core.matching` and none of its indexes; it is what the matching engine
has to agree with. The rules are those of the documentation:

    filter     the whole requirement, healthy; a far worker only if no closer one takes it
    order      those with room first, then by the algorithm
    tie-break  a local one, one that is linked already, then the strategy
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mycel.core.model.resources import Capabilities, Free, GpuRequirement, Requirements
from mycel.core.model.work import Shape


@dataclass
class Record:
    """A worker as the plain matcher keeps it."""

    key: str
    place: int
    """Its place in the round."""
    capabilities: Capabilities
    free: Free
    running: int = 0
    assigned: list[tuple[Requirements, int]] = field(default_factory=list)
    linked: bool = True
    local: bool = False
    available: bool = True
    rtt_seconds: float | None = None
    success_rate: float | None = None
    relative_seconds: float = 1.0
    has_run: set[Shape] = field(default_factory=set)


@dataclass
class Rules:
    algorithm: str = "best"
    strategy: str = "least-loaded"
    load_metric: str = "task-count"
    prefer_local_workers: bool = True
    max_network_latency_seconds: float = 0.1


def choices(workers: Sequence[Record], shape: Shape, rules: Rules, last_turn: int = -1) -> set[str]:
    """All workers that may be chosen: the best, and its equals. `last_turn` is the place in
    the round that had the last turn."""
    able = [one for one in workers if is_able(one.capabilities, shape)]
    far_from = rules.max_network_latency_seconds
    able = [one for one in able if one.available]
    left = [one for one in able if one.rtt_seconds is None or one.rtt_seconds <= far_from] or able
    with_room = [one for one in left if has_room(one, taken_by(shape))]
    left = with_room or left
    if not left:
        return set()
    mean = mean_score(workers)
    if rules.algorithm == "round-robin":
        left = [min(left, key=lambda one: (one.place <= last_turn, one.place))]
    elif rules.algorithm == "capability-based":
        left = _least(left, lambda one: load(one, rules.load_metric))
    elif rules.algorithm == "performance-aware":
        left = _quickest(left, mean)
    else:
        left = _least(left, lambda one: weight(one, shape))
    if rules.prefer_local_workers:
        left = [one for one in left if one.local] or left
    left = [one for one in left if one.linked] or left
    if rules.strategy == "least-loaded":
        left = _least(left, lambda one: load(one, rules.load_metric))
    elif rules.strategy == "performance":
        left = _quickest(left, mean)
    return {one.key for one in left}


def _least(workers: list[Record], key: Callable[[Record], int]) -> list[Record]:
    lowest = min(map(key, workers))
    return [one for one in workers if key(one) == lowest]


# The whole requirement


def is_able(has: Capabilities, shape: Shape) -> bool:
    need = shape.requirements
    amounts, labels = dict(has.custom), dict(has.labels)
    return (
        shape.driver in has.drivers
        and (shape.driver != "model" or shape.model in has.models)
        and round(need.cpu_cores * 1000) <= round(has.cpu_cores * 1000)
        and need.min_memory <= has.memory
        and need.disk <= has.disk
        and (need.gpus is None or _gpus_able(has, need.gpus))
        and all(amounts.get(name, 0.0) >= amount - 5e-7 for name, amount in need.custom)
        and need.arch in ("", has.arch)
        and need.os in ("", has.os)
        and all(labels.get(name) == value for name, value in need.labels)
        and all(_has_version(has, name, wanted) for name, wanted in need.software)
        and (shape.max_cost is None or has.price.floor <= shape.max_cost)
        and (not shape.sandbox or bool(has.sandbox))
        and (not shape.network or has.network)
    )


def _suits(wanted: GpuRequirement, model: str, memory: int) -> bool:
    return wanted.model in ("", model) and memory >= wanted.memory


def _gpus_able(has: Capabilities, wanted: GpuRequirement) -> bool:
    suiting = [gpu for gpu in has.gpus if _suits(wanted, gpu.model, gpu.memory)]
    return len(suiting) >= max(1, wanted.count)


def _has_version(has: Capabilities, name: str, wanted: str) -> bool:
    versions = [version for program, version in has.software if program == name]
    return bool(versions) and all(_compares(versions[0], part) for part in wanted.split(","))


def _compares(version: str, condition: str) -> bool:
    text = condition.strip()
    sign = text.rstrip("0123456789.v ")
    have, need = _numbers(version), _numbers(text[len(sign) :])
    difference = (have > need) - (have < need)
    return {
        "": difference == 0,
        "==": difference == 0,
        "!=": difference != 0,
        ">": difference > 0,
        ">=": difference >= 0,
        "<": difference < 0,
        "<=": difference <= 0,
    }[sign]


def _numbers(text: str) -> list[int]:
    numbers = [int(part) for part in text.strip().lstrip("v").split(".")]
    return numbers + [0] * (8 - len(numbers))


# Room


def expected_free(one: Record) -> tuple[int, int, int, list[int], dict[str, float]]:
    """What is free once all is granted that was asked for, booked task by task."""
    cpu, memory, disk = one.free.cpu_millis, one.free.memory, one.free.disk
    gpus, custom = list(one.free.gpu_millis), dict(one.free.custom)
    for need, slots in one.assigned:
        for _ in range(slots):
            cpu = max(0, cpu - round(need.cpu_cores * 1000))
            memory = max(0, memory - need.min_memory)
            disk = max(0, disk - need.disk)
            for name, amount in need.custom:
                if name in custom:
                    custom[name] = max(0.0, custom[name] - amount)
            for index, share in _gpus_taken(one, need.gpus, gpus):
                gpus[index] -= share
    return cpu, memory, disk, gpus, custom


def _gpus_taken(
    one: Record, wanted: GpuRequirement | None, free: list[int]
) -> list[tuple[int, int]]:
    if wanted is None:
        return []
    suiting = [
        index
        for index, gpu in enumerate(one.capabilities.gpus)
        if _suits(wanted, gpu.model, gpu.memory)
    ]
    if wanted.count >= 1:
        whole = [index for index in suiting if free[index] == 1000]
        return [(index, 1000) for index in whole[: int(wanted.count)]]
    share = round(wanted.count * 1000)
    open_ones = [index for index in suiting if free[index] >= share]
    return [(min(open_ones, key=lambda index: (free[index], index)), share)] if open_ones else []


def taken_by(shape: Shape) -> Requirements:
    """A request to a model takes one of its slots, and nothing else."""
    if shape.driver == "model":
        return Requirements(custom=((f"model:{shape.model}", 1.0),))
    return shape.requirements


def has_room(one: Record, need: Requirements) -> bool:
    cpu, memory, disk, gpus, custom = expected_free(one)
    wanted = need.gpus
    count = 0 if wanted is None else max(1, int(wanted.count))
    return (
        round(need.cpu_cores * 1000) <= cpu
        and need.min_memory <= memory
        and need.disk <= disk
        and all(custom.get(name, 0.0) >= amount - 5e-7 for name, amount in need.custom)
        and len(_gpus_taken(one, wanted, gpus)) >= count
    )


# Load


def load(one: Record, metric: str) -> int:
    if metric == "task-count":
        return _task_step(one.running + sum(slots for _, slots in one.assigned))
    cpu, memory, _, _, _ = expected_free(one)
    if metric == "cpu-usage":
        return _sixteenths(round(one.capabilities.cpu_cores * 1000), cpu)
    return _sixteenths(one.capabilities.memory, memory)


def _task_step(tasks: int) -> int:
    """Each number up to 7 is a step of its own, then there are four to each doubling."""
    step, bound, width = 0, 1, 1
    while tasks >= bound:
        if bound >= 8 and bound & (bound - 1) == 0:
            width = bound // 4
        bound += width
        step += 1
    return step


def _sixteenths(total: int, free: int) -> int:
    return max(0, total - free) * 16 // total if total > 0 else 16


# History


def score(one: Record) -> float | None:
    if one.success_rate is None:
        return None
    return min(1e6, max(1e-6, one.success_rate / max(1e-6, one.relative_seconds)))


def step_of(value: float) -> int:
    """Scores in steps of a quarter of 10 %."""
    return round(4 * math.log(value) / math.log(1.1))


def mean_score(workers: Sequence[Record]) -> int:
    scores = [value for value in map(score, workers) if value is not None]
    return step_of(max(1e-6, sum(scores) / len(scores))) if scores else 0


def _quickest(workers: list[Record], mean: int) -> list[Record]:
    def step(one: Record) -> int:
        value = score(one)
        return mean if value is None else step_of(value)

    highest = max(map(step, workers))
    return [one for one in workers if step(one) >= highest - 4]


# What `best` weighs


def weight(one: Record, shape: Shape) -> int:
    return (
        _burden(one)
        + _fit_weight(one.capabilities, shape.requirements)
        + (0 if shape in one.has_run else 1)
    )


def _burden(one: Record) -> int:
    """For a task of one core, 1 GB and one second, in quarters of a doubling above 1 ms."""
    cpu, memory, _, gpus, _ = expected_free(one)
    has, price = one.capabilities, one.capabilities.price
    cores = round(has.cpu_cores * 1000)
    shares = [
        1.0 - cpu / cores if cores > 0 else 0.0,
        1.0 - memory / has.memory if has.memory > 0 else 0.0,
        1.0 - sum(gpus) / (1000 * len(gpus)) if gpus else 0.0,
    ]
    taken = max(shares)
    value = score(one)
    slower = 0.0 if value is None else min(10.0, 1.0 / value) - 1.0
    hour = (price.cpu_core_hour * 1.0 + price.memory_gb_hour * 1.0 + price.gpu_hour * 0.0) * (
        1.0 + price.surge * min(1.0, max(0.0, taken))
    )
    rtt = 0.05 if one.rtt_seconds is None else one.rtt_seconds
    seconds = (
        0.1 * taken
        + 1.0 * slower
        + 3600.0 * max(price.floor, hour / 3600.0)
        + 2.0 * rtt
        + (0.0 if one.linked else 0.2)
    )
    level = round(4 * math.log2(1.0 + abs(seconds) / 0.001))
    return level if seconds >= 0.0 else -level


def _fit_weight(has: Capabilities, need: Requirements) -> int:
    largest = max((gpu.memory for gpu in has.gpus), default=0)
    unwanted = 2 if largest else 0
    gpu = unwanted if need.gpus is None else _doublings(largest, need.gpus.memory)
    return 2 * gpu + _doublings(has.memory, need.min_memory)


def _doublings(has: int, need: int) -> int:
    """How many powers of two lie between, at most two; needs below 8 GiB count as that."""
    bound = 2**33
    while bound <= max(need, 2**33):
        bound *= 2
    return (has >= bound) + (has >= 2 * bound)
