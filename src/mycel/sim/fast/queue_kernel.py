"""Queues at the servers: the kernel of `random` (d = 0) and `power-of-d`."""

from __future__ import annotations

from .event_heap import ENDS_LANE, MESSAGES_LANE, Integers, below, compiled, next_event, pop, push
from .slot_run import Queues, SlotRun

READ, SEND, ENQUEUE, END = 0, 1, 2, 3


@compiled
def run_queues(run: SlotRun, queues: Queues, drawn: Integers, one_way_ns: int, d: int) -> None:
    """`drawn` has a row of `d` places for each task."""
    heap, random, free = run.heap, run.random, run.free
    arrival_ns, first_task, duration_ns = run.arrival_ns, run.first_task, run.duration_ns
    start_ns, end_ns, server_of = run.start_ns, run.end_ns, run.server
    counters = run.counters
    jobs, tasks, servers = len(arrival_ns), len(duration_ns), len(free)
    load, first, last, following = queues.load, queues.first, queues.last, queues.following
    job, now, unfinished = 0, 0, tasks
    while unfinished > 0:
        due_ns, where = next_event(heap)
        if job < jobs and arrival_ns[job] <= due_ns:
            now = arrival_ns[job]
            for task in range(first_task[job], first_task[job + 1]):
                if d == 0:
                    counters[0] += 1
                    push(
                        heap, MESSAGES_LANE, now + one_way_ns, task, below(random, servers), ENQUEUE
                    )
                else:
                    for number in range(d):
                        drawn[task, number] = below(random, servers)
                    counters[0] += 2 * d
                    push(heap, MESSAGES_LANE, now + one_way_ns, task, 0, READ)
            job += 1
            continue
        now, payload = due_ns, pop(heap, where)
        kind, task, server = payload & 15, payload >> 32, (payload >> 4) & 0xFFFFFFF
        if kind == READ:
            best = drawn[task, 0]
            for number in range(1, d):
                if load[drawn[task, number]] < load[best]:
                    best = drawn[task, number]
            push(heap, MESSAGES_LANE, now + one_way_ns, task, best, SEND)
            continue
        if kind == SEND:
            counters[0] += 1
            push(heap, MESSAGES_LANE, now + one_way_ns, task, server, ENQUEUE)
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
            push(heap, ENDS_LANE, now + duration_ns[task], task, 0, END)
