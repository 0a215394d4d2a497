"""Run here or forward: the kernel of `homes`. `policies/homes.py` says what each message means.

Tasks stand in one linked list at a time, through `following`. Held places are records of a pool,
linked in the same way. Messages between schedulers are records too; an event names its record.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy
from numpy.typing import NDArray

from .event_heap import Heap, Integers, below, compiled, pop, push

RUN, END, NOTICE, MESSAGE, WAKE = 0, 1, 2, 3, 4
REQUEST, ANSWER, ASK, OFFER, FILL, WITHDRAW = 0, 1, 2, 3, 4, 5
HOMES_MAX = 62
"""The homes asked for a job are the bits of one integer."""
MILLI = 1000

# Fields of the records of a task, server, job, home, scheduler, (scheduler, home) and place.
START_NS, END_NS, SERVER, FOLLOWING = range(4)
HOME, FREE_SLOTS = range(2)
FIRST_TASK, ENTRY, ASKED = range(3)
CURSOR, ROOM, LINE_HEAD, LINE_SIZE, BEGIN, END_OF = range(6)
WAITING_FIRST, WAITING_LAST, WAITING_COUNT, UNANSWERED, WANTS_AT = range(5)
BUSY_UNTIL, LINK_COUNT, INBOX_FIRST, INBOX_LAST = range(5, 9)
HEARD, HEARD_NS, WARM = range(3)
PLACE_SERVER, PLACE_NEXT = range(2)
# Fields of a message record.
KIND, TARGET, SOURCE, JOB, TASKS, TASK_COUNT, PLACES, PLACE_COUNT, SHORT, FREE = range(10)
COLD, NEXT, FIELDS = 10, 11, 12
# Fields of `counters`.
MESSAGES, COMPLETIONS, FORWARDED, WITHDRAWALS = range(4)
# Fields of `settings`.
ONE_WAY_NS, COLD_NS, FRESH_NS, UNKNOWN_MILLI, SHARES, ASKS, LINKS = range(7)


class State(NamedTuple):
    """Few arrays of records instead of many of numbers: numba compiles that three times faster."""

    heap: Heap
    random: NDArray[numpy.uint64]
    settings: Integers
    counters: Integers
    task: Integers
    server: Integers
    job: Integers
    home: Integers
    members: Integers
    """The servers of all homes, one home after the other."""
    line: Integers
    """For each home a ring of (origin, count)."""
    scheduler: Integers
    pair: Integers
    place: Integers
    message: Integers
    pools: Integers
    """First spare place, first spare message (linked through KIND)."""


@compiled
def hold(state: State, home: int) -> int:
    """A server with room, booked; -1 without any."""
    if state.home[home, ROOM] == 0:
        return -1
    begin, end = state.home[home, BEGIN], state.home[home, END_OF]
    cursor = state.home[home, CURSOR]
    while state.server[state.members[cursor], FREE_SLOTS] == 0:
        cursor += 1
        if cursor == end:
            cursor = begin
    state.home[home, CURSOR] = cursor
    server: int = state.members[cursor]
    state.server[server, FREE_SLOTS] -= 1
    state.home[home, ROOM] -= 1
    return server


@compiled
def new_place(state: State, server: int) -> int:
    place: int = state.pools[0]
    if place < 0:
        raise MemoryError("all records of held places are in use")
    state.pools[0] = state.place[place, PLACE_NEXT]
    state.place[place, PLACE_SERVER] = server
    state.place[place, PLACE_NEXT] = -1
    return place


@compiled
def hold_places(state: State, home: int, count: int) -> tuple[int, int]:
    """Up to `count` places: the first of the list, and how many."""
    first, last, held = -1, -1, 0
    while held < count:
        server = hold(state, home)
        if server < 0:
            break
        place = new_place(state, server)
        if first < 0:
            first = place
        else:
            state.place[last, PLACE_NEXT] = place
        last = place
        held += 1
    return first, held


@compiled
def free_place(state: State, place: int) -> tuple[int, int]:
    """Gives the record back: its server, and the next place of its list."""
    server, following = state.place[place, PLACE_SERVER], state.place[place, PLACE_NEXT]
    state.place[place, PLACE_NEXT] = state.pools[0]
    state.pools[0] = place
    return server, following


@compiled
def launch(state: State, now: int, home: int, task: int, server: int) -> None:
    state.task[task, SERVER] = server
    state.counters[MESSAGES] += 1
    earliest = max(now, state.scheduler[home, BUSY_UNTIL]) + state.settings[ONE_WAY_NS]
    push(state.heap, earliest, task, 0, RUN)


@compiled
def new_message(state: State, kind: int, source: int, target: int) -> int:
    message: int = state.pools[1]
    if message < 0:
        raise MemoryError("all message records are in use")
    record = state.message[message]
    state.pools[1] = record[KIND]
    record[:] = 0
    record[KIND] = kind
    record[SOURCE] = source
    record[TARGET] = target
    record[JOB] = -1
    record[TASKS] = -1
    record[PLACES] = -1
    record[NEXT] = -1
    return message


@compiled
def tell(state: State, now: int, message: int) -> None:
    record = state.message[message]
    source, target = record[SOURCE], record[TARGET]
    state.counters[MESSAGES] += 1
    low, high = min(source, target), max(source, target)
    if not state.pair[high, low, WARM]:
        state.pair[high, low, WARM] = True
        state.scheduler[source, LINK_COUNT] += target < len(state.home)
        state.scheduler[target, LINK_COUNT] += source < len(state.home)
        state.scheduler[source, BUSY_UNTIL] = (
            max(now, state.scheduler[source, BUSY_UNTIL]) + state.settings[COLD_NS]
        )
        record[COLD] = 1
    earliest = max(now, state.scheduler[source, BUSY_UNTIL]) + state.settings[ONE_WAY_NS]
    push(state.heap, earliest, message, 0, MESSAGE)


@compiled
def start_here(state: State, now: int, home: int, first: int, count: int) -> tuple[int, int]:
    """Starts what there is room for, from a list of tasks: the first of the rest, and how many."""
    if home >= len(state.home):
        return first, count
    while count > 0:
        server = hold(state, home)
        if server < 0:
            break
        following = state.task[first, FOLLOWING]
        launch(state, now, home, first, server)
        first = following
        count -= 1
    return first, count


@compiled
def add_want(state: State, home: int, origin: int, count: int) -> None:
    capacity = state.line.shape[1]
    if state.home[home, LINE_SIZE] == capacity:
        raise MemoryError("the line of a home is full")
    place = (state.home[home, LINE_HEAD] + state.home[home, LINE_SIZE]) % capacity
    state.line[home, place, 0] = origin
    state.line[home, place, 1] = count
    state.home[home, LINE_SIZE] += 1


@compiled
def wait(state: State, origin: int, first: int, count: int) -> None:
    if state.scheduler[origin, WAITING_COUNT] == 0:
        state.scheduler[origin, WAITING_FIRST] = first
    else:
        state.task[state.scheduler[origin, WAITING_LAST], FOLLOWING] = first
    last = first
    for _ in range(count - 1):
        last = state.task[last, FOLLOWING]
    state.scheduler[origin, WAITING_LAST] = last
    state.scheduler[origin, WAITING_COUNT] += count
    if origin < len(state.home) and state.home[origin, BEGIN] < state.home[origin, END_OF]:
        add_want(state, origin, origin, count)


@compiled
def believed(state: State, now: int, origin: int, home: int) -> int:
    belief: int = state.pair[origin, home, HEARD]
    if now - state.pair[origin, home, HEARD_NS] > state.settings[FRESH_NS]:
        belief = state.settings[UNKNOWN_MILLI]
    return belief


@compiled
def best_home(state: State, now: int, origin: int, excluded: int, start: int) -> int:
    homes = len(state.home)
    only_warm = state.scheduler[origin, LINK_COUNT] >= state.settings[LINKS]
    best, most = -1, 0
    for step in range(homes):
        home = (start + step) % homes
        if home == origin or (excluded >> home) & 1:
            continue
        if state.home[home, BEGIN] == state.home[home, END_OF]:
            continue  # no servers
        if only_warm and not state.pair[max(origin, home), min(origin, home), WARM]:
            continue
        belief = believed(state, now, origin, home)
        if best < 0 or belief > most:
            best, most = home, belief
    return best


@compiled
def withdraw_if_done(state: State, now: int, origin: int) -> None:
    if state.scheduler[origin, WAITING_COUNT] > 0 or state.scheduler[origin, UNANSWERED] > 0:
        return
    wants = state.scheduler[origin, WANTS_AT]
    if wants == 0:
        return
    for home in range(len(state.home)):
        if (wants >> home) & 1:
            state.counters[WITHDRAWALS] += 1
            tell(state, now, new_message(state, WITHDRAW, origin, home))
    state.scheduler[origin, WANTS_AT] = 0


@compiled
def ask_next(state: State, now: int, origin: int, job: int, count: int) -> None:
    asked, number = state.job[job, ASKED], 0
    for home in range(len(state.home)):
        number += (asked >> home) & 1
    if number >= state.settings[ASKS]:
        return
    home = best_home(state, now, origin, asked, below(state.random, len(state.home)))
    if home < 0:
        return
    state.job[job, ASKED] |= 1 << home
    state.scheduler[origin, UNANSWERED] += 1
    message = new_message(state, ASK, origin, home)
    state.message[message, JOB] = job
    state.message[message, SHORT] = count
    tell(state, now, message)


@compiled
def place_job(state: State, now: int, job: int) -> None:
    origin = state.job[job, ENTRY]
    begin, end = state.job[job, FIRST_TASK], state.job[job + 1, FIRST_TASK]
    for task in range(begin, end):
        state.task[task, FOLLOWING] = task + 1 if task + 1 < end else -1
    first, count = start_here(state, now, origin, begin, end - begin)
    if count == 0:
        return
    state.job[job, ASKED] = 0
    homes = len(state.home)
    start = below(state.random, homes)
    targets = numpy.empty(state.settings[SHARES], numpy.int64)
    found, chosen = 0, 0
    while found < len(targets):
        home = best_home(state, now, origin, chosen, start)
        if home < 0:
            break
        chosen |= 1 << home
        targets[found] = home
        found += 1
    if found == 0:
        wait(state, origin, first, count)
        return
    shares = numpy.empty(found, numpy.int64)
    total, left = 0, count
    for number in range(found):
        total += max(believed(state, now, origin, targets[number]), 0) + 1
    for number in range(found):
        weight = max(believed(state, now, origin, targets[number]), 0) + 1
        shares[number] = count * weight // total
        left -= shares[number]
    for number in range(left):
        shares[number % found] += 1
    for number in range(found):
        if shares[number] == 0:
            continue
        target = targets[number]
        state.job[job, ASKED] |= 1 << target
        state.scheduler[origin, UNANSWERED] += 1
        belief = believed(state, now, origin, target) - shares[number] * MILLI
        state.pair[origin, target, HEARD] = belief
        state.pair[origin, target, HEARD_NS] = now
        state.counters[FORWARDED] += shares[number]
        last = first
        for _ in range(shares[number] - 1):
            last = state.task[last, FOLLOWING]
        following = state.task[last, FOLLOWING]
        state.task[last, FOLLOWING] = -1
        message = new_message(state, REQUEST, origin, target)
        record = state.message[message]
        record[JOB] = job
        record[TASKS] = first
        record[TASK_COUNT] = shares[number]
        tell(state, now, message)
        first = following


@compiled
def serve(state: State, now: int, home: int) -> None:
    capacity = state.line.shape[1]
    while state.home[home, LINE_SIZE] > 0:
        head = state.home[home, LINE_HEAD]
        origin = state.line[home, head, 0]
        if origin == home and state.scheduler[home, WAITING_COUNT] == 0:
            state.home[home, LINE_HEAD] = (head + 1) % capacity
            state.home[home, LINE_SIZE] -= 1
            continue
        first, held = hold_places(state, home, state.line[home, head, 1])
        if held == 0:
            return
        state.line[home, head, 1] -= held
        if state.line[home, head, 1] == 0:
            state.home[home, LINE_HEAD] = (head + 1) % capacity
            state.home[home, LINE_SIZE] -= 1
        if origin == home:
            while first >= 0:
                server, first = free_place(state, first)
                if state.scheduler[home, WAITING_COUNT] > 0:
                    task = state.scheduler[home, WAITING_FIRST]
                    state.scheduler[home, WAITING_FIRST] = state.task[task, FOLLOWING]
                    state.scheduler[home, WAITING_COUNT] -= 1
                    launch(state, now, home, task, server)
                else:
                    state.server[server, FREE_SLOTS] += 1
                    state.home[home, ROOM] += 1
            withdraw_if_done(state, now, home)
        else:
            message = new_message(state, OFFER, home, origin)
            record = state.message[message]
            record[PLACES] = first
            record[PLACE_COUNT] = held
            record[FREE] = state.home[home, ROOM] * MILLI
            tell(state, now, message)


@compiled
def requested(
    state: State, now: int, home: int, origin: int, job: int, first: int, count: int
) -> None:
    first, count = start_here(state, now, home, first, count)
    if count > 0:
        add_want(state, home, origin, count)
    message = new_message(state, ANSWER, home, origin)
    record = state.message[message]
    record[JOB] = job
    record[TASKS] = first
    record[TASK_COUNT] = count
    record[FREE] = state.home[home, ROOM] * MILLI
    tell(state, now, message)


@compiled
def answered(
    state: State, now: int, origin: int, home: int, job: int, first: int, count: int
) -> None:
    if count > 0:
        state.scheduler[origin, WANTS_AT] |= 1 << home
        first, count = start_here(state, now, origin, first, count)
    if count > 0:
        wait(state, origin, first, count)
        ask_next(state, now, origin, job, count)
    withdraw_if_done(state, now, origin)


@compiled
def asked_for(state: State, now: int, home: int, origin: int, job: int, count: int) -> None:
    first, held = hold_places(state, home, count)
    if held < count:
        add_want(state, home, origin, count - held)
    message = new_message(state, OFFER, home, origin)
    record = state.message[message]
    record[JOB] = job
    record[PLACES] = first
    record[PLACE_COUNT] = held
    record[SHORT] = count - held
    record[FREE] = state.home[home, ROOM] * MILLI
    tell(state, now, message)


@compiled
def offered(
    state: State, now: int, origin: int, home: int, job: int, places: int, held: int, short: int
) -> None:
    if held > 0:
        given = min(held, state.scheduler[origin, WAITING_COUNT])
        message = new_message(state, FILL, origin, home)
        record = state.message[message]
        record[PLACES] = places
        record[TASK_COUNT] = given
        if given > 0:
            record[TASKS] = state.scheduler[origin, WAITING_FIRST]
            last = state.scheduler[origin, WAITING_FIRST]
            for _ in range(given - 1):
                last = state.task[last, FOLLOWING]
            state.scheduler[origin, WAITING_FIRST] = state.task[last, FOLLOWING]
            state.scheduler[origin, WAITING_COUNT] -= given
            state.task[last, FOLLOWING] = -1
        tell(state, now, message)
    if job >= 0:
        state.scheduler[origin, UNANSWERED] -= 1
        if short > 0:
            state.scheduler[origin, WANTS_AT] |= 1 << home
            if state.scheduler[origin, WAITING_COUNT] > 0:
                ask_next(
                    state, now, origin, job, min(short, state.scheduler[origin, WAITING_COUNT])
                )
    withdraw_if_done(state, now, origin)


@compiled
def filled(state: State, now: int, home: int, places: int, tasks: int) -> None:
    surplus = False
    while places >= 0:
        server, places = free_place(state, places)
        if tasks >= 0:
            following = state.task[tasks, FOLLOWING]
            launch(state, now, home, tasks, server)
            tasks = following
        else:
            state.server[server, FREE_SLOTS] += 1
            state.home[home, ROOM] += 1
            surplus = True
    if surplus:
        serve(state, now, home)


@compiled
def withdrawn(state: State, home: int, origin: int) -> None:
    capacity, kept = state.line.shape[1], 0
    for number in range(state.home[home, LINE_SIZE]):
        place = (state.home[home, LINE_HEAD] + number) % capacity
        if state.line[home, place, 0] != origin:
            goal = (state.home[home, LINE_HEAD] + kept) % capacity
            state.line[home, goal, 0] = state.line[home, place, 0]
            state.line[home, goal, 1] = state.line[home, place, 1]
            kept += 1
    state.home[home, LINE_SIZE] = kept


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
            push(state.heap, state.scheduler[target, BUSY_UNTIL], target, 0, WAKE)
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
        if job < jobs and (heap.state[0] == 0 or arrival_ns[job] <= heap.time_ns[0]):
            now = arrival_ns[job]
            place_job(state, now, job)
            job += 1
            continue
        if heap.state[0] == 0:
            raise RuntimeError("tasks wait, and nothing more can happen")
        now, payload = pop(heap)
        kind, number = payload & 15, payload >> 32
        if kind == RUN:
            state.task[number, START_NS] = now
            push(heap, now + duration_ns[number], number, 0, END)
        elif kind == END:
            state.task[number, END_NS] = now
            unfinished -= 1
            state.counters[COMPLETIONS] += 1
            push(heap, now + state.settings[ONE_WAY_NS], number, 0, NOTICE)
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
