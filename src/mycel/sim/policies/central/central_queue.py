"""One scheduler that knows every server: FIFO, and shortest job first.

It sends a task to a server and hears of its end, each one message away. A gang waits until all of
its tasks fit at once. Higher priorities go first, and preempt lower ones if `preempt` is set.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Final

from mycel.sim.entities import Job, Server, Task
from mycel.sim.ledger import Hold, Ledger
from mycel.sim.policy import Options, Policy
from mycel.sim.reference_engine import Engine

Rank = tuple[int, ...]


class CentralOptions(Options, frozen=True, kw_only=True):
    preempt: bool = False
    """Whether a task may stop tasks of lower priority to have their room."""

    @property
    def needs_reference(self) -> str:
        """Why the fast engine cannot run it, or nothing."""
        return "its policy preempts" if self.preempt else ""


class CentralFifo(Policy):
    name = "central-fifo"
    options_type = CentralOptions
    starts_gangs = True

    def __init__(self, engine: Engine, options: Options) -> None:
        super().__init__(engine, options)
        assert isinstance(options, CentralOptions), "the engine makes our own options"
        self.preempts: Final = options.preempt
        self.ledger: Final = Ledger(engine.servers, range(len(engine.servers)))
        self.holds: Final[dict[int, Hold]] = {}
        self.waiting: list[tuple[Rank, list[Task]]] = []
        self._number = 0
        self._clearing: Final[set[int]] = set()
        """Tasks for which others are being stopped right now."""

    def rank(self, item: Sequence[Task]) -> Rank:
        """The lowest goes first; ties go by arrival."""
        return (-item[0].job.priority,)

    def choose(self, task: Task) -> Hold | None:
        return self.ledger.hold(task.demand)

    def entry(self, job: Job) -> int:
        return self.scheduler(0)

    def place(self, job: Job, tasks: Sequence[Task]) -> None:
        for item in [list(tasks)] if job.is_gang else [[task] for task in tasks]:
            self._number += 1
            heapq.heappush(self.waiting, ((*self.rank(item), self._number), item))
        self.serve()

    def serve(self) -> None:
        while self.waiting:
            item = self.waiting[0][1]
            if not self.start(item) and not (self.preempts and self._make_room(item)):
                return
            heapq.heappop(self.waiting)

    def start(self, item: Sequence[Task]) -> bool:
        """All tasks of the item, or none."""
        if self.ledger.cores_free_milli < sum(task.demand.cores_milli for task in item):
            return False
        holds: list[Hold] = []
        for task in item:
            hold = self.choose(task)
            if hold is None:
                for one in holds:
                    self.ledger.release(one)
                return False
            holds.append(hold)
        for task, hold in zip(item, holds, strict=True):
            self.holds[task.index] = hold
            self._clearing.discard(task.index)
            self.engine.send(self.scheduler(0), hold[0], self._launch, task, hold, tasks=[task])
        return True

    def _launch(self, task: Task, hold: Hold) -> None:
        self.engine.start(task, hold[0], hold[2])

    def finished(self, task: Task, server: Server) -> None:
        self.engine.send(server.index, self.scheduler(0), self._notice, task, is_completion=True)

    def _notice(self, task: Task) -> None:
        self.ledger.release(self.holds.pop(task.index))
        self.serve()

    # Preemption

    def _make_room(self, item: list[Task]) -> bool:
        """Stops the youngest tasks of lower priority, until the item fits; or nothing.

        The order to stop takes one message, and the victim's end is heard one message later."""
        if any(task.index in self._clearing for task in item):
            return False
        victims = self._victims(item)
        for task in victims:
            place = self.holds[task.index][0]
            self.engine.send(self.scheduler(0), place, self._evict, task, task.attempt)
        if victims:
            self._clearing.update(task.index for task in item)
        return False

    def _victims(self, item: list[Task]) -> list[Task]:
        priority = item[0].job.priority
        running = [
            task
            for server in self.servers
            for task in server.running.values()
            if task.job.priority < priority and task.index in self.holds
        ]
        running.sort(key=lambda task: (task.job.priority, -task.start_ns, task.index))
        freed: list[Task] = []
        for task in running:
            freed.append(task)
            self.ledger.release(self.holds[task.index])
            fits = self._would_fit(item)
            if fits:
                break
        for task in freed:
            hold = self.holds[task.index]
            self.ledger.book(hold.server, hold.demand, hold.gpus)
        return freed if freed and fits else []

    def _would_fit(self, item: list[Task]) -> bool:
        holds = [self.choose(task) for task in item]
        for hold in holds:
            if hold is not None:
                self.ledger.release(hold)
        return None not in holds

    def _evict(self, task: Task, attempt: int) -> None:
        if not task.is_running or task.attempt != attempt:
            return
        server = task.server
        self.engine.preempt(task)
        self.engine.send(
            server, self.scheduler(0), self._evicted, task, tasks=[task], is_completion=True
        )

    def _evicted(self, task: Task) -> None:
        self.ledger.release(self.holds.pop(task.index))
        self.place(task.job, [task])

    # Failures

    def failed(self, server: Server, lost: Sequence[Task]) -> None:
        for task in lost:
            self.ledger.release(self.holds.pop(task.index))
        if not server.is_up:
            self.ledger.down.add(server.index)
        super().failed(server, lost)

    def returned(self, server: Server) -> None:
        self.ledger.down.discard(server.index)
        self.serve()

    def undelivered(self, source: int, destination: int, tasks: Sequence[Task]) -> None:
        for task in tasks:
            hold = self.holds.pop(task.index, None)
            if hold is not None:
                self.ledger.release(hold)
        super().undelivered(source, destination, tasks)


class CentralSjf(CentralFifo):
    name = "central-sjf"

    def rank(self, item: Sequence[Task]) -> Rank:
        return (-item[0].job.priority, max(task.estimate_ns for task in item))
