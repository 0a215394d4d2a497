"""The records of the kernel of `homes`, and the pools that they come from.

Tasks stand in one linked list at a time, through `following`. Held places are records of a pool,
linked in the same way. Messages between schedulers are records too; an event names its record.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy
from numpy.typing import NDArray

from mycel.sim.workloads.slot_work import SlotWork

from .event_heap import MESSAGES_LANE, Heap, Integers, compiled, make_heap, push

RUN, END, NOTICE, MESSAGE, WAKE = 0, 1, 2, 3, 4
REQUEST, ANSWER, ASK, OFFER, FILL, WITHDRAW = 0, 1, 2, 3, 4, 5
HOMES_MAX = 62
"""The homes asked for a job are the bits of one integer."""
MILLI = 1000
LINE_LENGTH = 1 << 14
MESSAGE_RECORDS = 1 << 20

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
    targets: Integers
    """The homes that one job is shared among, and each one's share: to write on."""


class Sizes(NamedTuple):
    homes: int
    schedulers: int
    slots: int
    """Of one server."""


def make_state(
    sizes: Sizes,
    home_by_server: Integers,
    work: SlotWork,
    settings: Integers,
    random: NDArray[numpy.uint64],
    counters: Integers,
) -> State:
    servers = len(home_by_server)
    slots = servers * sizes.slots
    members = numpy.argsort(home_by_server, kind="stable").astype(numpy.int64)
    counts = numpy.bincount(home_by_server, minlength=sizes.homes)
    member_first = numpy.concatenate(([0], numpy.cumsum(counts))).astype(numpy.int64)
    message = numpy.zeros((MESSAGE_RECORDS, FIELDS), numpy.int64)
    message[:, KIND] = _chain(MESSAGE_RECORDS)
    place = numpy.zeros((slots, 2), numpy.int64)
    place[:, PLACE_NEXT] = _chain(slots)
    home = numpy.zeros((sizes.homes, 6), numpy.int64)
    home[:, CURSOR] = home[:, BEGIN] = member_first[:-1]
    home[:, END_OF] = member_first[1:]
    home[:, ROOM] = counts * sizes.slots
    server = numpy.full((servers, 2), sizes.slots, numpy.int64)
    server[:, HOME] = home_by_server
    scheduler = numpy.zeros((sizes.schedulers, 9), numpy.int64)
    scheduler[:, [INBOX_FIRST, INBOX_LAST]] = -1
    pair = numpy.zeros((sizes.schedulers, sizes.homes, 3), numpy.int64)
    pair[:, :, HEARD_NS] = -(10**18)
    job = numpy.zeros((work.job_count + 1, 3), numpy.int64)
    job[:, FIRST_TASK] = work.first_task
    job[:-1, ENTRY] = work.entry % sizes.schedulers
    return State(
        heap=make_heap(slots + MESSAGE_RECORDS + sizes.schedulers + 2),
        random=random,
        settings=settings,
        counters=counters,
        task=numpy.full((work.task_count, 4), -1, numpy.int64),
        server=server,
        job=job,
        home=home,
        members=members,
        line=numpy.zeros((sizes.homes, LINE_LENGTH, 2), numpy.int64),
        scheduler=scheduler,
        pair=pair,
        place=place,
        message=message,
        pools=numpy.zeros(2, numpy.int64),
        targets=numpy.empty((2, int(settings[SHARES])), numpy.int64),
    )


def _chain(size: int) -> Integers:
    """Each record leads to the next, the last to none."""
    chain = numpy.arange(1, size + 1, dtype=numpy.int64)
    chain[-1] = -1
    return chain


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
def free_place(state: State, place: int) -> tuple[int, int]:
    """Gives the record back: its server, and the next place of its list."""
    server, following = state.place[place, PLACE_SERVER], state.place[place, PLACE_NEXT]
    state.place[place, PLACE_NEXT] = state.pools[0]
    state.pools[0] = place
    return server, following


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
    push(state.heap, MESSAGES_LANE, earliest, message, 0, MESSAGE)
