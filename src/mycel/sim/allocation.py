"""How much of a cluster's GPUs a placement fills, if pods only arrive: the experiment of FGD.

Pods are drawn from the trace with replacement until they ask for a multiple of the GPUs there are,
and are placed one after the other. A pod that fits nowhere is dropped. The result is the share of
all GPUs that is allocated in the end. Compiled: a cluster of 1,500 nodes and 10,000 pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy
from numpy.typing import NDArray

from mycel.sim.fast.event_heap import compiled

from .entities import Capacity, Demand

Integers = NDArray[numpy.int64]
RULES: Final = {"random-fit": 0, "best-fit": 1, "fgd": 2}
"""Random takes any node, and any GPU of it, that fits. Best fit takes the node that is left with
least. FGD takes the node and GPU on which fragmentation grows least."""
GPUS_MAX: Final = 8


class Known(NamedTuple):
    """Growth of fragmentation by (node, kind), which stays true until the node changes."""

    is_known: NDArray[numpy.bool_]
    growth: NDArray[numpy.float64]
    gpu: Integers


def draw(pods: Sequence[Demand], gpus: int, inflation: float, seed: int) -> list[Demand]:
    """Until the pods ask for `inflation` times the GPUs."""
    random = numpy.random.Generator(numpy.random.PCG64(seed))
    wanted, asked, drawn = inflation * gpus * 1000, 0, []
    while asked < wanted:
        pod = pods[int(random.integers(len(pods)))]
        drawn.append(pod)
        asked += pod.gpus * pod.gpu_milli
    return drawn


def allocation_rate(
    nodes: Sequence[Capacity], pods: Sequence[Demand], kinds: Sequence[Demand], rule: str, seed: int
) -> float:
    """`kinds` are the pods of the workload that fragmentation is measured against."""
    counted = Counter(kinds)
    demands = sorted(set(pods) | set(counted), key=lambda one: (str(one), sorted(one.gpu_models)))
    number = {demand: n for n, demand in enumerate(demands)}
    models = sorted({node.gpu_model for node in nodes})
    kind = numpy.array(
        [[d.cores_milli, d.memory_mib, d.gpus, d.gpu_milli] for d in demands], numpy.int64
    )
    allowed = numpy.array(
        [[not d.gpu_models or model in d.gpu_models for model in models] for d in demands]
    )
    weight = numpy.array([counted[d] / len(kinds) for d in demands])
    free = numpy.array([[node.cores_milli, node.memory_mib] for node in nodes], numpy.int64)
    gpu_free = numpy.zeros((len(nodes), GPUS_MAX), numpy.int64)
    for row, node in enumerate(nodes):
        gpu_free[row, : node.gpus] = 1000
    model_of = numpy.array([models.index(node.gpu_model) for node in nodes], numpy.int64)
    sequence = numpy.array([number[pod] for pod in pods], numpy.int64)
    total = int(gpu_free.sum())
    draws = numpy.random.Generator(numpy.random.PCG64(seed)).random((len(pods),))
    known = Known(
        numpy.full((len(nodes), len(kind)), False),
        numpy.zeros((len(nodes), len(kind))),
        numpy.full((len(nodes), len(kind)), -1),
    )
    most = numpy.array([*numpy.maximum(1, free.max(axis=0)), 8000], numpy.int64)
    state = (free, gpu_free, model_of)
    _place_all(sequence, kind, allowed, weight, *state, RULES[rule], draws, known, most)
    return 1 - int(gpu_free.sum()) / total


@compiled
def _fits(
    kind: Integers,
    allowed: NDArray[numpy.bool_],
    cores: int,
    memory: int,
    gpus: Integers,
    model: int,
) -> bool:
    if cores < kind[0] or memory < kind[1]:
        return False
    if kind[2] == 0:
        return True
    if not allowed[model]:
        return False
    roomy = 0
    for gpu in range(len(gpus)):
        roomy += gpus[gpu] >= kind[3]
    return bool(roomy >= kind[2])


@compiled
def _fragments(
    kinds: Integers,
    allowed: NDArray[numpy.bool_],
    weight: NDArray[numpy.float64],
    cores: int,
    memory: int,
    gpus: Integers,
    model: int,
) -> float:
    total_free = gpus.sum()
    total = 0.0
    for number in range(len(kinds)):
        if weight[number] == 0.0:
            continue
        kind = kinds[number]
        if kind[2] == 0 or not _fits(kind, allowed[number], cores, memory, gpus, model):
            total += weight[number] * total_free
        else:
            small = 0
            for gpu in range(len(gpus)):
                if gpus[gpu] < kind[3]:
                    small += gpus[gpu]
            total += weight[number] * small
    return total


@compiled
def _take(kind: Integers, gpus: Integers, chosen: int) -> int:
    """Takes the chosen GPU, or the fullest that fit. Returns them as a mask."""
    mask = 0
    if kind[2] == 0:
        return 0
    if chosen >= 0:
        gpus[chosen] -= kind[3]
        return 1 << chosen
    for _ in range(kind[2]):
        best = -1
        for gpu in range(len(gpus)):
            if (mask >> gpu) & 1 or gpus[gpu] < kind[3]:
                continue
            if best < 0 or gpus[gpu] < gpus[best]:
                best = gpu
        gpus[best] -= kind[3]
        mask |= 1 << best
    return mask


@compiled
def _random_gpu(kind: Integers, gpus: Integers, draw: float) -> int:
    """One of the GPUs with room; `draw` is from 0 to 1."""
    roomy = 0
    for gpu in range(len(gpus)):
        roomy += gpus[gpu] >= kind[3]
    goal = int(draw * roomy)
    for gpu in range(len(gpus)):
        if gpus[gpu] >= kind[3]:
            if goal == 0:
                return gpu
            goal -= 1
    return -1


@compiled
def _growth(
    kind: Integers,
    kinds: Integers,
    allowed: NDArray[numpy.bool_],
    weight: NDArray[numpy.float64],
    free: Integers,
    gpus: Integers,
    model: int,
) -> tuple[float, int]:
    """The least growth of fragmentation on one node, and the GPU (-1: by best fit)."""
    before = _fragments(kinds, allowed, weight, free[0], free[1], gpus, model)
    cores, memory = free[0] - kind[0], free[1] - kind[1]
    if kind[2] == 1 and kind[3] < 1000:
        best, where = 1e18, -1
        for gpu in range(len(gpus)):
            if gpus[gpu] < kind[3]:
                continue
            gpus[gpu] -= kind[3]
            after = _fragments(kinds, allowed, weight, cores, memory, gpus, model)
            gpus[gpu] += kind[3]
            if after - before < best:
                best, where = after - before, gpu
        return best, where
    mask = _take(kind, gpus, -1)
    after = _fragments(kinds, allowed, weight, cores, memory, gpus, model)
    for gpu in range(len(gpus)):
        if (mask >> gpu) & 1:
            gpus[gpu] += kind[3]
    return after - before, -1


@compiled
def _place_all(
    sequence: Integers,
    kinds: Integers,
    allowed: NDArray[numpy.bool_],
    weight: NDArray[numpy.float64],
    free: Integers,
    gpu_free: Integers,
    model_of: Integers,
    rule: int,
    draws: NDArray[numpy.float64],
    found: Known,
    most: Integers,
) -> None:
    nodes = len(free)
    known, growth, where = found.is_known, found.growth, found.gpu
    for turn in range(len(sequence)):
        number = sequence[turn]
        kind = kinds[number]
        best, score, roomy = -1, 0.0, 0
        for node in range(nodes):
            gpus = gpu_free[node]
            if not _fits(kind, allowed[number], free[node, 0], free[node, 1], gpus, model_of[node]):
                continue
            roomy += 1
            if rule == 0:
                continue
            if rule == 1:
                left = (
                    (free[node, 0] - kind[0]) / most[0]
                    + (free[node, 1] - kind[1]) / most[1]
                    + (gpus.sum() - kind[2] * kind[3]) / most[2]
                )
            else:
                if not known[node, number]:
                    known[node, number] = True
                    growth[node, number], where[node, number] = _growth(
                        kind, kinds, allowed, weight, free[node], gpus, model_of[node]
                    )
                left = growth[node, number]
            if best < 0 or left < score:
                best, score = node, left
        if roomy == 0:
            continue
        if rule == 0:
            goal = int(draws[turn] * roomy)
            for node in range(nodes):
                if _fits(
                    kind,
                    allowed[number],
                    free[node, 0],
                    free[node, 1],
                    gpu_free[node],
                    model_of[node],
                ):
                    if goal == 0:
                        best = node
                        break
                    goal -= 1
        chosen = where[best, number] if rule == 2 else -1
        if rule == 0 and kind[2] == 1:
            chosen = _random_gpu(kind, gpu_free[best], draws[turn] * roomy % 1.0)
        _take(kind, gpu_free[best], chosen)
        free[best, 0] -= kind[0]
        free[best, 1] -= kind[1]
        known[best] = False
