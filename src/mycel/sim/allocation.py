"""How much of a cluster's GPUs a placement fills: the experiment of FGD.

Pods are drawn from the trace with replacement until they ask for a multiple of the GPUs there are,
and are placed one after the other. A pod that fits nowhere is dropped. The result is the share of
all GPUs that is allocated in the end, or on average if pods also leave. Compiled: a cluster of
1,500 nodes and 10,000 pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy
from numpy.typing import NDArray

from mycel.sim.fast.event_heap import below, compiled

from .entities import Capacity, Demand
from .generator import Generator
from .policies.homes.homes_options import home_of

Integers = NDArray[numpy.int64]
Floats = NDArray[numpy.float64]
RANDOM, BEST_FIT, FGD = 0, 1, 2
RULES: Final = {"random-fit": RANDOM, "best-fit": BEST_FIT, "fgd": FGD}
"""Random takes any node, and any GPU of it, that fits. Best fit takes the node that is left with
least. FGD takes the node and GPU on which fragmentation grows least."""
GPUS_MAX: Final = 8
RANGE: Final = 1 << 53


class Tables(NamedTuple):
    """The kinds of pods."""

    kinds: Integers
    """Cores, memory, GPUs, share of each GPU."""
    allowed: NDArray[numpy.bool_]
    """By kind and GPU model."""
    weight: Floats


class Nodes(NamedTuple):
    free: Integers
    """Cores and memory."""
    gpu_free: Integers
    model: Integers
    home: Integers
    most: Integers
    """The largest node's cores and memory, and its GPU shares."""
    is_known: NDArray[numpy.bool_]
    """By node and kind: whether `growth` and `gpu` are true. They are, until the node changes."""
    growth: Floats
    gpu: Integers


class Run(NamedTuple):
    """By turn, if nothing else is said."""

    sequence: Integers
    placed: Integers
    mask: Integers
    """The GPUs taken."""
    order: Integers
    """The homes, as they are asked."""
    offers: int
    random: NDArray[numpy.uint64]
    first_leaving: Integers
    next_leaving: Integers
    """By pod."""
    measured_from: int
    best: Integers
    """By home: its best node in this turn."""
    score: Floats
    allocated_milli: Integers
    """Now, and the sum over the measured turns."""


class Offers(NamedTuple):
    """Nodes are shared among homes, and a pod goes to the best of some homes with room."""

    homes: int
    offers: int


EVERYWHERE: Final = Offers(1, 1)


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
    nodes: Sequence[Capacity],
    pods: Sequence[Demand],
    kinds: Sequence[Demand],
    rule: str,
    seed: int,
    *,
    offers: Offers = EVERYWHERE,
    mean_stay: float | None = None,
) -> float:
    """`kinds` are the pods of the workload that fragmentation is measured against. With
    `mean_stay`, pods leave after so many arrivals on average, and the rate is the mean over the
    second half of the arrivals; without, it is the rate in the end."""
    counted = Counter(kinds)
    demands = sorted(set(pods) | set(counted), key=lambda one: (str(one), sorted(one.gpu_models)))
    number = {demand: n for n, demand in enumerate(demands)}
    models = sorted({node.gpu_model for node in nodes})
    tables = Tables(
        numpy.array(
            [[d.cores_milli, d.memory_mib, d.gpus, d.gpu_milli] for d in demands], numpy.int64
        ),
        numpy.array(
            [[not d.gpu_models or model in d.gpu_models for model in models] for d in demands]
        ),
        numpy.array([counted[d] / len(kinds) for d in demands]),
    )
    sequence = numpy.array([number[pod] for pod in pods], numpy.int64)
    run = _make_run(sequence, offers, mean_stay, seed)
    _place_all(tables, _make_nodes(nodes, models, len(demands), offers), run, RULES[rule])
    now, summed = (int(one) for one in run.allocated_milli)
    total = 1000 * sum(node.gpus for node in nodes)
    measured = len(sequence) - run.measured_from
    return now / total if mean_stay is None else summed / measured / total


def _make_nodes(
    nodes: Sequence[Capacity], models: Sequence[str], kinds: int, offers: Offers
) -> Nodes:
    free = numpy.array([[node.cores_milli, node.memory_mib] for node in nodes], numpy.int64)
    gpu_free = numpy.zeros((len(nodes), GPUS_MAX), numpy.int64)
    for row, node in enumerate(nodes):
        gpu_free[row, : node.gpus] = 1000
    return Nodes(
        free=free,
        gpu_free=gpu_free,
        model=numpy.array([models.index(node.gpu_model) for node in nodes], numpy.int64),
        home=numpy.array([home_of(row, offers.homes) for row in range(len(nodes))], numpy.int64),
        most=numpy.array([*numpy.maximum(1, free.max(axis=0)), 1000 * GPUS_MAX], numpy.int64),
        is_known=numpy.full((len(nodes), kinds), False),
        growth=numpy.zeros((len(nodes), kinds)),
        gpu=numpy.full((len(nodes), kinds), -1),
    )


def _make_run(sequence: Integers, offers: Offers, mean_stay: float | None, seed: int) -> Run:
    turns = len(sequence)
    random = numpy.random.Generator(numpy.random.PCG64(seed))
    first_leaving = numpy.full(turns, -1, numpy.int64)
    next_leaving = numpy.full(turns, -1, numpy.int64)
    if mean_stay is not None:
        leaves = numpy.arange(turns) + 1 + random.exponential(mean_stay, turns).astype(numpy.int64)
        for pod in numpy.flatnonzero(leaves < turns).tolist():
            next_leaving[pod] = first_leaving[leaves[pod]]
            first_leaving[leaves[pod]] = pod
    return Run(
        sequence=sequence,
        placed=numpy.full(turns, -1, numpy.int64),
        mask=numpy.zeros(turns, numpy.int64),
        order=random.random((turns, offers.homes)).argsort(axis=1),
        offers=offers.offers,
        random=numpy.array([Generator(seed).state], numpy.uint64),
        first_leaving=first_leaving,
        next_leaving=next_leaving,
        measured_from=turns // 2,
        best=numpy.full(offers.homes, -1, numpy.int64),
        score=numpy.zeros(offers.homes),
        allocated_milli=numpy.zeros(2, numpy.int64),
    )


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
def _place_all(tables: Tables, cluster: Nodes, run: Run, rule: int) -> None:
    kinds, allowed, weight = tables.kinds, tables.allowed, tables.weight
    free, gpu_free, model_of = cluster.free, cluster.gpu_free, cluster.model
    nodes, homes = len(free), run.score.shape[0]
    for turn in range(len(run.sequence)):
        leaving = run.first_leaving[turn]
        while leaving >= 0:
            _leave(tables, cluster, run, leaving)
            leaving = run.next_leaving[leaving]
        number = run.sequence[turn]
        kind = kinds[number]
        run.best[:] = -1
        roomy = 0
        for node in range(nodes):
            gpus = gpu_free[node]
            if not _fits(kind, allowed[number], free[node, 0], free[node, 1], gpus, model_of[node]):
                continue
            roomy += 1
            if rule == RANDOM:
                left = float(below(run.random, RANGE))
            elif rule == BEST_FIT:
                left = (
                    (free[node, 0] - kind[0]) / cluster.most[0]
                    + (free[node, 1] - kind[1]) / cluster.most[1]
                    + (gpus.sum() - kind[2] * kind[3]) / cluster.most[2]
                )
            else:
                if not cluster.is_known[node, number]:
                    cluster.is_known[node, number] = True
                    growth, gpu = _growth(
                        kind, kinds, allowed, weight, free[node], gpus, model_of[node]
                    )
                    cluster.growth[node, number], cluster.gpu[node, number] = growth, gpu
                left = cluster.growth[node, number]
            home = cluster.home[node]
            if run.best[home] < 0 or left < run.score[home]:
                run.best[home], run.score[home] = node, left
        run.placed[turn] = -1
        if roomy > 0:
            best = _best_offer(run, turn, homes)
            chosen = cluster.gpu[best, number] if rule == FGD else -1
            if rule == RANDOM and kind[2] == 1:
                chosen = _random_gpu(kind, gpu_free[best], below(run.random, RANGE) / RANGE)
            run.placed[turn] = best
            run.mask[turn] = _take(kind, gpu_free[best], chosen)
            free[best, 0] -= kind[0]
            free[best, 1] -= kind[1]
            cluster.is_known[best] = False
            run.allocated_milli[0] += kind[2] * kind[3]
        if turn >= run.measured_from:
            run.allocated_milli[1] += run.allocated_milli[0]


@compiled
def _best_offer(run: Run, turn: int, homes: int) -> int:
    """Of the first homes in the pod's order that have room."""
    best, score, offers = -1, 0.0, 0
    for step in range(homes):
        home = run.order[turn, step]
        if run.best[home] < 0:
            continue
        offers += 1
        if best < 0 or run.score[home] < score:
            best, score = run.best[home], run.score[home]
        if offers == run.offers:
            break
    return best


@compiled
def _leave(tables: Tables, cluster: Nodes, run: Run, turn: int) -> None:
    node = run.placed[turn]
    if node < 0:
        return
    kind = tables.kinds[run.sequence[turn]]
    cluster.free[node, 0] += kind[0]
    cluster.free[node, 1] += kind[1]
    for gpu in range(GPUS_MAX):
        if (run.mask[turn] >> gpu) & 1:
            cluster.gpu_free[node, gpu] += kind[3]
    cluster.is_known[node] = False
    run.allocated_milli[0] -= kind[2] * kind[3]
