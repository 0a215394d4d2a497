"""What a node concludes from dials that fail, and with whom it has links."""

from __future__ import annotations

from random import Random

import pytest

from mycel.core.effects import Dial, Effect
from mycel.core.events import DialFailed, Event
from mycel.core.identifiers import PeerId
from mycel.membership.member import DIALLED_MAX, Member
from mycel.membership.peer_requests import SERIES_MAX
from mycel.membership.protocols import PROTOCOLS
from mycel.membership.revocations import Revoking
from mycel.runtime.runtime import Runtime
from mycel.swarm.interface import (
    CONTROL_PROTOCOL,
    WORK_PROTOCOL,
    Admission,
    DialFailure,
    Stream,
)
from mycel.swarm.null_listener import IndifferentListener
from mycel.testing.swarm.memory_swarm import MemoryNetwork
from tests.simulation.time import ProcessClock, VirtualClock

WORKER = PeerId("worker")
AT_HOME = "/ip4/192.168.1.7/tcp/4001/p2p/worker"
THROUGH = "/ip4/198.51.100.1/tcp/4001/p2p/gateway/p2p-circuit/p2p/worker"

Failures = dict[str, DialFailure] | list[tuple[str, DialFailure]]


class Told:
    """A machine that remembers what it hears of dials."""

    wake_at: float | None = None

    def __init__(self) -> None:
        self.dials: list[Event] = []

    def handle(self, event: Event, now: float, *, more: bool = False) -> list[Effect]:
        if isinstance(event, DialFailed):
            self.dials.append(event)
        return []


class Stage:
    def __init__(self) -> None:
        self._world = VirtualClock()
        clock = ProcessClock(self._world, 0.0)
        self._machine = Told()
        runtime = Runtime(self._machine, clock, None, {}, self._failed)
        revoking = Revoking("test", _ignore)
        self._member = Member(clock, ("scheduler",), (), _ignore, runtime, revoking)
        self.network = MemoryNetwork(self._world, Random(1))
        swarm = self.network.start(PeerId("me"), self._member, PROTOCOLS)
        self.dialled: list[str] = []
        vars(swarm)["dial"] = self.dialled.append  # the test says what becomes of it
        vars(swarm)["dial_peer"] = self.dialled.append
        self._member.join(swarm)

    def _failed(self, error: BaseException) -> None:
        raise error

    def was_connected(self, address: str, relayed: bool) -> None:
        self._member.connected(WORKER, Admission(), address, relayed)

    def became_direct(self, address: str) -> None:
        self._member.path_changed(WORKER, address, False)

    def run(self, seconds: float) -> None:
        self._world.run_until(self._world.now() + seconds)

    @property
    def is_linked(self) -> bool:
        return self._member.is_linked(WORKER)

    def ping(self) -> list[str]:
        """What is said of it, once something is."""
        said: list[str] = []
        self._member.ping(WORKER, 1, 5.0, lambda _, error: said.append(error))
        return said

    def cannot_be_reached(self) -> None:
        self._member.dial_failed(f"/p2p/{WORKER}", DialFailure.REFUSED, "nobody is there")

    def dial_fails(self, failures: Failures, *others: str) -> Event:
        """One after the other; the worker has further addresses."""
        told = list(failures.items()) if isinstance(failures, dict) else failures
        self._member.disconnected(WORKER, "it was lost")
        self._member.dial(Dial(WORKER, (*dict(told), *others)))
        for address, failure in told:
            self._member.dial_failed(address, failure, "as the test says")
        self._world.run_until(self._world.now() + 1.0)
        [heard] = self._machine.dials
        return heard


def _ignore(event: str, **fields: object) -> None: ...


@pytest.fixture
def stage() -> Stage:
    return Stage()


REFUSED = {AT_HOME: DialFailure.REFUSED, THROUGH: DialFailure.SILENT}


def test_a_refusal_where_the_peer_was_tells_that_it_is_gone(stage: Stage) -> None:
    stage.was_connected("/ip4/192.168.1.7/tcp/51234", relayed=False)
    assert stage.dial_fails(REFUSED) == DialFailed(WORKER, refused=True)


def test_a_refusal_in_our_own_lan_tells_nothing_of_who_came_through_a_relay(stage: Stage) -> None:
    stage.was_connected(THROUGH, relayed=True)
    assert stage.dial_fails(REFUSED) == DialFailed(WORKER, refused=False)


def test_nor_of_who_was_then_met_directly_at_its_router(stage: Stage) -> None:
    stage.was_connected(THROUGH, relayed=True)
    stage.became_direct("/ip4/203.0.113.9/tcp/4001/p2p/worker")
    assert stage.dial_fails(REFUSED) == DialFailed(WORKER, refused=False)


def test_a_refusal_at_this_machine_tells_nothing_of_another_one(stage: Stage) -> None:
    stage.was_connected("/ip4/192.168.1.7/tcp/51234", relayed=False)
    failures = {"/ip4/127.0.0.1/tcp/4001/p2p/worker": DialFailure.REFUSED}
    assert stage.dial_fails(failures) == DialFailed(WORKER, refused=False)


def test_a_refusal_at_this_machine_tells_of_who_was_here(stage: Stage) -> None:
    stage.was_connected("/ip4/127.0.0.1/tcp/51234", relayed=False)
    failures = {"/ip4/127.0.5.1/tcp/4001/p2p/worker": DialFailure.REFUSED}
    assert stage.dial_fails(failures) == DialFailed(WORKER, refused=True)


def test_a_gateways_refusal_tells_nothing(stage: Stage) -> None:
    stage.was_connected("/ip4/198.51.100.1/tcp/4001", relayed=False)
    assert stage.dial_fails({THROUGH: DialFailure.REFUSED}) == DialFailed(WORKER, refused=False)


QUIC_AT_HOME = "/ip4/192.168.1.7/udp/4001/quic-v1/p2p/worker"


def test_quic_is_dialled_once_tcp_has_not_got_through(stage: Stage) -> None:
    silent = {AT_HOME: DialFailure.SILENT, QUIC_AT_HOME: DialFailure.SILENT}
    assert stage.dial_fails(silent) == DialFailed(WORKER, refused=False)
    assert stage.dialled == [AT_HOME, QUIC_AT_HOME]


def test_quic_is_not_dialled_where_nobody_listens(stage: Stage) -> None:
    dead = {AT_HOME: DialFailure.REFUSED, QUIC_AT_HOME: DialFailure.SILENT}
    assert stage.dial_fails(dead) == DialFailed(WORKER, refused=True)
    assert stage.dialled == [AT_HOME]


def test_who_broke_a_call_off_is_called_again_before_quic_is_tried(stage: Stage) -> None:
    stage.was_connected("/ip4/192.168.1.7/tcp/51234", relayed=False)
    dying = [(AT_HOME, DialFailure.OTHER), (AT_HOME, DialFailure.REFUSED)]
    assert stage.dial_fails(dying, QUIC_AT_HOME) == DialFailed(WORKER, refused=True)
    assert stage.dialled == [AT_HOME, AT_HOME]


def test_who_breaks_every_call_off_is_called_by_quic(stage: Stage) -> None:
    stage.was_connected("/ip4/192.168.1.7/tcp/51234", relayed=False)
    hostile = [(AT_HOME, DialFailure.OTHER)] * 2 + [(QUIC_AT_HOME, DialFailure.SILENT)]
    assert stage.dial_fails(hostile) == DialFailed(WORKER, refused=False)
    assert stage.dialled == [AT_HOME, AT_HOME, QUIC_AT_HOME]


def test_one_way_through_a_gateway_is_enough(stage: Stage) -> None:
    other = THROUGH.replace("/tcp/4001", "/udp/4001/quic-v1")
    stage.dial_fails({THROUGH: DialFailure.REFUSED, other: DialFailure.REFUSED})
    assert stage.dialled == [THROUGH]


def test_quic_alone_is_dialled_at_once(stage: Stage) -> None:
    stage.dial_fails({QUIC_AT_HOME: DialFailure.SILENT, THROUGH: DialFailure.SILENT})
    assert stage.dialled == [QUIC_AT_HOME, THROUGH]


def test_a_peer_that_says_it_is_everywhere_is_sought_at_few_places(stage: Stage) -> None:
    places = [f"/ip4/10.0.{n // 256}.{n % 256}/tcp/4001/p2p/worker" for n in range(2000)]
    stage.dial_fails(dict.fromkeys(places, DialFailure.SILENT))
    assert stage.dialled == places[:DIALLED_MAX]


def test_everybody_who_pings_a_peer_that_must_be_dialled_hears_of_it(stage: Stage) -> None:
    pings = [stage.ping() for _ in range(SERIES_MAX)]
    assert stage.ping() == ["it is being pinged already"]
    stage.cannot_be_reached()
    assert pings == [["nobody is there"]] * SERIES_MAX
    assert stage.ping() == [], "it is dialled again"


def test_a_peer_that_calls_while_it_is_dialled_is_pinged(stage: Stage) -> None:
    said = stage.ping()
    stage.was_connected(AT_HOME, relayed=False)
    stage.cannot_be_reached()
    assert said == [], "the dial does not matter any more"


class Caller(IndifferentListener):
    def __init__(self) -> None:
        self.closed: list[str] = []

    def stream_closed(self, stream: Stream, error: str) -> None:
        self.closed.append(stream.protocol)


@pytest.mark.parametrize(
    ("role", "taken"), [("worker", True), ("scheduler", False), ("cluster", False)]
)
def test_nobody_is_a_worker_whose_token_does_not_say_so(
    stage: Stage, role: str, taken: bool
) -> None:
    caller = Caller()
    swarm = stage.network.start(WORKER, caller, PROTOCOLS, roles=frozenset({role}))
    swarm.dial(stage.network.address_of(PeerId("me")))
    stage.run(1.0)
    for protocol in (CONTROL_PROTOCOL, WORK_PROTOCOL):
        swarm.open_stream(PeerId("me"), protocol)
    stage.run(1.0)
    assert stage.is_linked == taken
    assert sorted(caller.closed) == ([] if taken else sorted((CONTROL_PROTOCOL, WORK_PROTOCOL)))
