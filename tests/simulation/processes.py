"""The processes of a simulated swarm: the real machines and roles over in-memory adapters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import msgspec

from mycel.core.effects import (
    Effect,
    JobsAdvanced,
    JobsForgotten,
    Reply,
    Send,
    TaskLeft,
    TaskStreamed,
    TaskWrote,
    Tell,
)
from mycel.core.events import Event, Listen, Revoked, Submit
from mycel.core.identifiers import (
    AttemptId,
    JobId,
    LaneId,
    LeaseId,
    PeerId,
    parse_task_id,
)
from mycel.core.invariants import check_scheduler, check_worker
from mycel.core.journal import Entry, Restored
from mycel.core.messages import LeaseOver, Offer, Text
from mycel.core.resources import Capabilities, ServedModel
from mycel.core.rights import Rights
from mycel.core.scheduler import Scheduler
from mycel.core.settings import RetrySettings, SchedulerSettings, WorkerSettings
from mycel.core.work import Run, reserved
from mycel.core.worker import WorkerMachine
from mycel.discovery.publishing import Publishing
from mycel.discovery.ways import Ways
from mycel.drivers.interface import Finished
from mycel.drivers.memory import MemoryDriver
from mycel.node.runtime import Done
from mycel.roles.credentials import Credentials
from mycel.roles.gating import GatewayNode
from mycel.roles.protocols import PROTOCOLS
from mycel.roles.scheduling import SchedulerNode
from mycel.roles.working import WorkerNode
from mycel.store.checkpoints import MemoryCheckpoints
from mycel.store.memory import MemoryStore
from mycel.store.spool import MemorySpool
from mycel.swarm.interface import Liveness
from mycel.swarm.memory import MemoryNetwork, MemorySwarm

from .history import Execution, History
from .time import EPOCH, ProcessClock, VirtualClock
from .tokens import Tokens, bind, inspect

SWARM = "simulated"
SWEEP_SECONDS = 5.0
MODEL = "parrot"
LANE_SECONDS = 0.1
"""What stood in a lane may begin so long after its lease has ended."""
AT_ONCE_SHARE = 0.3
"""Of the commits: on the loop's own thread, as a quick disk allows."""
BOTH_WAYS = Ways()
INLINE_BYTES_MAX = 200
SETTINGS = SchedulerSettings(
    idle_lease_seconds=8.0,
    fetch_bytes=100,
    retention_bytes=1 << 40,
    retry=RetrySettings(backoff_base=0.5, backoff_max=4.0, max_attempts=4, max_retries=9),
)


def digest(value: bytes) -> bytes:
    """Cheap and not cryptographic: nothing lies in here but the faults we make."""
    return len(value).to_bytes(4, "big") + value[-8:]


class Checked:
    """A machine whose invariants are checked after every event."""

    def __init__(self, machine: Any, check: Callable[[Any], None], history: History) -> None:
        self._machine = machine
        self._check = check
        self._history = history

    @property
    def wake_at(self) -> float | None:
        wake_at: float | None = self._machine.wake_at
        return wake_at

    def handle(self, event: Event, now: float) -> list[Effect]:
        effects: list[Effect] = self._machine.handle(event, now)
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, (Offer, LeaseOver)):
                self._history.objections[effect.message.reason] += 1
        try:
            self._check(self._machine)
        except AssertionError as error:
            self._history.complaints.append(f"{type(event).__name__}: {error}")
            raise
        return effects


class ProcessJournal:
    """The disk outlives the process; its answers reach it only while it runs."""

    def __init__(self, store: MemoryStore, clock: ProcessClock) -> None:
        self._store = store
        self._clock = clock

    def raise_boot(self) -> int:
        return self._store.raise_boot()

    def restore(self) -> Restored:
        return self._store.restore()

    def commit(self, entries: Sequence[Entry], done: Done) -> None:
        def on_disk(error: BaseException | None) -> None:
            self._clock.call_at(0.0, lambda: done(error))

        self._store.commit(entries, on_disk)

    def commit_at_once(self, entries: Sequence[Entry]) -> bool:
        return self._store.commit_at_once(entries)

    def close(self) -> None: ...


class Process:
    """Something that can be started, frozen and killed."""

    def __init__(self, world: VirtualClock, network: MemoryNetwork, peer: str, random: Random):
        self.world = world
        self.network = network
        self.peer = PeerId(peer)
        self.random = random
        self.offset = random.uniform(-500.0, 500.0)
        self.clock = ProcessClock(world, self.offset)
        self.liveness = Liveness()
        self.is_running = False
        self.started_at = -1.0
        self.thawed_at = -1.0

    def start(self) -> None:
        assert not self.is_running
        self.clock = ProcessClock(self.world, self.offset)
        self.is_running = True
        self.started_at = self.world.now()
        self.boot()

    def boot(self) -> None:
        raise NotImplementedError

    def kill(self) -> None:
        self.is_running = False
        self.clock.is_alive = False
        self.network.kill(self.peer)

    def freeze(self) -> None:
        self.clock.is_frozen = True
        self.network.freeze(self.peer)

    def thaw(self) -> None:
        if self.is_running and self.clock.is_frozen:
            self.thawed_at = self.world.now()
            self.network.thaw(self.peer)
            self.clock.thaw()

    def enter(self, listener: Any, roles: str) -> MemorySwarm:
        return self.network.start(
            self.peer,
            listener,
            PROTOCOLS,
            roles=frozenset({roles}),
            clock_offset_seconds=self.offset,
            liveness=self.liveness,
        )


class GatewayProcess(Process):
    gateways: tuple[str, ...] = ()

    def boot(self) -> None:
        node = GatewayNode(self.clock, self.random, SWARM, _ignore, gateways=self.gateways)
        node.start(self.enter(node, "gateway"))


class SchedulerProcess(Process):
    def __init__(
        self,
        world: VirtualClock,
        network: MemoryNetwork,
        peer: str,
        random: Random,
        gateways: tuple[str, ...],
        history: History,
        ways: Ways = BOTH_WAYS,
        tokens: Tokens | None = None,
    ) -> None:
        super().__init__(world, network, peer, random)
        self.tokens = tokens = tokens or Tokens(random)
        # On disk, as the journal is.
        self.credentials = Credentials(
            lambda token: bind(token, self.peer),
            tokens.revoked,
            _ignore,
            wall=lambda: self.clock.unix(),
        )
        self.store = MemoryStore(
            world,
            lambda: random.uniform(0.0005, 0.02),
            at_once=lambda: random.random() < AT_ONCE_SHARE,
        )
        self.ways = ways
        self.history = history
        self.on_reply: Callable[[Reply], None] = lambda reply: None
        self.checkpoints = MemoryCheckpoints()
        self._gateways = gateways
        # Few links make it part from workers and call them again.
        self.settings = msgspec.structs.replace(
            SETTINGS,
            linked_workers_max=random.choice((1, 1, 256)),
            known_seconds=20.0,
            discovery_interval=10.0,
            health_check_interval=random.choice((10.0, 30.0)),
        )

    def boot(self) -> None:
        self.machine = Scheduler(self.settings, digest=digest, random=self.random.random)
        self.node = SchedulerNode(
            Checked(self.machine, check_scheduler, self.history),  # type: ignore[arg-type]
            self.clock,
            ProcessJournal(self.store, self.clock),
            self,
            swarm_name=SWARM,
            gateways=self._gateways,
            checkpoints=self.checkpoints,
            announce_seconds=5.0,
            ways=self.ways,
            random=self.random,
            note=_ignore,
            failed=self._commit_failed,
        )
        self.node.credentials = self.credentials
        self.node.start(self.enter(self.node, "scheduler"))
        self.node.post(Listen(True))
        self.booted_at = self.world.now()
        machine = self.machine
        sweep_at = self.clock.now() + SWEEP_SECONDS
        self.clock.call_at(sweep_at, lambda: self.checkpoints.sweep(machine.is_live))

    def kill(self) -> None:
        super().kill()
        self.store = self.store.crash()
        self.checkpoints.crash()

    def post(self, event: Event) -> None:
        """From a client; nothing happens while the process is down."""
        if self.is_running:
            if isinstance(event, Submit):
                self.credentials.keep(self.tokens.current, self.tokens.rights)
            self.clock.call_at(0.0, lambda: self.node.post(event))

    def was_awake_since(self, when: float) -> bool:
        """Whether it has run ever since, and was not frozen."""
        begun = max(self.started_at, self.thawed_at)
        return self.is_running and not self.clock.is_frozen and begun < when

    def known_boot(self, worker: PeerId) -> int | None:
        """Which life of a worker is in its table."""
        state = self.machine.state
        found = state.workers.get(worker) or state.known.get(worker)
        return None if found is None else found.boot

    def lease_end(self, worker: PeerId, lease: LeaseId) -> float | None:
        """When this lease ends here, in the world's time; None if it is not held."""
        known = self.machine.state.workers.get(worker) if self.is_running else None
        held = None if known is None else known.leases.get(lease)
        return None if held is None else held.ends_at - self.offset

    def reply(self, effect: Reply) -> None:
        self.on_reply(effect)

    def advanced(self, effect: JobsAdvanced) -> None: ...
    def told(self, effect: Tell) -> None:
        self.history.told.extend(effect.happenings)

    def streamed(self, effect: TaskStreamed) -> None: ...
    def wrote(self, effect: TaskWrote) -> None:
        self.history.wrote.append(effect)

    def left(self, effect: TaskLeft) -> None:
        self.checkpoints.drop(effect.job_id, effect.index)

    def forgotten(self, effect: JobsForgotten) -> None: ...

    def _commit_failed(self, error: BaseException) -> None:
        self.history.complaints.append(f"a commit failed: {error}")


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
        behaviour: Callable[[JobId, int], tuple[float, str]],
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
        self._behaviour = behaviour
        self.holders_end: Callable[[PeerId, PeerId, LeaseId], float | None] = _unknown
        self.padding: Callable[[JobId], int] = lambda job: 0
        self.on_killed: Callable[[Process], None] = lambda process: None
        self._settings = WorkerSettings(
            prefetch_seconds=prefetch_seconds,
            process_prefetch_seconds=prefetch_seconds,
            inline_bytes_max=INLINE_BYTES_MAX,
        )
        self.capabilities = Capabilities(
            cpu_cores=cores, memory=1 << 33, drivers=("process", "python", "model")
        )
        self.serves: tuple[ServedModel, ...] = ()

    def boot(self) -> None:
        self.life += 1
        self.machine = WorkerMachine(
            self._settings, self.capabilities, name=self.peer, digest=digest, inspect=inspect
        )
        self.node = WorkerNode(
            Checked(self.machine, self._check, self.history),  # type: ignore[arg-type]
            self.clock,
            self._spool,
            swarm_name=SWARM,
            gateways=self._gateways,
            ways=self.ways,
            publishing=Publishing(
                self.clock, self.capabilities, self.peer, "", self.ways.shard_bits, _ignore
            ),
            note=_ignore,
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
        for grant in machine.grants.values():
            if grant.is_open:
                theirs = self.holders_end(grant.scheduler, self.peer, grant.id)
                ours = grant.ends_at - self.offset
                assert theirs is None or ours <= theirs + 1e-6, "a lease outlives its holder's"

    @property
    def has_unstarted(self) -> bool:
        """Whether something waits behind another attempt in a lane."""
        lanes = [lane for grant in self.machine.grants.values() for lane in grant.lanes]
        return any(lane.held > 2 for lane in lanes)

    def _begin(self, run: Run) -> float:
        """Called when a task's code starts: written down before anything comes of it."""
        held = self.machine.held[run.attempt]
        found = parse_task_id(run.task_id)
        assert found is not None
        own, *handed = msgspec.json.decode(run.arguments)
        assert own == found[1], "it got another's arguments"
        self._check_right(held.grant.rights, run.task_id)
        execution = Execution(
            number=len(self.history.executions),
            worker=self.peer,
            worker_life=self.life,
            scheduler=held.grant.scheduler,
            task=found,
            attempt=held.id,
            lease=held.grant.id,
            cores=reserved(held.grant.shape).cpu_cores,
            started_at=self.world.now(),
            while_waking=self.world.now() - self.thawed_at < 0.001,
            handed=handed,
        )
        self.history.executions.append(execution)
        self._running[run.attempt] = execution
        seconds, end = self._behaviour(*found)
        self._ends[run.attempt] = end
        if end == "kill":
            self.clock.call_at(self.clock.now() + seconds / 2, lambda: self.on_killed(self))
        return seconds

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


def _unknown(scheduler: PeerId, worker: PeerId, lease: LeaseId) -> float | None:
    return None


def _ignore(event: str, **fields: object) -> None: ...
