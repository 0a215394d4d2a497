"""What the processes of a simulated swarm have in common, and its gateway."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from mycel.core.effects import (
    Effect,
    KeepCheckpoint,
    Note,
    ReadCheckpoint,
    Send,
    SendAhead,
)
from mycel.core.events import Event
from mycel.core.identifiers import AttemptId, PeerId
from mycel.core.messages import Assign, Refused, Register, Results
from mycel.discovery.methods import Ways
from mycel.membership.protocols import PROTOCOLS
from mycel.roles.gateway.gateway_node import GatewayNode
from mycel.swarm.interface import Liveness
from mycel.testing.swarm.memory_swarm import MemoryNetwork, MemorySwarm

from . import placement_witness
from .history import History
from .time import ProcessClock, VirtualClock

SWARM = "simulated"
BOTH_WAYS = Ways()
LIAR = "liar"


def digest(value: bytes) -> bytes:
    """Cheap and not cryptographic: nothing lies in here but the faults we make."""
    return len(value).to_bytes(4, "big") + value[-8:]


class Checked:
    """A machine whose invariants are checked after every event."""

    def __init__(
        self, machine: Any, check: Callable[[Any], None], history: History, peer: PeerId
    ) -> None:
        self.machine = machine
        self._peer = peer
        self._check = check
        self._history = history

    @property
    def wake_at(self) -> float | None:
        wake_at: float | None = self.machine.wake_at
        return wake_at

    def handle(self, event: Event, now: float, *, more: bool = False) -> list[Effect]:
        effects: list[Effect] = self.machine.handle(event, now, more=more)
        for effect in effects:
            self._witness(effect)
            if isinstance(effect, Send) and isinstance(effect.message, Refused):
                self._history.objections[effect.message.reason] += 1
        try:
            self._check(self.machine)
        except AssertionError as error:
            self._history.complaints.append(f"{type(event).__name__}: {error}")
            raise
        return effects

    def _witness(self, effect: Effect) -> None:
        """What a scheduler gives to whom; that nobody else gets at a task's checkpoints, and that
        none but the liar is taken for one."""
        if isinstance(effect, Send) and isinstance(effect.message, Results | Register):
            for outcome in effect.message.outcomes:
                self._history.charged[effect.peer, outcome.attempt] = outcome.cost
        if isinstance(effect, Send | SendAhead) and isinstance(effect.message, Assign):
            found = placement_witness.complaints(self.machine, effect.peer, effect.message)
            self._history.complaints.extend(found)
            for bundle in effect.message.bundles:
                for place, index in enumerate(bundle.indices):
                    attempt = (self._peer, AttemptId(bundle.first + place))
                    self._history.given[attempt] = (effect.peer, bundle.job_id, index)
        elif isinstance(effect, Note) and effect.event == "forgeries_refused":
            if effect.fields["peer"] != LIAR:
                self._history.complaints.append(f"an honest worker is taken for a liar: {effect}")
        elif isinstance(effect, KeepCheckpoint | ReadCheckpoint):
            number = effect.attempt if isinstance(effect, ReadCheckpoint) else effect.part.attempt
            given = self._history.given.get((self._peer, number))
            if given != (effect.peer, effect.job_id, effect.index):
                told = f"{effect.peer} gets at the checkpoint of {effect.job_id}.{effect.index}"
                self._history.complaints.append(f"{told} and was never given attempt {number}")


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
        node = GatewayNode(self.clock, self.random, SWARM, ignore, gateways=self.gateways)
        node.start(self.enter(node, "gateway"))


def ignore(event: str, **fields: object) -> None: ...
