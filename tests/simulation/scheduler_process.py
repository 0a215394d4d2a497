"""A scheduler of the simulated swarm: the real machine and role over a journal in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import msgspec

from mycel.core.authenticators import Secret
from mycel.core.effects import (
    JobsAdvanced,
    JobsForgotten,
    Reply,
    TaskLeft,
    TaskStreamed,
    TaskWrote,
    Tell,
)
from mycel.core.events import Event, Listen, Submit
from mycel.core.identifiers import (
    LeaseId,
    PeerId,
)
from mycel.core.invariants import check_scheduler
from mycel.core.journal import Entry, JobOpened, Restored
from mycel.core.machine_settings import RetrySettings, SchedulerSettings
from mycel.core.scheduler import Scheduler
from mycel.discovery.methods import Ways
from mycel.roles.scheduler.job_credentials import Credentials
from mycel.roles.scheduler.scheduler_node import SchedulerNode
from mycel.runtime.runtime import Done
from mycel.store.checkpoints import MemoryCheckpoints
from mycel.testing.store.memory_journal import MemoryStore
from mycel.testing.swarm.memory_swarm import MemoryNetwork
from tests.core.keys import keyed

from .history import History
from .processes import BOTH_WAYS, SWARM, Checked, Process, digest, ignore
from .time import ProcessClock, VirtualClock
from .tokens import Tokens, bind

SWEEP_SECONDS = 5.0
AT_ONCE_SHARE = 0.3
"""Of the commits: on the loop's own thread, as a quick disk allows."""
SETTINGS = SchedulerSettings(
    fetch_bytes=100,
    retention_bytes=1 << 40,
    retry=RetrySettings(backoff_base=0.5, backoff_max=4.0, max_attempts=4, max_retries=9),
)


class ProcessJournal:
    """The disk outlives the process; its answers reach it only while it runs."""

    def __init__(
        self, store: MemoryStore, clock: ProcessClock, opening: Callable[[], None]
    ) -> None:
        """`opening` is told when the writing of a new job begins."""
        self._store = store
        self._clock = clock
        self._opening = opening

    def raise_boot(self) -> int:
        return self._store.raise_boot()

    def secret(self) -> Secret:
        return self._store.secret()

    def restore(self) -> Restored:
        return self._store.restore()

    def commit(self, entries: Sequence[Entry], done: Done) -> None:
        def on_disk(error: BaseException | None) -> None:
            self._clock.call_at(0.0, lambda: done(error))

        self._store.commit(entries, on_disk)
        if any(isinstance(entry, JobOpened) for entry in entries):
            self._opening()

    def commit_at_once(self, entries: Sequence[Entry]) -> bool:
        return self._store.commit_at_once(entries)

    def close(self) -> None: ...


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
            ignore,
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
        self.on_opening: Callable[[], None] = lambda: None
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
        self.machine = Scheduler(
            self.settings, digest=digest, keyed=keyed, random=self.random.random
        )
        self.node = SchedulerNode(
            Checked(self.machine, check_scheduler, self.history, self.peer),  # type: ignore[arg-type]
            self.clock,
            ProcessJournal(self.store, self.clock, lambda: self.on_opening()),
            self,
            swarm_name=SWARM,
            gateways=self._gateways,
            checkpoints=self.checkpoints,
            announce_seconds=5.0,
            ways=self.ways,
            random=self.random,
            note=ignore,
            failed=self._commit_failed,
            alarm=self._entry_refused,
            credentials=self.credentials,
        )
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
        held = None if known is None else known.registration
        if held is not None and held.id != lease:
            held = None
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

    def _entry_refused(self, event: str, **fields: object) -> None:
        self.history.complaints.append(f"{event}: {fields}")

    def _commit_failed(self, error: BaseException) -> None:
        self.history.complaints.append(f"a commit failed: {error}")
