"""What the rest of Mycel may ask of a swarm, and what a swarm tells.

Commands return at once; what comes of them is told to the node's `SwarmListener`,
always from the event loop's thread. Two implementations: `libp2p` (the native
extension) and `memory` (the same promises in virtual time, with faults).

Promises that both keep:

* No frame arrives before its stream was announced by `stream_opened`, none after
  `stream_closed`. Within a stream frames arrive in order and once; a stream that breaks
  loses an unknown suffix of what was written.
* Every accepted `dial` ends in exactly one `dial_succeeded` or `dial_failed`, every
  `open_stream` in exactly one `stream_opened` or `stream_failed`.
* On a stream whose protocol has heartbeats, both ends send one every
  `heartbeat_seconds`, whatever Python is doing, and each end is told of silence.
* Every `find_providers` ends in exactly one `providers_found` that is finished, every
  `get_record` in exactly one `record_found`.
* A `knock` is answered by a node that is awake, unless a packet is lost; that no answer came
  is not told.
* Gossip and records come with their author: the signature was checked before.
* Nothing here raises because of what a peer does.

A path through a relay is used until there is a direct one; `path_changed` tells, and new
streams then go the better way. Streams that stand stay where they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final, Protocol

import msgspec

from mycel.core.identifiers import PeerId
from mycel.core.principal import Family, Principal
from mycel.core.rights import Rights

CONTROL_PROTOCOL: Final = "/mycel/control/1"
WORK_PROTOCOL: Final = "/mycel/work/1"

GOSSIP_BYTES_MAX: Final = 64 * 1024
RECORD_BYTES_MAX: Final = 16 * 1024
KEY_BYTES_MAX: Final = 256
PROVIDED_KEYS_MAX: Final = 512


class DialFailure(Enum):
    """Why a dial failed: what the scheduler concludes from it differs."""

    REFUSED = "refused"  # the machine answered that nobody listens there
    SILENT = "silent"  # nothing answered in time
    NOT_ADMITTED = "not_admitted"  # the hello was refused, by them or by us
    OTHER = "other"


class StreamProtocol(msgspec.Struct, frozen=True, kw_only=True):
    """One protocol of ours, with its limits."""

    name: str
    max_frame_bytes: int
    """A longer frame is refused before it is read, and ends the stream."""
    heartbeats: bool
    write_high_bytes: int = 4 << 20
    """Above this much unsent data `Stream.full` is true, until a quarter is left."""
    read_high_bytes: int = 32 << 20
    """The reader stops when Python has not taken this much."""
    limited: bool = False
    """Its frames count against what a peer may send in a second; who floods is cut off."""
    in_place: bool = False
    """Its long frames may come as read-only buffers, which spares a copy."""


class Liveness(msgspec.Struct, frozen=True, kw_only=True):
    heartbeat_seconds: float = 2.0
    silence_seconds: float = 7.0
    """Without a byte for this long, `silent` is told once…"""
    repeat_seconds: float = 5.0
    """…and again each time this much more has passed."""


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """What a peer's token says of it, and what the hello showed."""

    roles: frozenset[str] = frozenset()
    rights: Rights = Rights()
    clock_skew_seconds: float = 0.0
    """The peer's clock minus ours."""
    revocations_differ: bool = False
    """It knows of other revocations than this node does."""
    family: Family | None = None
    """With whom it shares limits: of one that joined by an invite."""

    @property
    def principal(self) -> Principal:
        return Principal(self.rights.machine_user, self.family)


class SignedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a peer says of itself in the DHT; the signature was checked."""

    peer: PeerId
    payload: bytes
    """Empty: the peer has withdrawn its record."""
    sequence: int
    expires_at: float
    """Seconds since 1970."""


class PeerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a connected peer. Times are on the clock of `arrived_at`."""

    peer: PeerId
    roles: frozenset[str]
    addresses: list[str]
    """Of the standing connections, the best first."""
    relayed: bool
    """There is no direct connection."""
    rtt_seconds: float | None
    connected_at: float
    last_heard_at: float
    software: str
    """As the peer names it; empty until it has."""


class SwarmFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Counters since the start, and some numbers of now."""

    connections: dict[str, int] = {}
    """Now, by path: `direct`, `relayed`, and by transport: `tcp`, `quic`."""
    dials: dict[str, int] = {}
    """By outcome: `succeeded`, or a `DialFailure`."""
    refusals: dict[str, int] = {}
    """Who dialled us and got no further than the hello, by reason."""
    hellos: int = 0
    hello_microseconds: int = 0
    """Connections that passed the hello, and what it has added to them in all."""
    cut_offs: dict[str, int] = {}
    """Misbehaving peers that we disconnected, by reason."""
    trimmed: int = 0
    """Peers disconnected because there were too many."""
    streams: int = 0
    """Now."""
    bytes_in: dict[str, int] = {}
    bytes_out: dict[str, int] = {}
    """By path: `direct`, `relayed`."""
    dht_queries: dict[str, int] = {}
    """By kind: `bootstrap`, `find`, `get`, `locate`, `provide`, `put`."""
    dht_published: dict[str, int] = {}
    """What this node told the DHT: `succeeded`, `failed`."""
    dht_refused: dict[str, int] = {}
    """Records that were not kept or not believed, by reason."""
    dht_records: int = 0
    dht_providers: int = 0
    """Kept for others now."""
    dht_routing_table: int = 0
    gossip_published: int = 0
    gossip_received: int = 0
    gossip_invalid: int = 0
    gossip_duplicates: int = 0
    relay_reservations: int = 0
    relay_circuits: int = 0
    """Now, through this node…"""
    relay_circuits_total: int = 0
    """…and since its start."""
    relay_denied: dict[str, int] = {}
    """By what was asked for: `reservation`, `circuit`."""
    hole_punches: dict[str, int] = {}
    """`succeeded`, `failed`."""
    dropped_notices: int = 0
    """Gossip, round trips and refusals that this node was too slow to take."""


class Stream(Protocol):
    """A long-lived, ordered, bidirectional stream of frames with one peer."""

    @property
    def peer(self) -> PeerId: ...
    @property
    def protocol(self) -> str: ...
    @property
    def full(self) -> bool:
        """True while more is queued than the protocol's `write_high_bytes`."""
        ...

    def write(self, frame: bytes) -> None:
        """Queues one frame. On a closed stream it is dropped: `stream_closed` tells.

        Raises `FrameTooLong` for a frame over the protocol's limit.
        """
        ...

    def close(self) -> None:
        """Sends what is queued, then ends the stream. Idempotent."""
        ...


class SwarmListener(Protocol):
    """What a node implements to hear of its swarm. Called on the loop's thread."""

    def connected(self, peer: PeerId, admission: Admission, address: str, relayed: bool) -> None:
        """The first connection with an admitted peer stands."""
        ...

    def path_changed(self, peer: PeerId, address: str, relayed: bool) -> None:
        """A connected peer can be reached directly now, or only through a relay."""
        ...

    def disconnected(self, peer: PeerId, cause: str) -> None:
        """The last connection with this peer is gone; its streams are closed already."""
        ...

    def dial_succeeded(self, address: str, peer: PeerId) -> None: ...
    def dial_failed(
        self, address: str, failure: DialFailure, error: str, refusal: str = ""
    ) -> None:
        """`refusal`: why the hello was refused, if it was; a name from docs/wire.md."""
        ...

    def stream_opened(self, stream: Stream, ours: bool) -> None:
        """A stream stands; `ours` if this node asked for it."""
        ...

    def stream_failed(self, peer: PeerId, protocol: str, error: str) -> None: ...
    def frames(self, stream: Stream, frames: list[bytes], arrived_at: float) -> None:
        """Whole frames; `arrived_at` is when they reached the machine, in seconds of
        CLOCK_BOOTTIME."""
        ...

    def heartbeat(self, stream: Stream, peer_clock: float, arrived_at: float) -> None:
        """`peer_clock` is the peer's own CLOCK_BOOTTIME when it sent this."""
        ...

    def silent(self, stream: Stream, seconds: float) -> None: ...
    def writable(self, stream: Stream) -> None:
        """`full` has become false again."""
        ...

    def stream_closed(self, stream: Stream, error: str) -> None:
        """`error` is empty when the peer closed it in order."""
        ...

    def gossip(self, topic: str, source: PeerId, data: bytes) -> None:
        """`source` has signed it, whoever passed it on."""
        ...

    def providers_found(self, query: int, peers: list[PeerId], finished: bool) -> None:
        """Those not told before; `finished` at the end."""
        ...

    def record_found(self, query: int, record: SignedRecord | None) -> None:
        """The newest that was found."""
        ...

    def addresses_changed(self) -> None:
        """This node can be dialled elsewhere than before: see `Swarm.addresses`."""
        ...

    def reservation(self, gateway: PeerId, held: bool, error: str) -> None:
        """Whether others can reach this node through the gateway now: `addresses` says how
        already. Told again when there is one more way, and when it is renewed."""
        ...

    def cut_off(self, peer: PeerId, reason: str) -> None:
        """A misbehaving peer was disconnected, and is not let in for a while."""
        ...

    def round_trip(self, peer: PeerId, seconds: float) -> None: ...
    def knocked(self, peer: PeerId, seconds: float) -> None:
        """Somebody is awake where we have knocked for this peer."""
        ...

    def refused(self, address: str, error: str) -> None:
        """Somebody who dialled us got no further than the hello."""
        ...


class Swarm(Protocol):
    """One node's membership in a swarm."""

    @property
    def peer(self) -> PeerId: ...
    @property
    def addresses(self) -> list[str]:
        """Where this node can be dialled, each ending in `/p2p/<peer id>`: TCP before QUIC, of
        each the direct ones before those through a relay."""
        ...

    def dial(self, address: str) -> None:
        """`address` is a multiaddr that may end in `/p2p/<peer id>`."""
        ...

    def dial_peer(self, peer: PeerId, addresses: Sequence[str] = ()) -> None:
        """At these addresses and those that are known, else looked for in the DHT; direct
        ones before those through a relay. Ends in `dial_succeeded` or `dial_failed` with
        the address `/p2p/<peer id>`. Raises `InvalidAddress`."""
        ...

    def knock(self, peer: PeerId, addresses: Sequence[str]) -> bool:
        """One packet to each of these addresses that can be knocked at, without a connection;
        `knocked` tells of each answer. It shows that a node is awake there, not which. False
        if there is no such address."""
        ...

    def reserve(self, gateway: str) -> None:
        """Lets others reach this node through the gateway at this address, which ends in
        `/p2p/<peer id>`; `reservation` tells. While it is held, `addresses` has a way
        through the gateway. Raises `InvalidAddress`."""
        ...

    def keep(self, peer: PeerId, kept: bool) -> None:
        """A kept peer is never disconnected because there are too many."""
        ...

    def open_stream(self, peer: PeerId, protocol: str) -> None:
        """To a connected peer; a protocol that the node was started with."""
        ...

    def disconnect(self, peer: PeerId) -> None: ...
    def accuse(self, peer: PeerId) -> None:
        """It has sent a frame that is no message. Who does so ten times in a short time is
        disconnected and kept out for a while: `cut_off` tells."""
        ...

    def subscribe(self, topic: str) -> None: ...
    def publish(self, topic: str, data: bytes) -> None:
        """Best effort: gossip promises nothing. Raises `FrameTooLong`."""
        ...

    def provide(self, key: bytes) -> None:
        """Others find this node by the key from now on. Idempotent.

        Raises `InvalidSetting` for too long a key or too many of them.
        """
        ...

    def stop_providing(self, key: bytes) -> None:
        """The others forget it within the life time of records."""
        ...

    def find_providers(self, query: int, key: bytes) -> None:
        """`query` is a number of the caller's, and comes back with what is found."""
        ...

    def put_record(self, payload: bytes, sequence: int, expires_at: float) -> None:
        """This node's own record, signed and published until `expires_at`, which is in
        seconds since 1970. A higher `sequence` replaces a lower one everywhere.

        Raises `FrameTooLong`.
        """
        ...

    def withdraw_record(self) -> None:
        """Replaces this node's record by an empty one."""
        ...

    def get_record(self, query: int, peer: PeerId) -> None: ...
    def peers(self) -> list[PeerFacts]:
        """Who is connected."""
        ...

    def figures(self) -> SwarmFigures: ...
    def revoke(self, records: list[bytes]) -> list[bytes]:
        """Takes in what the swarm's owner has revoked, and cuts off whom it concerns. Returns
        those records that were good and news."""
        ...
