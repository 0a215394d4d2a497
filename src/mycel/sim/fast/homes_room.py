"""What a home does with its own servers: book a slot, hold places, start tasks."""

from __future__ import annotations

from .event_heap import MESSAGES_LANE, compiled, push
from .homes_records import (
    BEGIN,
    BUSY_UNTIL,
    CURSOR,
    END_OF,
    FOLLOWING,
    FREE_SLOTS,
    LINE_HEAD,
    LINE_SIZE,
    MESSAGES,
    ONE_WAY_NS,
    PLACE_NEXT,
    ROOM,
    RUN,
    SERVER,
    State,
    new_place,
)


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
def launch(state: State, now: int, home: int, task: int, server: int) -> None:
    state.task[task, SERVER] = server
    state.counters[MESSAGES] += 1
    earliest = max(now, state.scheduler[home, BUSY_UNTIL]) + state.settings[ONE_WAY_NS]
    push(state.heap, MESSAGES_LANE, earliest, task, 0, RUN)


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
