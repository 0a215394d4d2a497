"""Late binding: the kernel of `sparrow`."""

from __future__ import annotations

from .event_heap import ENDS_LANE, MESSAGES_LANE, Integers, below, compiled, next_event, pop, push
from .slot_run import Queues, SlotRun

RESERVE, BIND, START, END = 0, 1, 2, 3


@compiled
def run_sparrow(
    run: SlotRun, queues: Queues, unbound: Integers, job_of: Integers, one_way_ns: int, probes: int
) -> None:
    """Reservations wait in the queues. `unbound` is the next task of each job, `job_of` the job of
    each reservation, whose records are used again."""
    heap, random, free = run.heap, run.random, run.free
    arrival_ns, first_task, duration_ns = run.arrival_ns, run.first_task, run.duration_ns
    start_ns, end_ns, server_of = run.start_ns, run.end_ns, run.server
    counters = run.counters
    jobs, tasks, servers = len(arrival_ns), len(duration_ns), len(free)
    first, last, following = queues.first, queues.last, queues.following
    spare, used = -1, 0
    job, now, unfinished = 0, 0, tasks
    while unfinished > 0:
        due_ns, where = next_event(heap)
        if job < jobs and arrival_ns[job] <= due_ns:
            now = arrival_ns[job]
            for _ in range(probes * (first_task[job + 1] - first_task[job])):
                counters[0] += 1
                push(heap, MESSAGES_LANE, now + one_way_ns, job, below(random, servers), RESERVE)
            job += 1
            continue
        now, payload = due_ns, pop(heap, where)
        kind, number, server = payload & 15, payload >> 32, (payload >> 4) & 0xFFFFFFF
        if kind == BIND:
            task = -1
            if unbound[number] < first_task[number + 1]:
                task = unbound[number]
                unbound[number] += 1
            counters[0] += 1
            push(heap, MESSAGES_LANE, now + one_way_ns, task, server, START)
            continue
        if kind == START:
            if number >= 0:
                start_ns[number] = now
                server_of[number] = server
                push(heap, ENDS_LANE, now + duration_ns[number], number, 0, END)
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
            push(heap, MESSAGES_LANE, now + one_way_ns, job_of[record], server, BIND)
