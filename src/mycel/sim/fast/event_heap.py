"""The event heap and the random numbers of the kernels."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar, cast

import numba
import numpy
from numpy.typing import NDArray

Integers = NDArray[numpy.int64]
P = ParamSpec("P")
R = TypeVar("R")
_config: Any = numba.config


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """numba's `njit`, cached, with the types that numba does not tell.

    Without its reference counts, which cost several times what the events do. So a kernel makes no
    array: its caller makes them all, and keeps them until it returns."""
    before, _config.CACHE_DIR = _config.CACHE_DIR, _cache_folder()
    try:
        try:
            return _compiled(function, cache=True)
        except RuntimeError:  # no folder to keep it in: a sandbox without a home
            return _compiled(function, cache=False)
    finally:
        _config.CACHE_DIR = before


def _compiled(function: Callable[P, R], **options: Any) -> Callable[P, R]:
    options["_nrt"] = False
    return cast("Callable[P, R]", numba.njit(**options)(function))


@functools.cache
def _cache_folder() -> str:
    """A folder for each state of the kernels: numba looks only at the file of a function, and
    would go on using what was compiled with a callee that another file has changed since."""
    base = _config.CACHE_DIR
    if not base:
        try:
            cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
        except RuntimeError:
            return ""  # no home folder: numba finds a place, or compiles each time
        base = str(cache / "mycel" / "kernels")
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return str(Path(base) / digest.hexdigest()[:16])


class Heap(NamedTuple):
    """Events by (time, order of pushing). A payload packs (a, b, kind).

    Beside the heap there are two lanes, rings of events whose times only grow: messages with one
    constant delay need no heap, nor do the ends of tasks of one length. What does not follow the
    last event of its lane, or finds it full, goes into the heap, so a lane changes only the cost.
    """

    heap: Integers
    """Rows of (time, order, payload)."""
    lanes: Integers
    """The same, for each lane."""
    state: Integers


TIME_NS, ORDER, PAYLOAD = 0, 1, 2
MESSAGES_LANE, ENDS_LANE = 0, 1
LANE_LENGTH: Final = 1 << 17
# Fields of `state`: events in the heap, orders given, events popped, and of each lane: the place of
# its first event, and how many.
SIZE, ORDERS, POPPED, LANES = 0, 1, 2, 3
NEVER_NS: Final = 1 << 62


def make_heap(capacity: int) -> Heap:
    length = 1
    while length < min(capacity, LANE_LENGTH):
        length *= 2
    return Heap(
        numpy.empty((capacity, 3), numpy.int64),
        numpy.empty((2, length, 3), numpy.int64),
        numpy.zeros(LANES + 4, numpy.int64),
    )


@compiled
def push(heap: Heap, lane: int, time_ns: int, a: int, b: int, kind: int) -> None:
    """`a` below 2³¹, `b` below 2²⁸, kinds below 16."""
    events, lanes, state = heap.heap, heap.lanes, heap.state
    state[ORDERS] += 1
    order, payload = state[ORDERS], (a << 32) | (b << 4) | kind
    begin, size = state[LANES + 2 * lane], state[LANES + 2 * lane + 1]
    last = lanes.shape[1] - 1
    if size <= last and (size == 0 or lanes[lane, (begin + size - 1) & last, TIME_NS] <= time_ns):
        place = (begin + size) & last
        lanes[lane, place, TIME_NS] = time_ns
        lanes[lane, place, ORDER] = order
        lanes[lane, place, PAYLOAD] = payload
        state[LANES + 2 * lane + 1] += 1
        return
    place = state[SIZE]
    if place >= len(events):
        raise MemoryError("the event heap is full")
    state[SIZE] += 1
    # Later orders lose ties, so only the time decides while sifting up.
    while place > 0:
        parent = (place - 1) >> 2
        if events[parent, TIME_NS] <= time_ns:
            break
        events[place, TIME_NS] = events[parent, TIME_NS]
        events[place, ORDER] = events[parent, ORDER]
        events[place, PAYLOAD] = events[parent, PAYLOAD]
        place = parent
    events[place, TIME_NS] = time_ns
    events[place, ORDER] = order
    events[place, PAYLOAD] = payload


@compiled
def next_event(heap: Heap) -> tuple[int, int]:
    """When the first event is due (`NEVER_NS` if there is none), and where it is, for `pop`."""
    events, lanes, state = heap.heap, heap.lanes, heap.state
    time_ns, order, where = NEVER_NS, 0, -1
    if state[SIZE] > 0:
        time_ns, order = events[0, TIME_NS], events[0, ORDER]
    for lane in range(2):
        if state[LANES + 2 * lane + 1] > 0:
            begin = state[LANES + 2 * lane]
            other_ns, other_order = lanes[lane, begin, TIME_NS], lanes[lane, begin, ORDER]
            if other_ns < time_ns or (other_ns == time_ns and other_order < order):
                time_ns, order, where = other_ns, other_order, lane
    return time_ns, where


@compiled
def pop(heap: Heap, where: int) -> int:
    """The payload of the first event, which `next_event` has found there."""
    events, lanes, state = heap.heap, heap.lanes, heap.state
    state[POPPED] += 1
    if where >= 0:
        begin = state[LANES + 2 * where]
        state[LANES + 2 * where] = (begin + 1) & (lanes.shape[1] - 1)
        state[LANES + 2 * where + 1] -= 1
        return int(lanes[where, begin, PAYLOAD])
    payload = int(events[0, PAYLOAD])
    state[SIZE] -= 1
    size = state[SIZE]
    last_ns, last_order, last_payload = events[size, 0], events[size, 1], events[size, 2]
    place = 0
    while True:  # four children per node: fewer cache misses
        child = 4 * place + 1
        if child >= size:
            break
        best, best_ns, best_order = child, events[child, TIME_NS], events[child, ORDER]
        for other in range(child + 1, min(child + 4, size)):
            other_ns = events[other, TIME_NS]
            if other_ns < best_ns or (other_ns == best_ns and events[other, ORDER] < best_order):
                best, best_ns, best_order = other, other_ns, events[other, ORDER]
        if best_ns > last_ns or (best_ns == last_ns and best_order > last_order):
            break
        events[place, TIME_NS] = best_ns
        events[place, ORDER] = best_order
        events[place, PAYLOAD] = events[best, PAYLOAD]
        place = best
    events[place, TIME_NS] = last_ns
    events[place, ORDER] = last_order
    events[place, PAYLOAD] = last_payload
    return payload


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
