"""Run here or forward: the kernel of `homes`. `policies/homes` says what each message means.

homes_records   the arrays, the messages
homes_room      a home's own servers
homes_line      a home's line of wants
homes_origin    the scheduler of a job
"""

from __future__ import annotations

from .event_heap import (
    ENDS_LANE,
    MESSAGES_LANE,
    NEVER_NS,
    Integers,
    compiled,
    next_event,
    pop,
    push,
)
from .homes_line import asked_for, filled, requested, serve, withdrawn
from .homes_origin import answered, offered, place_job
from .homes_records import (
    ANSWER,
    ASK,
    BUSY_UNTIL,
    COLD,
    COLD_NS,
    COMPLETIONS,
    END,
    END_NS,
    FILL,
    FREE,
    FREE_SLOTS,
    HEARD,
    HEARD_NS,
    HOME,
    INBOX_FIRST,
    INBOX_LAST,
    JOB,
    KIND,
    MESSAGE,
    NEXT,
    NOTICE,
    OFFER,
    ONE_WAY_NS,
    PLACE_COUNT,
    PLACES,
    REQUEST,
    ROOM,
    RUN,
    SERVER,
    SHORT,
    SOURCE,
    START_NS,
    TARGET,
    TASK_COUNT,
    TASKS,
    UNANSWERED,
    WAKE,
    State,
)


@compiled
def deliver(state: State, now: int, message: int) -> None:
    record = state.message[message]
    kind, target, source, job = record[KIND], record[TARGET], record[SOURCE], record[JOB]
    tasks, task_count, places = record[TASKS], record[TASK_COUNT], record[PLACES]
    held, short, free = record[PLACE_COUNT], record[SHORT], record[FREE]
    record[KIND] = state.pools[1]
    state.pools[1] = message
    if kind == REQUEST:
        requested(state, now, target, source, job, tasks, task_count)
    elif kind == ANSWER:
        state.scheduler[target, UNANSWERED] -= 1
        state.pair[target, source, HEARD] = free
        state.pair[target, source, HEARD_NS] = now
        answered(state, now, target, source, job, tasks, task_count)
    elif kind == ASK:
        asked_for(state, now, target, source, job, short)
    elif kind == OFFER:
        state.pair[target, source, HEARD] = free
        state.pair[target, source, HEARD_NS] = now
        offered(state, now, target, source, job, places, held, short)
    elif kind == FILL:
        filled(state, now, target, places, tasks if task_count > 0 else -1)
    else:
        withdrawn(state, target, source)


@compiled
def read_inbox(state: State, now: int, target: int) -> None:
    while state.scheduler[target, INBOX_FIRST] >= 0:
        message = state.scheduler[target, INBOX_FIRST]
        record = state.message[message]
        if (
            state.scheduler[target, BUSY_UNTIL] <= now
            and record[COLD]
            and state.settings[COLD_NS] > 0
        ):
            record[COLD] = 0
            state.scheduler[target, BUSY_UNTIL] = now + state.settings[COLD_NS]
        if state.scheduler[target, BUSY_UNTIL] > now:
            push(state.heap, MESSAGES_LANE, state.scheduler[target, BUSY_UNTIL], target, 0, WAKE)
            return
        state.scheduler[target, INBOX_FIRST] = record[NEXT]
        deliver(state, now, message)


@compiled
def receive(state: State, now: int, message: int) -> None:
    target = state.message[message, TARGET]
    if state.scheduler[target, INBOX_FIRST] < 0:
        state.scheduler[target, INBOX_FIRST] = message
        state.scheduler[target, INBOX_LAST] = message
        read_inbox(state, now, target)
    else:
        state.message[state.scheduler[target, INBOX_LAST], NEXT] = message
        state.scheduler[target, INBOX_LAST] = message


@compiled
def run_homes(state: State, arrival_ns: Integers, duration_ns: Integers) -> None:
    heap = state.heap
    jobs, unfinished, job, now = len(arrival_ns), len(duration_ns), 0, 0
    while unfinished > 0:
        due_ns, where = next_event(heap)
        if job < jobs and arrival_ns[job] <= due_ns:
            now = arrival_ns[job]
            place_job(state, now, job)
            job += 1
            continue
        if due_ns == NEVER_NS:
            raise RuntimeError("tasks wait, and nothing more can happen")
        now, payload = due_ns, pop(heap, where)
        kind, number = payload & 15, payload >> 32
        if kind == RUN:
            state.task[number, START_NS] = now
            push(heap, ENDS_LANE, now + duration_ns[number], number, 0, END)
        elif kind == END:
            state.task[number, END_NS] = now
            unfinished -= 1
            state.counters[COMPLETIONS] += 1
            push(heap, MESSAGES_LANE, now + state.settings[ONE_WAY_NS], number, 0, NOTICE)
        elif kind == NOTICE:
            server = state.task[number, SERVER]
            home = state.server[server, HOME]
            state.server[server, FREE_SLOTS] += 1
            state.home[home, ROOM] += 1
            serve(state, now, home)
        elif kind == MESSAGE:
            receive(state, now, number)
        else:
            read_inbox(state, now, number)
