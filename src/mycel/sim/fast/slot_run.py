"""The arrays of one run that the slot kernels share."""

from __future__ import annotations

from typing import NamedTuple

import numpy
from numpy.typing import NDArray

from .event_heap import Heap, Integers


class SlotRun(NamedTuple):
    heap: Heap
    random: NDArray[numpy.uint64]
    free: Integers
    """Of each server: slots."""
    arrival_ns: Integers
    first_task: Integers
    duration_ns: Integers
    start_ns: Integers
    end_ns: Integers
    server: Integers
    counters: Integers
    """Messages, completions; homes add forwarded tasks and withdrawals."""


class Queues(NamedTuple):
    """At each server a queue, linked through records that are tasks or reservations."""

    first: Integers
    last: Integers
    following: Integers
    load: Integers
    """Tasks that run or wait there."""


def make_queues(servers: int, records: int) -> Queues:
    return Queues(
        numpy.full(servers, -1, numpy.int64),
        numpy.full(servers, -1, numpy.int64),
        numpy.full(records, -1, numpy.int64),
        numpy.zeros(servers, numpy.int64),
    )
