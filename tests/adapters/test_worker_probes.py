"""How workers without a link are asked for signs of life: knocks, and dials where they are not
heard."""

from __future__ import annotations

from random import Random
from typing import Any, cast

import pytest

from mycel.core.effects import Check, Effect
from mycel.core.events import CheckAnswered, CheckPutOff, DialFailed, Event
from mycel.core.identifiers import PeerId
from mycel.discovery.methods import Ways
from mycel.membership import probes
from mycel.membership.member import Member
from mycel.membership.protocols import PROTOCOLS
from mycel.membership.revocations import Revoking
from mycel.roles.scheduler.scheduler_node import SchedulerNode
from mycel.runtime.runtime import Runtime
from mycel.testing.store.memory_journal import MemoryStore
from mycel.testing.swarm.memory_swarm import Faults, MemoryNetwork
from tests.simulation.time import ProcessClock, VirtualClock

ME = PeerId("me")
SECONDS = 5.0


class Told:
    """A machine that remembers what it hears of checks."""

    wake_at: float | None = None

    def __init__(self) -> None:
        self.events: list[Event] = []

    def handle(self, event: Event, now: float, *, more: bool = False) -> list[Effect]:
        if isinstance(event, CheckAnswered | CheckPutOff | DialFailed):
            self.events.append(event)
        return []


class Stage:
    def __init__(self, faults: Faults | None = None) -> None:
        self._world = VirtualClock()
        self.network = MemoryNetwork(self._world, Random(1), faults or Faults())
        self._clock = ProcessClock(self._world, 0.0)
        self._machine = Told()
        self._node = SchedulerNode(
            cast(Any, self._machine),
            self._clock,
            MemoryStore(self._world),
            cast(Any, self),
            swarm_name="test",
            gateways=(),
            announce_seconds=1e6,
            ways=Ways(),
            random=Random(1),
            note=_ignore,
            failed=_fail,
        )
        self.swarm = self.network.start(ME, self._node, PROTOCOLS)
        self._node.start(self.swarm)

    def __getattr__(self, name: str) -> Any:
        """The clients' side, of which nothing is asked here."""
        return _ignore

    def worker(self, name: str, *, met: bool = True) -> PeerId:
        """It answers pings; if it was met, it has left again."""
        clock = ProcessClock(self._world, 0.0)
        runtime = Runtime(Told(), clock, None, {}, _fail)
        member = Member(clock, ("worker",), (), _ignore, runtime, Revoking("test", _ignore))
        swarm = self.network.start(PeerId(name), member, PROTOCOLS)
        member.join(swarm)
        if met:
            self.swarm.dial_peer(swarm.peer, swarm.addresses)
            self.run(0.1)
            self.swarm.disconnect(swarm.peer)
            self.run(0.1)
        return swarm.peer

    def check(self, peer: PeerId, *, is_thorough: bool = False) -> list[Event]:
        """What is told until long after the answer is late."""
        self._machine.events.clear()
        self.ask(peer, is_thorough=is_thorough)
        self.run(3 * SECONDS)
        return self.events

    def ask(self, peer: PeerId, *, is_thorough: bool = False) -> None:
        address = self.network.address_of(peer)
        self._node._checks.perform(Check(peer, (address,), SECONDS, is_thorough))

    def run(self, seconds: float) -> None:
        self._world.run_until(self._world.now() + seconds)

    @property
    def events(self) -> list[Event]:
        return list(self._machine.events)

    @property
    def dials(self) -> int:
        return sum(self.swarm.figures().dials.values())


def _ignore(*arguments: object, **fields: object) -> None: ...


def _fail(error: BaseException) -> None:
    raise error


def test_a_worker_that_was_met_is_knocked_at_and_not_connected() -> None:
    stage = Stage()
    peer = stage.worker("worker")
    dials = stage.dials
    assert stage.check(peer) == [CheckAnswered(peer, 0.0, hears_knocks=True)]
    assert stage.dials == dials


def test_one_that_was_never_met_is_dialled_and_knocked_at_from_then_on() -> None:
    """What stands in its record may lead to somebody else."""
    stage = Stage()
    peer = stage.worker("worker", met=False)
    [first] = stage.check(peer)
    assert isinstance(first, CheckAnswered)
    assert first.hears_knocks is None
    assert not stage.swarm.peers(), "the connection was made for the check"
    [second] = stage.check(peer)
    assert isinstance(second, CheckAnswered)
    assert second.hears_knocks


def test_where_knocks_are_filtered_it_is_dialled_in_time() -> None:
    stage = Stage(Faults(knock_loss=1.0))
    peer = stage.worker("worker")
    stage.ask(peer)
    stage.run(0.5 * SECONDS)
    [answer] = stage.events
    assert isinstance(answer, CheckAnswered)
    assert answer.hears_knocks is False


def test_a_lost_knock_is_repeated() -> None:
    stage = Stage(Faults(knock_loss=0.4))
    answers = [stage.check(stage.worker(f"worker-{number}"))[0] for number in range(20)]
    heard = [one.hears_knocks for one in answers if isinstance(one, CheckAnswered)]
    assert len(heard) == 20, "whoever hears none is dialled"
    assert heard.count(True) >= 15


def test_a_thorough_check_is_a_connection() -> None:
    stage = Stage()
    peer = stage.worker("worker")
    dials = stage.dials
    [answer] = stage.check(peer, is_thorough=True)
    assert isinstance(answer, CheckAnswered)
    assert answer.hears_knocks is None
    assert stage.dials == dials + 1


def test_of_a_dead_one_the_refusal_tells() -> None:
    stage = Stage()
    peer = stage.worker("worker")
    stage.network.kill(peer)
    assert stage.check(peer) == [DialFailed(peer, refused=True)]


def test_of_one_that_vanished_nothing_is_told() -> None:
    stage = Stage()
    peer = stage.worker("worker")
    stage.network.partition(ME, peer)
    assert stage.check(peer) == []


def test_without_room_to_dial_the_check_is_put_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "DIALS_MAX", 1)
    stage = Stage()
    met = [stage.worker(f"met-{number}") for number in range(2)]
    unmet = stage.worker("unmet", met=False)
    for peer in (*met, unmet):
        stage.network.partition(ME, peer)
    stage.ask(met[0], is_thorough=True)
    stage.ask(met[1])
    stage.ask(unmet)
    stage.run(0.5 * SECONDS)
    told = [CheckPutOff(unmet, after_knocks=False), CheckPutOff(met[1], after_knocks=True)]
    assert stage.events == told


def test_without_room_to_dial_a_knock_serves_for_a_thorough_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probes, "DIALS_MAX", 0)
    stage = Stage()
    peer = stage.worker("worker")
    assert stage.check(peer, is_thorough=True) == [CheckAnswered(peer, 0.0, hears_knocks=True)]


def test_one_that_is_called_meanwhile_stays_connected() -> None:
    stage = Stage()
    peer = stage.worker("worker")
    stage.ask(peer, is_thorough=True)
    stage._node._checks.wanted(peer)
    stage.run(SECONDS)
    assert [facts.peer for facts in stage.swarm.peers()] == [peer]
