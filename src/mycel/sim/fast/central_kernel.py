"""One FIFO queue over all slots: the kernel of `central-fifo`."""

from __future__ import annotations

import numpy

from .event_heap import Heap, Integers, compiled, pop, push

LAUNCH, END, NOTICE = 0, 1, 2


@compiled
def run_central(
    heap: Heap,
    free: Integers,
    arrival_ns: Integers,
    first_task: Integers,
    duration_ns: Integers,
    one_way_ns: int,
    start_ns: Integers,
    end_ns: Integers,
    server_of: Integers,
    counters: Integers,
) -> None:
    """`counters`: messages, completions."""
    jobs, tasks, servers = len(arrival_ns), len(duration_ns), len(free)
    total_free = free.sum()
    job, now, head, tail, cursor, unfinished = 0, 0, 0, 0, 0, tasks
    while unfinished > 0:
        if job < jobs and (heap.state[0] == 0 or arrival_ns[job] <= heap.time_ns[0]):
            now = arrival_ns[job]
            tail = first_task[job + 1]
            job += 1
        else:
            now, payload = pop(heap)
            kind, task = payload & 15, payload >> 32
            if kind == LAUNCH:
                start_ns[task] = now
                push(heap, now + duration_ns[task], task, 0, END)
                continue
            if kind == END:
                end_ns[task] = now
                unfinished -= 1
                counters[1] += 1
                push(heap, now + one_way_ns, task, 0, NOTICE)
                continue
            free[server_of[task]] += 1
            total_free += 1
        # Tasks wait in the order of their numbers: the queue is a range.
        while head < tail and total_free > 0:
            while free[cursor] == 0:
                cursor += 1
                if cursor == servers:
                    cursor = 0
            free[cursor] -= 1
            total_free -= 1
            server_of[head] = cursor
            counters[0] += 1
            push(heap, now + one_way_ns, head, 0, LAUNCH)
            head += 1
    assert numpy.all(end_ns >= start_ns)
