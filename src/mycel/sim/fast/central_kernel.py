"""One FIFO queue over all slots: the kernel of `central-fifo`."""

from __future__ import annotations

from .event_heap import ENDS_LANE, MESSAGES_LANE, compiled, next_event, pop, push
from .slot_run import SlotRun

LAUNCH, END, NOTICE = 0, 1, 2


@compiled
def run_central(run: SlotRun, one_way_ns: int) -> None:
    heap, free = run.heap, run.free
    arrival_ns, first_task, duration_ns = run.arrival_ns, run.first_task, run.duration_ns
    start_ns, end_ns, server_of = run.start_ns, run.end_ns, run.server
    counters = run.counters
    jobs, tasks, servers = len(arrival_ns), len(duration_ns), len(free)
    total_free = run.free.sum()
    job, now, head, tail, cursor, unfinished = 0, 0, 0, 0, 0, tasks
    while unfinished > 0:
        due_ns, where = next_event(heap)
        if job < jobs and arrival_ns[job] <= due_ns:
            now = arrival_ns[job]
            tail = first_task[job + 1]
            job += 1
        else:
            now, payload = due_ns, pop(heap, where)
            kind, task = payload & 15, payload >> 32
            if kind == LAUNCH:
                start_ns[task] = now
                push(heap, ENDS_LANE, now + duration_ns[task], task, 0, END)
                continue
            if kind == END:
                end_ns[task] = now
                unfinished -= 1
                counters[1] += 1
                push(heap, MESSAGES_LANE, now + one_way_ns, task, 0, NOTICE)
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
            push(heap, MESSAGES_LANE, now + one_way_ns, head, 0, LAUNCH)
            head += 1
