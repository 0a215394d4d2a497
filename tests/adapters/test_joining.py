"""Several gateways, and how a node finds its swarm when the one it knew is gone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from mycel.blobs.blob_messages import BLOB_PROTOCOL
from mycel.core.identifiers import PeerId
from mycel.core.messages import WIRE_VERSION, Join, PeerRecord
from mycel.discovery.peer_book import PEERS_MAX, PeerBook
from mycel.membership.gateway_services import UnknownService, load_services
from mycel.membership.joining import ASK_FOR_MORE_SECONDS, Joining
from mycel.membership.protocols import PROTOCOLS
from mycel.roles.gateway.gateway_node import GatewayNode
from mycel.swarm import message_codec
from mycel.swarm.errors import InvalidAddress
from mycel.swarm.interface import (
    CONTROL_PROTOCOL,
    WORK_PROTOCOL,
    Admission,
    DialFailure,
    Stream,
    Swarm,
)
from mycel.swarm.multiaddress import peer_in
from mycel.swarm.null_listener import IndifferentListener
from mycel.testing.swarm.memory_swarm import MemoryNetwork
from tests.simulation.time import ProcessClock, VirtualClock


class Newcomer(IndifferentListener):
    """A node that does nothing but join."""

    def __init__(self, clock: ProcessClock, gateways: tuple[str, ...], book: PeerBook) -> None:
        self.found: list[PeerRecord] = []
        self.peers: set[PeerId] = set()
        self.streams: list[Stream] = []
        self.closed: list[str] = []
        self.joining = Joining(clock, ("worker",), gateways, self.found.append, book, reserves=True)

    def connected(self, peer: PeerId, admission: Admission, address: str, relayed: bool) -> None:
        self.peers.add(peer)
        self.joining.connected(peer, admission.roles, address, relayed)

    def disconnected(self, peer: PeerId, cause: str) -> None:
        self.peers.discard(peer)
        self.joining.disconnected(peer)

    def dial_failed(
        self, address: str, failure: DialFailure, error: str, refusal: str = ""
    ) -> None:
        self.joining.dial_failed(address, failure)

    def stream_opened(self, stream: Stream, ours: bool) -> None:
        self.streams.append(stream)
        if stream.protocol == CONTROL_PROTOCOL:
            self.joining.stream_opened(stream)

    def stream_failed(self, peer: PeerId, protocol: str, error: str) -> None:
        self.joining.stream_failed(peer)

    def stream_closed(self, stream: Stream, error: str) -> None:
        self.closed.append(stream.protocol)
        self.joining.stream_closed(stream)

    def frames(self, stream: Stream, frames: list[bytes], arrived_at: float) -> None:
        self.joining.frames(stream, frames)


class Stage:
    def __init__(self) -> None:
        self.world = VirtualClock()
        self.network = MemoryNetwork(self.world, Random(1))
        self.swarms: dict[str, Swarm] = {}
        self.notes: list[str] = []
        """Of the gateways."""

    def clock(self) -> ProcessClock:
        return ProcessClock(self.world, 0.0)

    def address(self, name: str) -> str:
        return self.network.address_of(PeerId(name))

    def gateway(
        self, name: str, *knows: str, services: tuple[str, ...] = ("bootstrap",)
    ) -> GatewayNode:
        gateways = tuple(map(self.address, knows))
        node = GatewayNode(
            self.clock(), Random(2), "test", self._note, gateways=gateways, names=services
        )
        node.start(self._enter(name, node, "gateway"))
        return node

    def _note(self, event: str, **fields: object) -> None:
        self.notes.append(event)

    def newcomer(
        self, name: str, *knows: str, book: PeerBook | None = None, refused_streams: int = 0
    ) -> Newcomer:
        gateways = tuple(map(self.address, knows))
        book = PeerBook() if book is None else book
        node = Newcomer(self.clock(), gateways, book)
        swarm = self._enter(name, node, "worker")

        def reserve(gateway: str) -> None:
            """Every connected gateway grants it."""
            peer = peer_in(gateway)
            assert peer in node.peers
            self.world.call_at(0.0, lambda: node.joining.reservation(peer, held=True))

        open_stream, refusals = swarm.open_stream, iter(range(refused_streams))

        def open_or_fail(peer: PeerId, protocol: str) -> None:
            if next(refusals, None) is None:
                open_stream(peer, protocol)
            else:
                self.world.call_at(0.0, lambda: node.stream_failed(peer, protocol, "full"))

        vars(swarm)["reserve"] = reserve
        vars(swarm)["open_stream"] = open_or_fail
        node.joining.start(swarm)
        return node

    def _enter(self, name: str, node: IndifferentListener, role: str) -> Swarm:
        roles = frozenset({role})
        swarm = self.swarms[name] = self.network.start(PeerId(name), node, PROTOCOLS, roles=roles)
        return swarm

    def until(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        ends_at = self.world.now() + seconds
        while not condition():
            assert self.world.now() < ends_at, "it never came to that"
            self.world.run_until(self.world.now() + 0.1)


def test_a_second_gateway_is_heard_of_and_used() -> None:
    stage = Stage()
    stage.gateway("first")
    stage.gateway("second", "first")
    node = stage.newcomer("node", "first")
    stage.until(lambda: set(node.joining.gateways) == {"first", "second"})
    stage.network.kill(PeerId("first"))
    stage.until(lambda: set(node.joining.gateways) == {"second"})
    stage.gateway("first", "second")
    stage.until(lambda: set(node.joining.gateways) == {"first", "second"})


def test_reservations_are_kept_at_two_gateways() -> None:
    stage = Stage()
    for name in ("first", "second", "third"):
        stage.gateway(name, "first")
    node = stage.newcomer("node", "first", "second", "third")
    stage.until(lambda: len(node.joining.reservations) == 2)
    lost = node.joining.reservations[0]
    stage.network.kill(PeerId(lost))
    others = sorted({"first", "second", "third"} - {lost})
    stage.until(lambda: node.joining.reservations == others)


@pytest.mark.parametrize(
    ("failure", "tried"),
    [
        (DialFailure.SILENT, True),
        (DialFailure.OTHER, True),
        (DialFailure.REFUSED, False),
        (DialFailure.NOT_ADMITTED, False),
    ],
)
def test_a_gateway_is_tried_by_quic_where_tcp_does_not_get_through(
    failure: DialFailure, tried: bool
) -> None:
    stage = Stage()
    node = stage.newcomer("node")
    tcp = "/ip4/10.0.0.5/tcp/4001/p2p/gateway"
    joining = Joining(stage.clock(), ("worker",), (tcp,), node.found.append)
    dialled: list[str] = []
    vars(stage.swarms["node"])["dial"] = dialled.append
    joining.start(stage.swarms["node"])
    joining.dial_failed(tcp, failure)
    quic = ["/ip4/10.0.0.5/udp/4001/quic-v1/p2p/gateway"] if tried else []
    assert dialled == [tcp, *quic]
    joining.dial_failed("/ip4/10.0.0.6/tcp/4001/p2p/other", failure)
    assert dialled == [tcp, *quic], "it is no gateway's"


def test_an_address_that_cannot_be_dialled_does_no_harm_to_another_of_the_same_gateway() -> None:
    stage = Stage()
    stage.gateway("gateway")
    node = stage.newcomer("node")
    good, bad = stage.address("gateway"), "/nowhere/p2p/gateway"
    swarm = stage.swarms["node"]
    dialled: list[str] = []

    def dial(address: str) -> None:
        if address == bad:
            raise InvalidAddress(bad)
        dialled.append(address)

    vars(swarm)["dial"] = dial
    joining = Joining(stage.clock(), ("worker",), (bad, good), node.found.append)
    joining.start(swarm)
    joining.disconnected(PeerId("gateway"))
    stage.world.run_until(stage.world.now() + 1.0)
    assert dialled == [good, good]


def test_gateways_that_relay_for_nobody_are_asked_now_and_then() -> None:
    stage = Stage()
    stage.gateway("first")
    stage.gateway("second", "first")
    node = stage.newcomer("node", "first", "second")
    asked: list[str] = []

    def decline(gateway: str) -> None:
        peer = peer_in(gateway)
        assert peer is not None
        asked.append(peer)
        stage.world.call_at(
            stage.world.now() + 0.001, lambda: node.joining.reservation(peer, held=False)
        )

    vars(stage.swarms["node"])["reserve"] = decline
    stage.world.run_until(stage.world.now() + 60.0)
    for gateway in ("first", "second"):
        assert 3 <= asked.count(gateway) <= 8


def test_a_gateway_does_not_call_itself() -> None:
    stage = Stage()
    stage.gateway("second", "first")
    gateway = stage.gateway("first", "first", "second")
    stage.until(lambda: [record.peer for record in gateway.records] == ["second"])
    assert stage.swarms["first"].figures().dials.keys() == {"succeeded"}


def test_a_gateway_that_takes_no_stream_is_asked_again() -> None:
    stage = Stage()
    gateway = stage.gateway("first")
    stage.newcomer("node", "first", refused_streams=3)
    stage.until(lambda: [record.peer for record in gateway.records] == ["node"])


def test_a_gateway_that_ends_the_stream_is_asked_again() -> None:
    stage = Stage()
    stage.gateway("first")
    node = stage.newcomer("node", "first")
    stage.until(lambda: len(node.streams) == 1)
    node.streams[0].close()
    stage.until(lambda: len(node.streams) == 2)


def test_a_new_way_to_a_node_is_told_on_the_same_stream() -> None:
    stage = Stage()
    stage.gateway("first")
    node = stage.newcomer("node", "first")
    stage.until(lambda: node.joining.reservations == ["first"])
    stage.until(lambda: "peer_joined" in stage.notes)
    answers = len(node.found)
    node.joining.addresses_changed()
    stage.until(lambda: len(node.found) > answers)
    assert len(node.streams) == 1
    assert stage.notes.count("peer_joined") == 1, "it has not joined again"


def test_a_gateway_says_where_it_listens_itself() -> None:
    stage = Stage()
    stage.gateway("first")
    book = PeerBook()
    node = stage.newcomer("node", "first", book=book)
    stage.until(lambda: bool(node.found))
    [record] = book.records()
    assert record.peer == "first"
    assert record.addresses == (stage.address("first"),)


def test_a_gateway_that_comes_later_is_asked_for() -> None:
    stage = Stage()
    stage.gateway("first")
    node = stage.newcomer("node", "first")
    stage.world.run_until(stage.world.now() + 30.0)
    stage.gateway("second", "first")
    stage.until(lambda: set(node.joining.gateways) == {"first", "second"}, 2 * ASK_FOR_MORE_SECONDS)


def test_a_configured_gateway_that_is_late_is_used_when_it_comes() -> None:
    stage = Stage()
    node = stage.newcomer("node", "late")
    stage.world.run_until(stage.world.now() + 30.0)
    stage.gateway("late")
    stage.until(lambda: node.joining.gateways == ["late"])


def test_a_gateway_that_is_gone_is_dialled_at_one_pace() -> None:
    """It is both configured and heard of, and every reason to dial it must not add another."""
    stage = Stage()
    stage.gateway("gateway")
    node = stage.newcomer("node", "gateway")
    stage.until(lambda: node.joining.gateways == ["gateway"])
    stage.network.kill(PeerId("gateway"))
    stage.until(lambda: not node.joining.gateways)
    dialled: list[str] = []
    swarm = stage.swarms["node"]
    dial = swarm.dial

    def counted(address: str) -> None:
        dialled.append(address)
        dial(address)

    vars(swarm)["dial"] = counted

    def dials_within(seconds: float) -> int:
        before = len(dialled)
        stage.world.run_until(stage.world.now() + seconds)
        return len(dialled) - before

    stage.world.run_until(stage.world.now() + 60.0)
    first = dials_within(60.0)
    assert first > 0
    stage.world.run_until(stage.world.now() + 600.0)
    assert dials_within(60.0) <= first


def test_newcomers_hear_of_others_schedulers_and_gateways_first() -> None:
    stage = Stage()
    stage.gateway("first")
    stage.gateway("second", "first")
    stage.newcomer("one", "first")
    stage.until(lambda: True)
    stage.world.run_until(stage.world.now() + 5.0)
    node = stage.newcomer("two", "first")
    stage.until(lambda: {record.peer for record in node.found} >= {"one", "second"})
    assert node.found[0].roles == ("gateway",)


def test_a_gateway_without_bootstrap_names_nobody() -> None:
    stage = Stage()
    stage.gateway("first", services=("dht",))
    stage.newcomer("one", "first")
    node = stage.newcomer("two", "first")
    stage.until(lambda: node.joining.gateways == ["first"])
    stage.world.run_until(stage.world.now() + 5.0)
    assert node.found == []


@pytest.mark.parametrize("letter", ["x", "\N{MUSHROOM}"])
def test_what_members_say_of_themselves_keeps_no_newcomer_from_its_answer(letter: str) -> None:
    stage = Stage()
    stage.gateway("first")
    long = letter * (60_000 // len(letter.encode()))
    for name in ("one", "two"):
        node = stage.newcomer(name, "first")
        stage.until(lambda node=node: bool(node.found))  # type: ignore[misc]
        me = PeerRecord(name, ("worker",), (f"/dns/{long}/tcp/1",) * 15 + (stage.address(name),))
        node.streams[0].write(message_codec.encode(Join(WIRE_VERSION, me)))
    stage.world.run_until(stage.world.now() + 1.0)
    node = stage.newcomer("three", "first")
    stage.until(lambda: {record.peer for record in node.found} == {"first", "one", "two"})
    found = {record.peer: record.addresses for record in node.found}
    assert found["one"] == (stage.address("one"),)


@pytest.mark.parametrize("protocol", [WORK_PROTOCOL, BLOB_PROTOCOL])
def test_a_gateway_answers_on_no_stream_that_is_not_counted(protocol: str) -> None:
    stage = Stage()
    stage.gateway("first")
    stage.newcomer("one", "first")
    node = stage.newcomer("two", "first")
    stage.until(lambda: len(node.found) == 2)
    stage.swarms["two"].open_stream(PeerId("first"), protocol)
    stage.until(lambda: len(node.streams) == 2)
    me = PeerRecord("two", ("worker",), ())
    node.streams[1].write(message_codec.encode(Join(WIRE_VERSION, me)))
    stage.until(lambda: node.closed == [protocol])
    assert len(node.found) == 2


def test_a_lonely_node_finds_its_swarm_by_peers_that_it_has_met(tmp_path: Path) -> None:
    stage = Stage()
    path = tmp_path / "peers.json"
    stage.gateway("first")
    stage.newcomer("friend", "first")
    node = stage.newcomer("node", "first", book=PeerBook(path))
    stage.until(lambda: any(record.peer == "friend" for record in node.found))
    stage.world.run_until(stage.world.now() + 2.0)
    stage.network.kill(PeerId("node"))  # nobody has told it to stop
    stage.network.kill(PeerId("first"))
    again = stage.newcomer("node", "first", book=PeerBook(path))
    stage.until(lambda: "friend" in again.peers)


# The peer book


def test_the_book_keeps_gateways_longest(tmp_path: Path) -> None:
    book = PeerBook(tmp_path / "peers.json")
    book.remember(PeerRecord("gateway", ("gateway",), ("/memory/g",)), 1.0)
    for number in range(2 * PEERS_MAX):
        record = PeerRecord(f"worker-{number}", ("worker",), ("/memory/w",))
        book.remember(record, 2.0 + number)
    book.remember(PeerRecord("scheduler", ("scheduler",), ("/memory/s",)), 1.5)
    book.save()
    again = PeerBook(tmp_path / "peers.json")
    assert len(again) == PEERS_MAX
    names = [record.peer for record in again.records()]
    assert names[:3] == ["gateway", "scheduler", f"worker-{2 * PEERS_MAX - 1}"]


@pytest.mark.parametrize("content", [b"", b"nonsense", b'{"peers": 7}', b"\xff\xfe"])
def test_a_spoilt_book_is_an_empty_one(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "peers.json"
    path.write_bytes(content)
    assert len(PeerBook(path)) == 0


def test_a_peer_without_an_address_is_not_worth_a_line(tmp_path: Path) -> None:
    book = PeerBook(tmp_path / "peers.json")
    book.remember(PeerRecord("nowhere", ("worker",), ()), 1.0)
    assert len(book) == 0


# Services


def test_built_in_services_load_nothing() -> None:
    assert load_services(("bootstrap", "dht", "relay", "autonat")) == []


def test_an_unknown_service_is_named_with_those_that_there_are() -> None:
    with pytest.raises(UnknownService, match=r"no service 'teapot'.*autonat, bootstrap"):
        load_services(("bootstrap", "teapot"))
