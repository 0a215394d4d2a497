"""A swarm's listener for blob streams alone: for measurements and tests."""

from __future__ import annotations

from mycel.blobs.blob_streams import Channels
from mycel.core.identifiers import PeerId
from mycel.swarm.interface import Admission, DialFailure, Stream, Swarm
from mycel.swarm.null_listener import IndifferentListener


class BlobListener(IndifferentListener):
    def __init__(self, channels: Channels) -> None:
        self._channels = channels
        self.peers: set[PeerId] = set()

    def start(self, swarm: Swarm) -> None:
        self._channels.start(swarm, self.peers.__contains__)

    def connected(self, peer: PeerId, admission: Admission, address: str, relayed: bool) -> None:
        self.peers.add(peer)

    def disconnected(self, peer: PeerId, cause: str) -> None:
        self.peers.discard(peer)

    def dial_succeeded(self, address: str, peer: PeerId) -> None:
        self._channels.dialled(peer, "")

    def dial_failed(
        self, address: str, failure: DialFailure, error: str, refusal: str = ""
    ) -> None:
        self._channels.dialled(PeerId(address.rpartition("/p2p/")[2]), error)

    def stream_opened(self, stream: Stream, ours: bool) -> None:
        self._channels.stream_opened(stream, ours)

    def stream_failed(self, peer: PeerId, protocol: str, error: str) -> None:
        self._channels.stream_failed(peer, error)

    def frames(self, stream: Stream, frames: list[bytes], arrived_at: float) -> None:
        self._channels.frames(stream, frames)

    def writable(self, stream: Stream) -> None:
        self._channels.writable(stream)

    def stream_closed(self, stream: Stream, error: str) -> None:
        self._channels.stream_closed(stream, error)
