"""What waits, by shape.

Fresh tasks stay in their blocks; a `ShapeQueue` holds the blocks in order of arrival, and in
front of them, one by one, the tasks that came back. Tasks that back off wait in a heap.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Final

from mycel.core.identifiers import PeerId
from mycel.core.model.jobs import Block, Job, TaskKey
from mycel.core.model.resources import millis
from mycel.core.model.work import Shape, reserved
from mycel.core.scheduler.trust.shape_ends import ShapeEnds

if TYPE_CHECKING:
    from mycel.core.scheduler.workers.slot_books import Slots

_FADING: Final = 0.05
"""How much one more duration counts in a mean."""


def share_of(count: int, of_all: int) -> float:
    """How much the latest `count` values count in the fading mean of so many."""
    return max(1.0 - (1.0 - _FADING) ** count, count / of_all)


class Waiting:
    """A task that was out before, or is held apart for another reason."""

    __slots__ = ("block", "index", "key")

    def __init__(self, key: TaskKey, block: Block, index: int) -> None:
        self.key = key
        self.block = block
        self.index = index


class Usual:
    """How long tasks of a shape take. It outlives the queue."""

    __slots__ = ("count", "ends", "seconds")

    def __init__(self) -> None:
        self.ends = ShapeEnds()
        self.count = 0
        self.seconds: float | None = None

    def measure(self, seconds: float, count: int = 1) -> float:
        """How long these took, 1 being usual; `seconds` is their mean."""
        self.count += count
        if self.seconds is None or self.seconds <= 0.0:
            self.seconds = seconds
            return 1.0
        relative = seconds / self.seconds
        self.seconds += share_of(count, self.count) * (seconds - self.seconds)
        return relative


class Tally:
    """How many tasks wait in all queues together."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting = 0


class ShapeQueue:
    """The waiting tasks of one shape, and how much of it is out."""

    def __init__(
        self,
        shape: Shape,
        usual: Usual,
        recovering: Collection[PeerId] = (),
        tally: Tally | None = None,
    ) -> None:
        self.shape = shape
        self.need: Final = reserved(shape)
        """What one of its tasks takes of a worker."""
        self.cpu_millis: Final = millis(self.need.cpu_cores)
        self.usual = usual
        self._old: deque[Block] = deque()
        """Blocks of earlier boots: they wait while workers are `recovering`."""
        self._new: deque[Block] = deque()
        self.came_back: deque[Waiting] = deque()
        self.fresh_old = 0
        self.fresh_new = 0
        self.recovering = recovering
        """Workers that may run what seems to wait."""
        self._tally = tally or Tally()
        self._ended = 0
        """Blocks of jobs that have ended, about."""
        self.held_slots = 0
        self.live = 0
        """Attempts that are out."""
        self.credit: dict[Slots, None] = {}
        """Where more may wait behind others."""
        self.careful_until = 0.0

    @property
    def blocks(self) -> Iterator[Block]:
        """In the order in which their tasks are sent."""
        yield from self._old
        yield from self._new

    @property
    def waiting(self) -> int:
        """Tasks that could be sent now, if there were room."""
        fresh = self.fresh_new if self.recovering else self.fresh_new + self.fresh_old
        return fresh + len(self.came_back)

    @property
    def all_waiting(self) -> int:
        return self.fresh_new + self.fresh_old + len(self.came_back)

    def add_block(self, block: Block) -> None:
        (self._old if block.old else self._new).append(block)
        self._count_fresh(block, block.fresh)

    def next(self) -> tuple[Block, int] | None:
        """The task that is sent next, unless it must be sought."""
        if self.came_back:
            return (self.came_back[0].block, self.came_back[0].index)
        return None

    def take(self, limit: int) -> list[tuple[Block, int]]:
        """Up to `limit` tasks, those that came back first."""
        taken: list[tuple[Block, int]] = []
        while self.came_back and len(taken) < limit:
            waiting = self.came_back.popleft()
            self._tally.waiting -= 1
            taken.append((waiting.block, waiting.index))
        for blocks in (self._new,) if self.recovering else (self._old, self._new):
            while blocks and len(taken) < limit:
                block = blocks[0]
                before = len(taken)
                taken.extend((block, index) for index in block.take(limit - before))
                self._count_fresh(block, before - len(taken))
                if block.fresh == 0:
                    blocks.popleft()
        return taken

    def take_one(self, block: Block, index: int) -> bool:
        """Takes this task out of its order, wherever it waits; False if it does not wait here."""
        if block.take_one(index):
            self._count_fresh(block, -1)
            return True
        for position, waiting in enumerate(self.came_back):
            if waiting.index == index and waiting.block is block:
                del self.came_back[position]
                self._tally.waiting -= 1
                return True
        return False

    def give_back(self, waiting: Waiting) -> None:
        self.came_back.append(waiting)
        self._tally.waiting += 1

    def position(self, block: Block, index: int) -> int:
        """How many tasks are ahead of this one."""
        for place, waiting in enumerate(self.came_back):
            if waiting.index == index and waiting.block is block:
                return place
        ahead = len(self.came_back)
        for other in self.blocks:
            if other is block:
                return ahead + block.fresh_before(index)
            ahead += other.fresh
        return ahead

    def next_files(self) -> list[str]:
        """Digests of what the task needs that is sent next."""
        if self.came_back:
            return self.came_back[0].block.files_of(self.came_back[0].index)
        block = next((block for block in self.blocks if block.fresh), None)
        return [] if block is None else block.files_of(block.first + block.cursor)

    def drop_job(self, job: Job) -> None:
        """The job has ended: nothing of it waits. Its blocks are passed over when their turn
        comes, and taken out where they become many."""
        self._ended += len(job.blocks)
        if self._ended > 16 + (len(self._old) + len(self._new)) // 2:
            self._old = deque(block for block in self._old if block.fresh)
            self._new = deque(block for block in self._new if block.fresh)
            self._ended = 0

    def _count_fresh(self, block: Block, change: int) -> None:
        self._tally.waiting += change
        if block.old:
            self.fresh_old += change
        else:
            self.fresh_new += change


class Backoff:
    """Tasks that wait for their next try."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Waiting]] = []
        self._due: dict[TaskKey, float] = {}
        self._shapes: dict[Shape, set[TaskKey]] = {}
        self._order = 0

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, key: TaskKey) -> bool:
        return key in self._due

    @property
    def next_due(self) -> float | None:
        self._skip_removed()
        return self._heap[0][0] if self._heap else None

    def due_at(self, key: TaskKey) -> float | None:
        return self._due.get(key)

    def has_any_of(self, shape: Shape) -> bool:
        return shape in self._shapes

    def add(self, waiting: Waiting, due_at: float) -> None:
        self._order += 1
        self._due[waiting.key] = due_at
        self._shapes.setdefault(waiting.block.group.shape, set()).add(waiting.key)
        heapq.heappush(self._heap, (due_at, self._order, waiting))

    def remove(self, key: TaskKey, block: Block) -> bool:
        if self._due.pop(key, None) is None:
            return False
        self._forget(key, block)
        return True

    def take_due(self, now: float) -> list[Waiting]:
        due = []
        while self._heap and self._heap[0][0] <= now:
            due_at, _, waiting = heapq.heappop(self._heap)
            if self._due.get(waiting.key) == due_at:
                del self._due[waiting.key]
                self._forget(waiting.key, waiting.block)
                due.append(waiting)
        return due

    def _forget(self, key: TaskKey, block: Block) -> None:
        shape = block.group.shape
        keys = self._shapes[shape]
        keys.discard(key)
        if not keys:
            del self._shapes[shape]

    def _skip_removed(self) -> None:
        while self._heap and self._due.get(self._heap[0][2].key) != self._heap[0][0]:
            heapq.heappop(self._heap)
