"""Late binding: the kernel of `sparrow`."""

from __future__ import annotations

import numpy
from numpy.typing import NDArray

from .event_heap import Heap, Integers, below, compiled, pop, push

RESERVE, BIND, START, END = 0, 1, 2, 3


@compiled
def run_sparrow(
    heap: Heap,
    random: NDArray[numpy.uint64],
    free: Integers,
    arrival_ns: Integers,
    first_task: Integers,
    duration_ns: Integers,
    one_way_ns: int,
    probes: int,
    start_ns: Integers,
    end_ns: Integers,
    server_of: Integers,
    counters: Integers,
) -> None:
    jobs, tasks, servers = len(arrival_ns), len(duration_ns), len(free)
    unbound = first_task[:-1].copy()
    # Reservations wait in linked lists; their records are used again.
    first = numpy.full(servers, -1, numpy.int64)
    last = numpy.full(servers, -1, numpy.int64)
    capacity = probes * tasks
    job_of = numpy.empty(capacity, numpy.int32)
    following = numpy.empty(capacity, numpy.int64)
    spare, used = -1, 0
    job, now, unfinished = 0, 0, tasks
    while unfinished > 0:
        if job < jobs and (heap.state[0] == 0 or arrival_ns[job] <= heap.time_ns[0]):
            now = arrival_ns[job]
            for _ in range(probes * (first_task[job + 1] - first_task[job])):
                counters[0] += 1
                push(heap, now + one_way_ns, job, below(random, servers), RESERVE)
            job += 1
            continue
        now, payload = pop(heap)
        kind, number, server = payload & 15, payload >> 32, (payload >> 4) & 0xFFFFFFF
        if kind == BIND:
            task = -1
            if unbound[number] < first_task[number + 1]:
                task = unbound[number]
                unbound[number] += 1
            counters[0] += 1
            push(heap, now + one_way_ns, task, server, START)
            continue
        if kind == START:
            if number >= 0:
                start_ns[number] = now
                server_of[number] = server
                push(heap, now + duration_ns[number], number, 0, END)
                continue
            free[server] += 1
        elif kind == END:
            end_ns[number] = now
            unfinished -= 1
            server = server_of[number]
            free[server] += 1
        else:
            if spare >= 0:
                record = spare
                spare = following[record]
            else:
                record = used
                used += 1
            job_of[record] = number
            following[record] = -1
            if first[server] < 0:
                first[server] = record
            else:
                following[last[server]] = record
            last[server] = record
        while first[server] >= 0 and free[server] > 0:
            record = first[server]
            first[server] = following[record]
            following[record] = spare
            spare = record
            free[server] -= 1
            counters[0] += 1
            push(heap, now + one_way_ns, job_of[record], server, BIND)
