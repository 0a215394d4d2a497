"""A scheduler under a configuration, with workers, in virtual time: nothing goes wrong unless a
test makes it.

The configuration is read from TOML as a program would read it, and changed in the running
scheduler as SIGHUP would change it.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from mycel.config import Configuration, load
from mycel.core.effects import Reply
from mycel.core.events import Event, ReadWorkers, Submit
from mycel.core.identifiers import JobId, PeerId, RequestId, ulid
from mycel.core.model.jobs import Specification
from mycel.core.model.resources import Requirements
from mycel.core.model.work import Retry, Work
from mycel.core.states import TaskState
from mycel.core.views import SubmittedView, WorkerView
from mycel.membership.protocols import liveness_of, ways_of
from mycel.roles.scheduler.program import settings_of
from mycel.testing.swarm.memory_swarm import Faults, MemoryNetwork
from tests.simulation.history import Execution, History
from tests.simulation.processes import GatewayProcess
from tests.simulation.scheduler_process import SchedulerProcess
from tests.simulation.time import VirtualClock
from tests.simulation.worker_process import WorkerProcess


class Scene:
    """Worker n has the label `name = n`, `cores[n]` cores, and takes `pace[n]` times as long."""

    def __init__(
        self,
        folder: Path,
        settings: str = "",
        *,
        cores: tuple[float, ...] = (2.0,),
        pace: tuple[float, ...] = (),
        local: int | None = None,
        worker: type[WorkerProcess] = WorkerProcess,
    ) -> None:
        self._folder = folder
        self._random = Random(1)
        self.configuration = self._read(settings)
        self.clock = VirtualClock()
        self.history = History()
        quick = Faults(delay_seconds_min=0.0002, delay_seconds_max=0.0004)
        self.network = MemoryNetwork(self.clock, self._random, quick)
        gateway = PeerId("gateway")
        addresses = (self.network.address_of(gateway),)
        ways = ways_of(self.configuration)
        self.scheduler = SchedulerProcess(
            self.clock, self.network, "scheduler", self._random, addresses, self.history, ways
        )
        self.scheduler.settings = settings_of(self.configuration)
        self.scheduler.liveness = liveness_of(self.configuration)
        self.scheduler.on_reply = self._replied
        self.workers = [
            worker(
                self.clock,
                self.network,
                f"worker-{number}",
                self._random,
                addresses,
                self.history,
                amount,
                0.005,
                ways,
            )
            for number, amount in enumerate(cores)
        ]
        for number, one in enumerate(self.workers):
            one.behaviour = partial(self._behaviour, pace[number] if pace else 1.0)
            one.capabilities = msgspec.structs.replace(
                one.capabilities, labels=(("name", str(number)),)
            )
        self._answers: dict[RequestId, object] = {}
        self._request = 0
        self._shapes = 0
        self._ends: dict[JobId, tuple[float, str]] = {}
        GatewayProcess(self.clock, self.network, gateway, self._random).start()
        self.scheduler.start()
        if local is not None:
            self.scheduler.machine.state.local_workers.add(self.workers[local].peer)
        for one in self.workers:
            one.start()
        self.run(1.0)

    def _read(self, settings: str) -> Configuration:
        path = self._folder / "mycel.toml"
        path.write_text(settings, encoding="utf-8")
        return load(path, {}, {})

    def change(self, settings: str) -> None:
        """In the running scheduler."""
        changed = self._read(settings)
        self.scheduler.node.reconfigure(settings_of(changed), changed.scheduler.announce_interval)
        self.run(0.1)

    def run(self, seconds: float) -> None:
        self.clock.run_until(self.clock.now() + seconds)

    # Work

    def _behaviour(self, pace: float, job: JobId, index: int) -> tuple[float, str]:
        seconds, end = self._ends[job]
        return seconds * pace, end

    def submit(
        self,
        seconds: float = 1.0,
        *,
        count: int = 1,
        cores: float = 1.0,
        end: str = "succeed",
        retry: Retry | None = None,
        timeout_seconds: float | None = None,
        on: int | None = None,
    ) -> JobId:
        """`on`: only that worker will do."""
        job = ulid(int(self.clock.now() * 1000), self._random.randbytes(10))
        self._ends[job] = (seconds, end)
        specification = Specification(
            work=Work(driver="process", command=("true",), timeout_seconds=timeout_seconds),
            requirements=Requirements(
                cpu_cores=cores, labels=() if on is None else (("name", str(on)),)
            ),
            retry=retry or Retry(),
        )
        answer = self.ask(
            lambda request: Submit(
                request=request,
                job_id=job,
                name="",
                user="owner",
                specification=specification,
                count=count,
                arguments=b"[" + b",".join(b"[%d]" % index for index in range(count)) + b"]",
                close=True,
            )
        )
        assert isinstance(answer, SubmittedView), answer
        return job

    def ask(self, make: Any) -> object:
        self._request += 1
        request = RequestId(self._request)
        event: Event = make(request)
        self.scheduler.post(event)
        ends_at = self.clock.now() + 1.0
        while request not in self._answers:
            assert self.clock.now() < ends_at, f"no answer to {event}"
            self.run(0.001)
        return self._answers.pop(request)

    def _replied(self, reply: Reply) -> None:
        self._answers[reply.request] = reply.answer

    def places(self, count: int) -> list[int]:
        """On which workers quick tasks run, each of a shape of its own, one after another."""
        jobs = []
        for _ in range(count):
            self._shapes += 1
            jobs.append(self.submit(0.2, cores=0.1 + self._shapes / 1000))
            self.run(2.0)
        return [int(self.executions(job)[0].worker.rpartition("-")[2]) for job in jobs]

    # Looking

    def executions(self, job: JobId) -> list[Execution]:
        return [one for one in self.history.executions if one.task[0] == job]

    @property
    def running(self) -> int:
        return sum(one.ended_at is None for one in self.history.executions)

    def state(self, job: JobId, index: int = 0) -> str:
        result = self.scheduler.store.result(job, index)
        return TaskState.QUEUED.value if result is None else result.ended.state

    def pauses(self, job: JobId) -> list[float]:
        """Seconds between the end of one execution and the start of the next."""
        runs = self.executions(job)
        ends = [one.ended_at for one in runs]
        return [
            after.started_at - before
            for before, after in zip(ends, runs[1:], strict=False)
            if before is not None
        ]

    def worker(self, number: int) -> WorkerView | None:
        views = self.ask(ReadWorkers)
        assert isinstance(views, list)
        return next((one for one in views if one.peer == self.workers[number].peer), None)

    def worker_state(self, number: int) -> str:
        """Empty for one that is not known any more."""
        view = self.worker(number)
        return "" if view is None else view.state
