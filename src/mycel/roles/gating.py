"""The gateway: hands newcomers a sample of peers with their roles.

It keeps what peers say of themselves while they are connected, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from mycel.core.identifiers import PeerId
from mycel.core.messages import Join, PeerRecord, Peers
from mycel.swarm.interface import Admission, Stream, Swarm
from mycel.swarm.listening import IndifferentListener
from mycel.wire import codec

from .joining import RECORDS_MAX
from .protocols import schedulers_topic

PEERS_MAX: Final = 100_000
ADDRESSES_MAX: Final = 16


class GatewayNode(IndifferentListener):
    """A `SwarmListener`."""

    def __init__(self, random: Random, swarm_name: str, note: Callable[..., None]) -> None:
        self._random = random
        self._topic = schedulers_topic(swarm_name)
        self._note = note
        self._roles: dict[PeerId, frozenset[str]] = {}
        self._records: dict[PeerId, PeerRecord] = {}

    @property
    def records(self) -> list[PeerRecord]:
        return list(self._records.values())

    def start(self, swarm: Swarm) -> None:
        """Gossip is passed on only by those who listen to it themselves."""
        swarm.subscribe(self._topic)

    def connected(self, peer: PeerId, admission: Admission, address: str, relayed: bool) -> None:
        self._roles[peer] = admission.roles

    def disconnected(self, peer: PeerId, cause: str) -> None:
        self._roles.pop(peer, None)
        if self._records.pop(peer, None) is not None:
            self._note("peer_left", peer=peer, cause=cause)

    def frames(self, stream: Stream, frames: list[bytes], arrived_at: float) -> None:
        for frame in frames:
            try:
                message = codec.decode_control(frame)
            except codec.MalformedFrame as error:
                self._note("malformed_frame", peer=stream.peer, error=str(error))
                stream.close()
                return
            if isinstance(message, Join):
                self._joined(stream, message.me)

    def _joined(self, stream: Stream, me: PeerRecord) -> None:
        """The roles are those of its token; the addresses are its own word."""
        if len(self._records) < PEERS_MAX:
            roles = tuple(sorted(self._roles.get(stream.peer, frozenset())))
            record = PeerRecord(stream.peer, roles, me.addresses[:ADDRESSES_MAX])
            self._records[stream.peer] = record
            self._note("peer_joined", peer=stream.peer, roles=roles)
        stream.write(codec.encode(Peers(self._sample(stream.peer))))

    def _sample(self, asker: PeerId) -> list[PeerRecord]:
        """Schedulers first: a worker can use them at once."""
        others = [record for peer, record in self._records.items() if peer != asker]
        self._random.shuffle(others)
        others.sort(key=lambda record: "scheduler" not in record.roles)
        return others[:RECORDS_MAX]

    def cut_off(self, peer: PeerId, reason: str) -> None:
        self._note("peer_cut_off", peer=peer, reason=reason)

    def refused(self, address: str, error: str) -> None:
        self._note("hello_refused", address=address, error=error)
