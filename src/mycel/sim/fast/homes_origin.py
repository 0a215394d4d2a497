"""The scheduler that accepted a job: whom it sends tasks to and asks for room, and who waits."""

from __future__ import annotations

from .event_heap import below, compiled
from .homes_records import (
    ASK,
    ASKED,
    ASKS,
    BEGIN,
    END_OF,
    ENTRY,
    FILL,
    FIRST_TASK,
    FOLLOWING,
    FORWARDED,
    FRESH_NS,
    HEARD,
    HEARD_NS,
    JOB,
    LINK_COUNT,
    LINKS,
    MILLI,
    PLACES,
    REQUEST,
    SHORT,
    TASK_COUNT,
    TASKS,
    UNANSWERED,
    UNKNOWN_MILLI,
    WAITING_COUNT,
    WAITING_FIRST,
    WAITING_LAST,
    WANTS_AT,
    WARM,
    WITHDRAW,
    WITHDRAWALS,
    State,
    new_message,
    tell,
)
from .homes_room import add_want, start_here


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
    targets, shares = state.targets[0], state.targets[1]
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
