"""The event heap and the random numbers of the kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, ParamSpec, TypeVar, cast

import numpy
from numba import njit
from numpy.typing import NDArray

Integers = NDArray[numpy.int64]
P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """numba's `njit`, with the types that numba does not tell."""
    return cast("Callable[P, R]", njit(cache=True)(function))


class Heap(NamedTuple):
    """Ordered by (time, order of pushing). A payload packs (a, b, kind)."""

    time_ns: Integers
    order: Integers
    payload: Integers
    state: Integers
    """Size, orders given, events popped."""


def make_heap(capacity: int) -> Heap:
    return Heap(
        numpy.empty(capacity, numpy.int64),
        numpy.empty(capacity, numpy.int64),
        numpy.empty(capacity, numpy.int64),
        numpy.zeros(3, numpy.int64),
    )


@compiled
def push(heap: Heap, time_ns: int, a: int, b: int, kind: int) -> None:
    """`a` below 2³¹, `b` below 2²⁸, kinds below 16."""
    times, orders, payloads, state = heap.time_ns, heap.order, heap.payload, heap.state
    place = state[0]
    if place >= len(times):
        raise MemoryError("the event heap is full")
    state[0] += 1
    state[1] += 1
    order = state[1]
    # Later orders lose ties, so only the time decides while sifting up.
    while place > 0:
        parent = (place - 1) >> 2
        if times[parent] <= time_ns:
            break
        times[place] = times[parent]
        orders[place] = orders[parent]
        payloads[place] = payloads[parent]
        place = parent
    times[place] = time_ns
    orders[place] = order
    payloads[place] = (a << 32) | (b << 4) | kind


@compiled
def pop(heap: Heap) -> tuple[int, int]:
    """Time and payload of the first event. Four children per node: fewer cache misses."""
    times, orders, payloads, state = heap.time_ns, heap.order, heap.payload, heap.state
    time_ns, payload = times[0], payloads[0]
    state[0] -= 1
    state[2] += 1
    size = state[0]
    last_time, last_order, last_payload = times[size], orders[size], payloads[size]
    place = 0
    while True:
        child = 4 * place + 1
        if child >= size:
            break
        best = child
        for other in range(child + 1, min(child + 4, size)):
            if times[other] < times[best] or (
                times[other] == times[best] and orders[other] < orders[best]
            ):
                best = other
        if times[best] > last_time or (times[best] == last_time and orders[best] > last_order):
            break
        times[place] = times[best]
        orders[place] = orders[best]
        payloads[place] = payloads[best]
        place = best
    times[place] = last_time
    orders[place] = last_order
    payloads[place] = last_payload
    return time_ns, payload


@compiled
def mix(value: numpy.uint64) -> numpy.uint64:
    value = (value ^ (value >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return value ^ (value >> numpy.uint64(31))


@compiled
def below(random: NDArray[numpy.uint64], limit: int) -> int:
    """As `Generator.below`."""
    random[0] += numpy.uint64(0x9E3779B97F4A7C15)
    drawn = mix(random[0]) % numpy.uint64(limit)
    return int(drawn)
