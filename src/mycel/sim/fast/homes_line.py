"""A home's line of wants: who waits for room there, in the order in which it heard of them."""

from __future__ import annotations

from .event_heap import compiled
from .homes_origin import withdraw_if_done
from .homes_records import (
    ANSWER,
    FOLLOWING,
    FREE,
    FREE_SLOTS,
    JOB,
    LINE_HEAD,
    LINE_SIZE,
    MILLI,
    OFFER,
    PLACE_COUNT,
    PLACES,
    ROOM,
    SHORT,
    TASK_COUNT,
    TASKS,
    WAITING_COUNT,
    WAITING_FIRST,
    State,
    free_place,
    new_message,
    tell,
)
from .homes_room import add_want, hold_places, launch, start_here


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
