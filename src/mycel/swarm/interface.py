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
* Nothing here raises because of what a peer does.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, Protocol

import msgspec

from mycel.core.identifiers import PeerId

CONTROL_PROTOCOL: Final = "/mycel/control/1"
WORK_PROTOCOL: Final = "/mycel/work/1"


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


class Liveness(msgspec.Struct, frozen=True, kw_only=True):
    heartbeat_seconds: float = 2.0
    silence_seconds: float = 7.0
    """Without a byte for this long, `silent` is told once…"""
    repeat_seconds: float = 5.0
    """…and again each time this much more has passed."""


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

    def connected(self, peer: PeerId, roles: frozenset[str], address: str) -> None:
        """The first connection with an admitted peer stands."""
        ...

    def disconnected(self, peer: PeerId, cause: str) -> None:
        """The last connection with this peer is gone; its streams are closed already."""
        ...

    def dial_succeeded(self, address: str, peer: PeerId) -> None: ...
    def dial_failed(self, address: str, failure: DialFailure, error: str) -> None: ...
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

    def gossip(self, topic: str, data: bytes) -> None: ...
    def round_trip(self, peer: PeerId, seconds: float) -> None: ...
    def refused(self, address: str, error: str) -> None:
        """Somebody who dialled us got no further than the hello."""
        ...


class Swarm(Protocol):
    """One node's membership in a swarm."""

    @property
    def peer(self) -> PeerId: ...
    @property
    def addresses(self) -> list[str]:
        """Where this node listens, each ending in `/p2p/<peer id>`."""
        ...

    def dial(self, address: str) -> None:
        """`address` is a multiaddr that may end in `/p2p/<peer id>`."""
        ...

    def open_stream(self, peer: PeerId, protocol: str) -> None:
        """To a connected peer; a protocol that the node was started with."""
        ...

    def disconnect(self, peer: PeerId) -> None: ...
    def subscribe(self, topic: str) -> None: ...
    def publish(self, topic: str, data: bytes) -> None:
        """Best effort: gossip promises nothing."""
        ...
