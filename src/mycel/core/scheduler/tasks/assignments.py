"""Which task goes to which worker: after every event, what waits is matched with what is free.

    1. a worker with more room than before   takes from the shapes that wait, in their order
    2. a shape with something new            goes to the workers that rank first for it
    3. what is left                          waits behind others, where tasks are quick

Nothing that waits fits into what is free when it is through; so the next event concerns only the
shapes and workers that it has changed.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from mycel.core.identifiers import PeerId
from mycel.core.matching import Member, Pool, has_room
from mycel.core.model.jobs import Block, task_key
from mycel.core.scheduler.records import Worker
from mycel.core.scheduler.state import State
from mycel.core.scheduler.tasks.shape_queue import ShapeQueue
from mycel.core.scheduler.trust.guard import Guard
from mycel.core.scheduler.waiting_shapes import WaitingShapes
from mycel.core.scheduler.workers.exclusions import Exclusions
from mycel.core.scheduler.workers.slot_books import SlotBooks, Slots

from .dispatch import Sending

PLACED_MAX: Final = 200
"""So many slots are filled in one event; the next goes on."""
SHAPES_LOOKED_AT: Final = 32
"""So many of the shapes that wait are looked at for a worker with a free slot, first of those that
rank first and then of all in turn. If none fits, the shape that had the slot has it again."""
PUT_OFF_MAX: Final = 16
"""So many workers of a shape are looked at in vain for places behind others."""
NEWS_LOOKED_AT: Final = 1000
"""So many for one that has come, has opened, or had no room before."""


class Placement:
    def __init__(
        self,
        state: State,
        books: SlotBooks,
        exclusions: Exclusions,
        guard: Guard,
        sending: Sending,
    ) -> None:
        self._state = state
        self._guard = guard
        self._books = books
        self._exclusions = exclusions
        self._sending = sending
        self._waiting = WaitingShapes()
        self._planned: dict[Slots, list[tuple[Block, int]]] = {}
        self._left = 0
        """How many more may be placed in this event."""
        self._asked = 0
        self._now = 0.0
        self._unfinished: dict[ShapeQueue, None] = {}
        """Shapes of which more fits than could be placed in one event."""

    @property
    def has_more(self) -> bool:
        return bool(self._unfinished or self._state.freed)

    def settle(self, now: float) -> list[ShapeQueue]:
        """Returns the shapes that have changed."""
        state = self._state
        self._now, self._left, self._asked = now, PLACED_MAX, 0
        changed = self._unfinished
        self._unfinished = {}
        self._guard.look(now)
        began = state.stopwatch()
        while True:
            changed |= self._take_in()
            if not len(self._waiting):
                self._forget_freed()
                break
            while state.freed and self._left > 0:
                worker = next(iter(state.freed.values()))
                if not self._fill(worker):
                    del state.freed[worker.peer]
                    worker.freed_by, worker.has_news = None, False
            if state.dirty:
                changed |= self._take_in()
            for queue in self._by_rank(changed):
                self._place(queue)
                self._prefetch(queue)
            self._send()
            if not state.freed or self._left <= 0:
                break  # a task that could not be sent has freed its slot again
        if state.dirty:
            changed |= self._take_in()
        if self._asked:
            state.selection_seconds.append((state.stopwatch() - began) / self._asked)
        return list(changed)

    def _forget_freed(self) -> None:
        """Nobody waits for what is free."""
        freed, self._state.freed = self._state.freed, {}
        for worker in freed.values():
            worker.freed_by, worker.has_news = None, False

    def _take_in(self) -> dict[ShapeQueue, None]:
        """What has changed since the last time."""
        dirty, self._state.dirty = self._state.dirty, {}
        for queue in dirty.values():
            self._waiting.update(queue)
        return dict.fromkeys(dirty.values())

    def forget(self, queue: ShapeQueue) -> None:
        """Nothing of it waits or is out."""
        self._waiting.update(queue)
        self._unfinished.pop(queue, None)

    def _by_rank(self, queues: dict[ShapeQueue, None]) -> list[ShapeQueue]:
        waiting = [queue for queue in queues if queue.waiting]
        if len(waiting) > 1:
            waiting.sort(key=lambda one: (-one.shape.priority, one.held_slots))
        return waiting

    # A worker with room

    def _fill(self, worker: Worker) -> bool:
        """One task, for this worker or for one that ranks before it; False if nothing fits."""
        if worker.member is None or not worker.may_be_booked or not self._allowance():
            return False
        queue = self._first_that_fits(worker)
        return queue is not None and self._place_one(queue)

    def _first_that_fits(self, worker: Worker) -> ShapeQueue | None:
        pool, member = self._state.pool, worker.member
        assert member is not None
        if not self._waiting.may_fit(member.expected.cpu_millis):
            return None
        count = NEWS_LOOKED_AT if worker.has_news else SHAPES_LOOKED_AT
        looked_at = 0
        for queue in islice(self._waiting.in_order(), count):
            looked_at += 1
            if self._fits(queue, member, pool):
                return queue
        if looked_at < count:
            return None
        for queue in self._waiting.in_turn(SHAPES_LOOKED_AT):
            if self._fits(queue, member, pool):
                return queue
        before = worker.freed_by
        return before if before is not None and before.waiting else None

    def _fits(self, queue: ShapeQueue, member: Member, pool: Pool) -> bool:
        """Whether such a task could go there now."""
        return (
            queue.cpu_millis <= member.expected.cpu_millis
            and has_room(queue.need, member.capabilities, member.expected)
            and bool(self._candidates(queue, pool) >> member.slot & 1)
            and not self._left_out(queue, pool) >> member.slot & 1
        )

    # A shape

    def _place(self, queue: ShapeQueue) -> None:
        while queue.waiting and self._allowance():
            if self._left <= 0:
                self._unfinished[queue] = None
                return
            if not self._place_one(queue):
                return

    def _place_one(self, queue: ShapeQueue) -> bool:
        """The next task of this shape, at the worker that ranks first for it."""
        while True:
            worker = self._best_for(queue)
            if worker is None:
                return False
            slots = self._books.of(worker, queue)
            if self._books.take(slots):
                break
            # The books know better than what selection went by.
            assert worker.member is not None
            self._exclusions.add_now(worker, queue.shape, "it has no room now", self._now)
        self._left -= 1
        self._plan(slots, queue.take(1))
        assert worker.member is not None
        self._state.pool_as_told.has_run(worker.member, queue.shape)
        self._waiting.update(queue)
        return True

    def _best_for(self, queue: ShapeQueue) -> Worker | None:
        """The one place where workers with room are ranked for a task."""
        state = self._state
        self._asked += 1
        pool = state.pool
        member = pool.best(
            queue.shape,
            state.random,
            refusing=self._exclusions.refusing(queue.shape),
            excluded=self._left_out(queue, pool),
            avoided=self._failed_before(queue),
            having_data=state.having_next_files(queue),
            files=queue.next_files() if pool.data else (),
            expected_seconds=queue.usual.seconds,
        )
        return None if member is None else state.workers[PeerId(member.key)]

    def _left_out(self, queue: ShapeQueue, pool: Pool) -> int:
        withheld = self._guard.withheld(self._candidates(queue, pool))
        return self._exclusions.of(queue.shape) | withheld

    def _candidates(self, queue: ShapeQueue, pool: Pool) -> int:
        return pool.candidates(queue.shape, self._exclusions.refusing(queue.shape))

    def _failed_before(self, queue: ShapeQueue) -> int:
        """Workers at which the next task has failed: it goes elsewhere if it can."""
        state, following = self._state, queue.next()
        if following is None or not state.histories:
            return 0
        block, index = following
        failed = 0
        for ended in state.histories.get(task_key(block.job.number, index), ()):
            worker = state.workers.get(ended.worker) if ended.counts else None
            if worker is not None and worker.member is not None:
                failed |= 1 << worker.member.slot
        return failed

    # Behind others

    def _prefetch(self, queue: ShapeQueue) -> None:
        careful = self._now < queue.careful_until
        rest = len(queue.credit)
        put_off = 0
        for slots in list(queue.credit) if queue.waiting else ():
            if not queue.waiting or put_off >= PUT_OFF_MAX:
                return
            fair = -(-queue.waiting // rest)
            rest -= 1
            room = min(slots.room(careful), fair, self._allowance())
            if room > 0:
                room = min(room, self._guard.room(slots.worker, queue, self._now))
            if room <= 0:
                if slots.room(careful) <= 0:
                    del queue.credit[slots]
                continue
            if not slots.worker.may_be_booked or self._is_wanted(slots):
                put_off += 1
                queue.credit[slots] = queue.credit.pop(slots)  # next time others are looked at
                continue
            for _ in range(room):
                self._books.take_behind(slots)
            self._plan(slots, queue.take(room))
            self._waiting.update(queue)

    def _is_wanted(self, slots: Slots) -> bool:
        """Whether another shape should have the next of these slots: nothing goes behind what
        runs there, so that one of them becomes free."""
        pool, member = self._state.pool, slots.worker.member
        assert member is not None
        return any(
            other is not slots.queue and pool.candidates(other.shape) >> member.slot & 1
            for other in islice(self._waiting.ahead_of(slots.queue), SHAPES_LOOKED_AT)
        )

    def _allowance(self) -> int:
        limit = self._state.settings.max_concurrent_tasks
        if limit is None:
            return 1 << 30
        planned = sum(map(len, self._planned.values()))
        return max(0, limit - len(self._state.attempts) - planned)

    # Sending

    def _plan(self, slots: Slots, tasks: list[tuple[Block, int]]) -> None:
        self._planned.setdefault(slots, []).extend(tasks)
        self._guard.sent(slots.worker, slots.queue, self._now)

    def _send(self) -> None:
        planned, self._planned = self._planned, {}
        for slots, tasks in planned.items():
            self._sending.send(slots, tasks, self._now)
