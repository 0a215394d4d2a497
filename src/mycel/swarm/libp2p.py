"""The swarm over the native extension.

    network threads ──▶ event queue ──eventfd──▶ drain() ──table──▶ SwarmListener

One `drain` takes everything that has happened since the last. Each event names its kind
and brings the arguments of the method that deals with it, which for most kinds is the
listener's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any

import msgspec

from mycel._native import Node
from mycel.core.identifiers import PeerId
from mycel.core.principal import Family
from mycel.swarm import swarm_limits
from mycel.swarm.errors import AddressInUse, InvalidSetting, ListenFailed, NodeStopped
from mycel.swarm.interface import (
    Admission,
    DialFailure,
    Liveness,
    PeerFacts,
    SignedRecord,
    StreamProtocol,
    SwarmFigures,
    SwarmListener,
)
from mycel.swarm.quic_alternative import is_quic
from mycel.swarm.quic_probe import QuicProber
from mycel.swarm.token_rights import rights_of, roles_of


class _Kind(IntEnum):
    """As the extension numbers them."""

    LISTENING = 0
    LISTEN_FAILED = 1
    NOT_LISTENING = 2
    CONNECTED = 3
    DISCONNECTED = 4
    DIAL_SUCCEEDED = 5
    DIAL_FAILED = 6
    STREAM_OPENED = 7
    STREAM_FAILED = 8
    FRAMES = 9
    HEARTBEAT = 10
    SILENT = 11
    WRITABLE = 12
    STREAM_CLOSED = 13
    GOSSIP = 14
    ROUND_TRIP = 15
    REFUSED = 16
    STOPPED = 17
    PATH_CHANGED = 18
    PROVIDERS_FOUND = 19
    RECORD_FOUND = 20
    RESERVATION = 21
    CUT_OFF = 22
    ADMITTED = 23


class Libp2pSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Time-outs and limits of a node; the defaults are what `native/node` recommends."""

    connect_timeout_seconds: float = 5.0
    """From the first packet to the end of the hello."""
    hello_timeout_seconds: float = 3.0
    open_stream_timeout_seconds: float = 5.0
    ping_interval_seconds: float = 120.0
    """Most of what an idle node does. Links have heartbeats of their own."""
    ping_timeout_seconds: float = 20.0
    """Two pings in a row without an answer in this time end the connection."""
    expiry_check_seconds: float = 5.0
    """How often live connections are held against their tokens' expiry."""
    clock_tolerance_seconds: float = 60.0
    """Granted beyond a token's expiry, because clocks differ. Whole seconds count."""
    max_clock_skew_seconds: float = 60.0
    """A peer whose clock is farther off is refused."""
    stop_timeout_seconds: float = 1.0
    """How long `stop` may take to send what is queued."""
    gossip_heartbeat_seconds: float = 1.0
    message_tolerance_seconds: float = 60.0
    """How far the time of a message or a record may be off."""
    query_timeout_seconds: float = 10.0
    record_ttl_seconds: float = 600.0
    """For how long others keep what a node has published in the DHT…"""
    republish_seconds: float = 240.0
    """…and how often it is published again."""
    kademlia_replication: int = 10
    """Six did not find everything after losses in a swarm of 300, ten did."""
    gateway: bool = False
    """This node serves others, and must itself be reachable where it listens."""
    joins_path: str = ""
    """Where a gateway counts whom it admits by invites; without, it admits nobody by them."""
    relay_service: bool = True
    """A gateway passes others' circuits on…"""
    autonat_service: bool = True
    """…tells them whether they can be reached…"""
    dht_service: bool = True
    """…and any node keeps and finds records for others, where it can be reached."""
    hole_punching: bool = True
    """Direct connections are tried for where a relayed one stands."""
    mdns: bool = False
    """Looks for peers on the local network."""
    relay_max_reservations: int = 4096
    relay_reservation_seconds: float = 3600.0
    """Each is renewed by its holder before it ends."""
    relay_max_circuits: int = 4096
    relay_max_circuits_per_peer: int = 256
    relay_max_circuit_seconds: float = 7 * 24 * 3600.0
    relay_max_circuit_bytes: int = 0
    """0: as many as there are."""
    max_records: int = 16_384
    max_providers: int = 131_072
    """Kept for others at most."""
    max_connections: int = 1024
    """Far above what a node works with: to hit it costs both sides a handshake."""
    high_water: int = 64
    """Above so many peers those that nobody needs are disconnected…"""
    low_water: int = 48
    """…until so many are left,"""
    grace_seconds: float = 20.0
    """…but none that came so recently."""
    messages_per_second: int = 500
    """What a peer may send of gossip, DHT requests, new streams and counted frames…"""
    message_burst: int = 3000
    """…with so many at once. Who sends more is cut off,"""
    max_strikes: int = 10
    """…as is who sends so much that is forged or malformed in a short time."""
    ban_seconds: float = 600.0
    """For how long a peer stays out that was cut off."""
    max_pending_incoming: int = 256
    """Connections that have not passed the hello yet…"""
    max_pending_incoming_per_address: int = 64
    """…and how many of them may come from one IP address."""

    @classmethod
    def for_gateway(cls) -> Libp2pSettings:
        """A gateway is there to be connected to."""
        return cls(gateway=True, high_water=3000, low_water=2500, max_connections=8192)


def is_relayed(address: str) -> bool:
    """Whether the address leads through a relay."""
    return "/p2p-circuit" in address


class Libp2pSwarm:
    """One node's membership in a swarm. Use it from the event loop that started it."""

    def __init__(
        self,
        native: Node,
        protocols: Sequence[StreamProtocol],
        listener: SwarmListener,
        on_admitted: Callable[[bytes], None],
    ) -> None:
        """Not for callers: see `start`."""
        self._native = native
        self._on_admitted = on_admitted
        self._peer = native.peer
        self._protocols = frozenset(protocol.name for protocol in protocols)
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._addresses: list[str] = []
        self._listens: dict[int, asyncio.Future[str]] = {}
        self._next_listen = 0
        self._provided: set[bytes] = set()
        self._stopped: asyncio.Future[None] = self._loop.create_future()
        self._prober = QuicProber(self._loop, listener.knocked)
        self._table = self._handlers()
        self._loop.add_reader(native.fileno(), self._drain)

    @classmethod
    async def start(
        cls,
        *,
        secret: bytes,
        owner_public: bytes,
        token: bytes,
        swarm_name: str,
        listener: SwarmListener,
        protocols: Sequence[StreamProtocol],
        listen_addresses: Sequence[str] = (),
        liveness: Liveness | None = None,
        settings: Libp2pSettings | None = None,
        on_admitted: Callable[[bytes], None] = lambda _: None,
    ) -> Libp2pSwarm:
        """Starts a node and waits until it listens on every address.

        `secret` is the node's Ed25519 secret, `token` what the swarm's owner signed, bound
        to its peer id. Whether the token is good is judged by the peers, not here. What the
        node signs is good only where the same `swarm_name` is used. With an invite's token a
        gateway that the invite names admits the node: `on_admitted` gets the token that it is a
        member by.

        Raises `InvalidKey`, `InvalidAddress`, `InvalidSetting`, `ListenFailed`.
        """
        liveness = liveness or Liveness()
        native = Node(
            secret=secret,
            swarm_name=swarm_name,
            owner_public=owner_public,
            token=token,
            protocols=[
                (
                    p.name,
                    p.max_frame_bytes,
                    p.heartbeats,
                    p.write_high_bytes,
                    p.read_high_bytes,
                    p.limited,
                    p.in_place,
                )
                for p in protocols
            ],
            liveness=(
                liveness.heartbeat_seconds,
                liveness.silence_seconds,
                liveness.repeat_seconds,
            ),
            settings=msgspec.structs.asdict(settings or Libp2pSettings()),
        )
        swarm = cls(native, protocols, listener, on_admitted)
        try:
            for address in listen_addresses:
                await swarm.listen(address)
        except BaseException:
            await swarm.stop()
            raise
        return swarm

    @property
    def peer(self) -> PeerId:
        return self._peer

    @property
    def addresses(self) -> list[str]:
        return list(self._addresses)

    async def listen(self, address: str) -> str:
        """Listens on one more address; `/tcp/0` picks a free port.

        Returns the address with its port and `/p2p/<peer id>`. Raises `InvalidAddress`,
        `AddressInUse`, `ListenFailed`, `NodeStopped`.
        """
        self._next_listen += 1
        number = self._next_listen
        self._native.listen(number, address)
        future: asyncio.Future[str] = self._loop.create_future()
        self._listens[number] = future
        try:
            return await future
        except ListenFailed as error:
            raise type(error)(f"{address} cannot be listened on: {error}") from None

    async def stop(self) -> None:
        """Sends what is queued, closes every connection and frees the ports. Idempotent.

        The listener hears of the end of every stream and peer before this returns.
        """
        self._native.stop()
        await asyncio.shield(self._stopped)

    def dial(self, address: str) -> None:
        self._native.dial(address)

    def dial_peer(self, peer: PeerId, addresses: Sequence[str] = ()) -> None:
        self._native.dial_peer(peer, list(addresses))

    def knock(self, peer: PeerId, addresses: Sequence[str]) -> bool:
        if self._stopped.done():
            raise NodeStopped("the node has stopped")
        return self._prober.knock(peer, addresses)

    def reserve(self, gateway: str) -> None:
        self._native.reserve(gateway)

    def keep(self, peer: PeerId, kept: bool) -> None:
        self._native.keep(peer, kept)

    def open_stream(self, peer: PeerId, protocol: str) -> None:
        if protocol not in self._protocols:
            raise InvalidSetting(f"the node was not started with the protocol {protocol}")
        self._native.open_stream(peer, protocol)

    def disconnect(self, peer: PeerId) -> None:
        self._native.disconnect(peer)

    def accuse(self, peer: PeerId) -> None:
        self._native.accuse(peer)

    def subscribe(self, topic: str) -> None:
        self._native.subscribe(topic)

    def publish(self, topic: str, data: bytes) -> None:
        swarm_limits.check_gossip(data)
        self._native.publish(topic, data)

    def provide(self, key: bytes) -> None:
        swarm_limits.check_provided(key, self._provided)
        self._native.provide(key)
        self._provided.add(key)

    def stop_providing(self, key: bytes) -> None:
        self._native.stop_providing(key)
        self._provided.discard(key)

    def find_providers(self, query: int, key: bytes) -> None:
        swarm_limits.check_key(key)
        self._native.find_providers(query, key)

    def put_record(self, payload: bytes, sequence: int, expires_at: float) -> None:
        swarm_limits.check_record(payload, sequence)
        self._native.put_record(payload, sequence, expires_at)

    def withdraw_record(self) -> None:
        self._native.withdraw_record()

    def get_record(self, query: int, peer: PeerId) -> None:
        self._native.get_record(query, peer)

    def peers(self) -> list[PeerFacts]:
        return [
            PeerFacts(
                peer=peer,
                roles=roles_of(roles),
                addresses=addresses,
                relayed=relayed,
                rtt_seconds=rtt_seconds,
                connected_at=connected_at,
                last_heard_at=last_heard_at,
                software=software,
            )
            for (
                peer,
                roles,
                addresses,
                relayed,
                rtt_seconds,
                connected_at,
                last_heard_at,
                software,
            ) in self._native.peers()
        ]

    def figures(self) -> SwarmFigures:
        return msgspec.convert(self._native.figures(), SwarmFigures)

    def revoke(self, records: list[bytes]) -> list[bytes]:
        news = self._native.revoke(records)
        return [record for record, is_news in zip(records, news, strict=True) if is_news]

    def _drain(self) -> None:
        table = self._table
        events = iter(self._native.drain())
        while True:
            try:
                for kind, arguments in events:
                    table[kind](*arguments)
                break
            except Exception as error:  # noqa: BLE001 - this edge owns the callbacks
                # A fault of the listener must not swallow the events behind it.
                self._loop.call_exception_handler(
                    {"message": "a swarm listener failed", "exception": error}
                )
        self._native.acknowledge()

    def _handlers(self) -> list[Callable[..., Any]]:
        listener = self._listener
        table: dict[_Kind, Callable[..., Any]] = {
            _Kind.LISTENING: self._on_listening,
            _Kind.LISTEN_FAILED: self._on_listen_failed,
            _Kind.NOT_LISTENING: self._on_not_listening,
            _Kind.CONNECTED: self._on_connected,
            _Kind.DISCONNECTED: listener.disconnected,
            _Kind.DIAL_SUCCEEDED: listener.dial_succeeded,
            _Kind.DIAL_FAILED: self._on_dial_failed,
            _Kind.STREAM_OPENED: listener.stream_opened,
            _Kind.STREAM_FAILED: listener.stream_failed,
            _Kind.FRAMES: listener.frames,
            _Kind.HEARTBEAT: listener.heartbeat,
            _Kind.SILENT: listener.silent,
            _Kind.WRITABLE: listener.writable,
            _Kind.STREAM_CLOSED: listener.stream_closed,
            _Kind.GOSSIP: listener.gossip,
            _Kind.ROUND_TRIP: listener.round_trip,
            _Kind.REFUSED: listener.refused,
            _Kind.STOPPED: self._on_stopped,
            _Kind.PATH_CHANGED: listener.path_changed,
            _Kind.PROVIDERS_FOUND: listener.providers_found,
            _Kind.RECORD_FOUND: self._on_record_found,
            _Kind.RESERVATION: listener.reservation,
            _Kind.CUT_OFF: listener.cut_off,
            _Kind.ADMITTED: self._on_admitted,
        }
        return [table[kind] for kind in sorted(_Kind)]

    def _named(self, address: str) -> str:
        """Addresses through a relay end in the peer id already."""
        suffix = f"/p2p/{self._peer}"
        return address if address.endswith(suffix) else address + suffix

    def _on_listening(self, number: int | None, address: str) -> None:
        address = self._named(address)
        is_new = address not in self._addresses
        if is_new:
            self._addresses.append(address)
            # Lists of addresses have an end: what others can do without comes last.
            self._addresses.sort(key=lambda known: (is_quic(known), is_relayed(known)))
        future = None if number is None else self._listens.pop(number, None)
        if future is not None and not future.done():
            future.set_result(address)
        elif is_new:
            self._listener.addresses_changed()

    def _on_listen_failed(self, number: int, in_use: bool, error: str) -> None:
        future = self._listens.pop(number, None)
        if future is not None and not future.done():
            future.set_exception(AddressInUse(error) if in_use else ListenFailed(error))

    def _on_not_listening(self, address: str) -> None:
        address = self._named(address)
        if address in self._addresses:
            self._addresses.remove(address)
            self._listener.addresses_changed()

    def _on_connected(
        self,
        peer: PeerId,
        told: tuple[tuple[Any, ...], float, bool, tuple[bytes, int] | None],
        address: str,
        relayed: bool,
    ) -> None:
        described, clock_skew_seconds, revocations_differ, family = told
        rights = rights_of(described)
        admission = Admission(
            roles=rights.roles,
            rights=rights,
            clock_skew_seconds=clock_skew_seconds,
            revocations_differ=revocations_differ,
            family=None if family is None else Family(*family),
        )
        self._listener.connected(peer, admission, address, relayed)

    def _on_record_found(self, query: int, found: tuple[PeerId, bytes, int, float] | None) -> None:
        record = None
        if found is not None:
            peer, payload, sequence, expires_at = found
            record = SignedRecord(
                peer=peer, payload=payload, sequence=sequence, expires_at=expires_at
            )
        self._listener.record_found(query, record)

    def _on_dial_failed(self, address: str, failure: str, error: str, refusal: str) -> None:
        self._listener.dial_failed(address, DialFailure(failure), error, refusal)

    def _on_stopped(self, error: str) -> None:
        self._loop.remove_reader(self._native.fileno())
        self._prober.close()
        self._addresses.clear()
        for future in self._listens.values():
            if not future.done():
                future.set_exception(NodeStopped("the node has stopped"))
        self._listens.clear()
        if error:
            self._loop.call_exception_handler({"message": f"the swarm's node died: {error}"})
        if not self._stopped.done():
            self._stopped.set_result(None)
