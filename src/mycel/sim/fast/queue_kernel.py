"""Queues at the servers: the kernel of `random` (d = 0) and `power-of-d`."""

from __future__ import annotations

import numpy
from numpy.typing import NDArray

from .event_heap import Heap, Integers, below, compiled, pop, push

READ, SEND, ENQUEUE, END = 0, 1, 2, 3


@compiled
def run_queues(
    heap: Heap,
    random: NDArray[numpy.uint64],
    free: Integers,
    arrival_ns: Integers,
    first_task: Integers,
    duration_ns: Integers,
    one_way_ns: int,
    d: int,
    start_ns: Integers,
    end_ns: Integers,
    server_of: Integers,
    counters: Integers,
) -> None:
    jobs, tasks, servers = len(arrival_ns), len(duration_ns), len(free)
    drawn = numpy.empty((tasks if d > 0 else 0, max(d, 1)), numpy.int32)
    load = numpy.zeros(servers, numpy.int64)
    # The queue of each server is a linked list through its tasks.
    first = numpy.full(servers, -1, numpy.int64)
    last = numpy.full(servers, -1, numpy.int64)
    following = numpy.full(tasks, -1, numpy.int64)
    job, now, unfinished = 0, 0, tasks
    while unfinished > 0:
        if job < jobs and (heap.state[0] == 0 or arrival_ns[job] <= heap.time_ns[0]):
            now = arrival_ns[job]
            for task in range(first_task[job], first_task[job + 1]):
                if d == 0:
                    counters[0] += 1
                    push(heap, now + one_way_ns, task, below(random, servers), ENQUEUE)
                else:
                    for number in range(d):
                        drawn[task, number] = below(random, servers)
                    counters[0] += 2 * d
                    push(heap, now + one_way_ns, task, 0, READ)
            job += 1
            continue
        now, payload = pop(heap)
        kind, task, server = payload & 15, payload >> 32, (payload >> 4) & 0xFFFFFFF
        if kind == READ:
            best = drawn[task, 0]
            for number in range(1, d):
                if load[drawn[task, number]] < load[best]:
                    best = drawn[task, number]
            push(heap, now + one_way_ns, task, best, SEND)
            continue
        if kind == SEND:
            counters[0] += 1
            push(heap, now + one_way_ns, task, server, ENQUEUE)
            continue
        if kind == ENQUEUE:
            load[server] += 1
            server_of[task] = server
            if first[server] < 0:
                first[server] = task
            else:
                following[last[server]] = task
            last[server] = task
        else:
            end_ns[task] = now
            unfinished -= 1
            server = server_of[task]
            load[server] -= 1
            free[server] += 1
        while first[server] >= 0 and free[server] > 0:
            task = first[server]
            first[server] = following[task]
            free[server] -= 1
            start_ns[task] = now
            push(heap, now + duration_ns[task], task, 0, END)
