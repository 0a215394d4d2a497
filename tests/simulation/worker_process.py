"""A worker of the simulated swarm, whose tasks run as the clients drew it, and are recorded."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from mycel.core.events import Event, Revoked
from mycel.core.identifiers import (
    AttemptId,
    JobId,
    LaneId,
    LeaseId,
    PeerId,
    parse_task_id,
)
from mycel.core.invariants import check_worker
from mycel.core.machine_settings import WorkerSettings
from mycel.core.messages import Text
from mycel.core.model.prices import Tariff
from mycel.core.model.resources import Capabilities, ServedModel
from mycel.core.model.work import Run, reserved
from mycel.core.rights import Rights
from mycel.core.worker import WorkerMachine
from mycel.discovery.methods import Ways
from mycel.discovery.publisher import Publishing
from mycel.drivers.interface import Finished
from mycel.roles.worker.worker_node import WorkerNode
from mycel.store.spool import MemorySpool
from mycel.testing.drivers.memory_driver import MemoryDriver
from mycel.testing.swarm.memory_swarm import MemoryNetwork

from .history import Execution, History
from .processes import BOTH_WAYS, SWARM, Checked, Process, digest, ignore
from .time import EPOCH, VirtualClock
from .tokens import inspect

MODEL = "parrot"
LANE_SECONDS = 0.1
"""What stood in a lane may begin so long after its lease has ended."""
INLINE_BYTES_MAX = 200


class WorkerProcess(Process):
    def __init__(
        self,
        world: VirtualClock,
        network: MemoryNetwork,
        peer: str,
        random: Random,
        gateways: tuple[str, ...],
        history: History,
        cores: float,
        prefetch_seconds: float,
        ways: Ways = BOTH_WAYS,
    ) -> None:
        super().__init__(world, network, peer, random)
        self.revoked: dict[bytes, float] = {}
        """What it knows to be revoked, on disk, and since when."""
        self.history = history
        self.ways = ways
        self.life = 0
        self._spool = MemorySpool()
        self._gateways = gateways
        self.behaviour: Callable[[JobId, int], tuple[float, str]] = lambda job, index: (
            0.0,
            "succeed",
        )
        self.holders_end: Callable[[PeerId, PeerId, LeaseId], float | None] = _unknown
        self.padding: Callable[[JobId], int] = lambda job: 0
        self.on_killed: Callable[[Process], None] = lambda process: None
        self._settings = WorkerSettings(
            prefetch_seconds=prefetch_seconds,
            process_prefetch_seconds=prefetch_seconds,
            inline_bytes_max=INLINE_BYTES_MAX,
        )
        self.capabilities = Capabilities(
            cpu_cores=cores,
            memory=1 << 33,
            drivers=("process", "python", "model"),
            price=Tariff(floor=0.25, cpu_core_hour=3.6),
        )
        self.is_broken = False
        """Its drivers fail whatever they run."""
        self.serves: tuple[ServedModel, ...] = ()

    def boot(self) -> None:
        self.life += 1
        self.machine = WorkerMachine(
            self._settings, self.capabilities, name=self.peer, digest=digest, inspect=inspect
        )
        self.node = WorkerNode(
            self.checked(),  # type: ignore[arg-type]
            self.clock,
            self._spool,
            swarm_name=SWARM,
            gateways=self._gateways,
            ways=self.ways,
            publishing=Publishing(
                self.clock, self.capabilities, self.peer, "", self.ways.shard_bits, ignore
            ),
            note=ignore,
            failed=lambda error: None,
        )
        self.drivers = [
            MemoryDriver(
                self.clock,
                self,
                self.random,
                self._begin,
                self._outcome,
                name=name,
                output=lambda run: f"{run.task_id}#{run.number}".encode(),
            )
            for name in ("process", "python", "model")
        ]
        self._running: dict[int, Execution] = {}
        self._ends: dict[int, str] = {}
        self.node.start(self.enter(self.node, "worker"), list(self.drivers))
        self.node.runtime.post(Revoked(frozenset(self.revoked)))
        self.node.serve(self.serves)

    def checked(self) -> Checked:
        return Checked(self.machine, self._check, self.history, self.peer)

    def hear_of(self, revoked: set[bytes]) -> None:
        """Gossip, or a hello; a process that is down hears of it with its next one."""
        news = revoked - self.revoked.keys()
        self.revoked |= dict.fromkeys(news, self.world.now())
        self.post(Revoked(frozenset(news)))

    def serve(self, slots: int | None) -> None:
        """One model with so many slots, or no model."""
        self.serves = () if slots is None else (ServedModel(MODEL, slots=slots),)
        if self.is_running:
            self.clock.call_at(self.clock.now(), lambda: self.node.serve(self.serves))

    def kill(self) -> None:
        for driver in self.drivers:
            driver.die()
        for execution in self._running.values():
            execution.ended_at = self.world.now()
        self._running.clear()
        super().kill()

    def post(self, event: Event) -> None:
        """From its owner; nothing happens while the process is down."""
        if self.is_running:
            self.clock.call_at(0.0, lambda: self.node.runtime.post(event))

    def _check(self, machine: WorkerMachine) -> None:
        """Its own invariants, and the one that it shares with its lease's holder: a lease ends
        at the worker before it ends at the scheduler."""
        check_worker(machine)
        for record in machine.schedulers.values():
            registration = record.registration
            if registration is not None and registration.is_open:
                theirs = self.holders_end(record.peer, self.peer, registration.id)
                ours = registration.ends_at - self.offset
                assert theirs is None or ours <= theirs + 1e-6, "a lease outlives its holder's"

    @property
    def has_unstarted(self) -> bool:
        """Whether something waits behind another attempt in a lane."""
        lanes = [lane for one in self.machine.lanes.values() for lane in one.lanes]
        return any(lane.held > 2 for lane in lanes)

    def _begin(self, run: Run) -> float:
        """Called when a task's code starts: written down before anything comes of it."""
        held = self.machine.held[run.attempt]
        found = parse_task_id(run.task_id)
        assert found is not None
        handed = self._handed(run, found[1])
        self._check_right(held.lanes.rights, run.task_id)
        execution = Execution(
            number=len(self.history.executions),
            worker=self.peer,
            worker_life=self.life,
            scheduler=held.scheduler,
            task=found,
            attempt=held.id,
            lease=held.lease,
            cores=reserved(held.lanes.shape).cpu_cores,
            started_at=self.world.now(),
            while_waking=self.world.now() - self.thawed_at < 0.001,
            handed=handed,
        )
        self.history.executions.append(execution)
        self._running[run.attempt] = execution
        seconds, end = self.behaviour(*found)
        if self.is_broken:
            end = "fault"
        self._ends[run.attempt] = end
        if end == "kill":
            self.clock.call_at(self.clock.now() + seconds / 2, lambda: self.on_killed(self))
        return seconds

    def _handed(self, run: Run, index: int) -> list[list[Any]]:
        own: int
        handed: list[list[Any]]
        own, *handed = msgspec.json.decode(run.arguments)
        assert own == index, "it got another's arguments"
        return handed

    def _check_right(self, rights: Rights, task: str) -> None:
        """Nothing is begun under a token that is over; a lane may be a moment ahead."""
        if self.world.now() - self.thawed_at < LANE_SECONDS:
            return
        now = self.world.now() - LANE_SECONDS
        heard_at = [self.revoked[one] for one in rights.revocation_ids if one in self.revoked]
        if any(when < now for when in heard_at):
            self.history.complaints.append(f"{task} was begun under a revoked token")
        if rights.is_over(now + EPOCH):
            self.history.complaints.append(f"{task} was begun under an expired token")

    def _outcome(self, run: Run) -> Finished:
        execution = self._running[run.attempt]
        end = self._ends.pop(run.attempt)
        if end != "succeed":
            return Finished(
                run.attempt,
                "failed",
                error="it failed",
                driver_fault=end == "fault",
                crashed=end == "crash",
            )
        value = {
            "task": run.task_id,
            "attempt": execution.attempt,
            "execution": execution.number,
            "padding": "x" * self.padding(execution.task[0]),
        }
        return Finished(run.attempt, "succeeded", value=msgspec.json.encode(value))

    # Between the drivers and the node, so that ends are written down too.

    def started(self, attempts: list[tuple[AttemptId, float]]) -> None:
        self.node.started(attempts)
        for run, _ in attempts:
            self._report(run, self._running[run])

    def _report(self, run: AttemptId, execution: Execution) -> None:
        """A task that takes long looks for what an earlier try has left, and leaves its own."""
        node, history = self.node, self.history

        def restored(data: bytes | None) -> None:
            if data is not None:
                history.restored.append((execution, data))

        left = msgspec.json.encode([list(execution.task), execution.number])
        node.reporting.restore(run, restored)
        node.reporting.progressed(run, b'{"progress":0.5}')
        node.reporting.checkpoint(run, left + b" " * self.random.choice((0, 700_000)))

    def streamed(self, attempt: AttemptId, piece: bytes) -> None:
        self.node.streamed(attempt, piece)

    def wrote(self, texts: list[Text]) -> None:
        self.node.wrote(texts)

    def finished(self, finished: list[Finished]) -> None:
        for one in finished:
            self._running.pop(one.attempt).ended_at = self.world.now()
        self.node.finished(finished)

    def returned(self, lane: LaneId, attempts: list[AttemptId]) -> None:
        self.node.returned(lane, attempts)

    def withdrawn(self, attempts: list[AttemptId]) -> None:
        self.node.withdrawn(attempts)


def _succeed(job: JobId, index: int) -> tuple[float, str]:
    return 0.0, "succeed"


def _unknown(scheduler: PeerId, worker: PeerId, lease: LeaseId) -> float | None:
    return None
