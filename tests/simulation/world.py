"""A whole swarm in virtual time, under faults, from one seed.

For `TROUBLE_SECONDS` clients submit, cancel and read while processes are killed, frozen and cut
off; then everything is mended, and every acknowledged task must come to its end. What went
wrong is judged by `judge`, from the journal and from what the outside saw.
"""

from __future__ import annotations

from mycel.discovery.methods import Ways

from .clients import Clients
from .history import History
from .swarm import Swarm
from .troubles import Trouble, Troubles

TROUBLE_SECONDS = 60.0
PEACE_SECONDS = 800.0
"""Enough for six jobs of 60 tasks, one after the other on a single core."""


class World(Swarm):
    def __init__(self, seed: int, trouble: Trouble | None = None, ways: Ways | None = None) -> None:
        trouble = trouble or Trouble()
        super().__init__(seed, ways, trouble.liars)
        self.clients = Clients(self)
        self.troubles = Troubles(self, trouble)
        for scheduler in self.schedulers:
            scheduler.on_reply = self.clients.replied
        for worker in self.workers:
            worker.behaviour = self.clients.behaviour
            worker.padding = self.clients.padding
            worker.on_killed = self.troubles.kill

    def run(self) -> History:
        for process in self.processes:
            process.start()
        begin = self.clock.now()
        for _ in range(self.random.randint(2, 6)):
            when = begin + self.random.uniform(0.0, TROUBLE_SECONDS * 0.8)
            self.clock.call_at(when, self.clients.submit)
        self.troubles.make_for(TROUBLE_SECONDS)
        self.clock.run_until(begin + TROUBLE_SECONDS)
        self.troubles.mend()
        self.clock.run_until(self.clock.now() + PEACE_SECONDS, self._is_through)
        return self.history

    def _is_through(self) -> bool:
        """Everything acknowledged has ended, and nothing waits for an acknowledgement, or to be
        committed or done."""
        if self.history.complaints:
            return True
        if any(not one.is_running or one.clock.is_frozen for one in self.schedulers):
            return False
        if not all(one.node.runtime.is_quiet for one in self.schedulers):
            return False
        if not self.clients.are_done:
            return False
        for job, count in self.history.acknowledged.items():
            row = self.clients.home_of(job).store.job(job)
            if row is None or row.succeeded + row.failed + row.cancelled < count:
                return False
        return all(
            not record.outcomes
            for worker in self.workers
            for record in worker.machine.schedulers.values()
        )
