"""The peers that a node has met, kept over restarts: how it finds its swarm again when none of
its configured gateways lives.

Gateways stay longest, then schedulers, then the others; among equals who was seen last.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from mycel.access.errors import AccessError
from mycel.access.home import read_state, write_state
from mycel.core.identifiers import PeerId
from mycel.core.messages import PeerRecord

PEERS_MAX: Final = 256
ADDRESSES_MAX: Final = 8
_RANKS: Final = ("gateway", "scheduler")


class StoredPeer(msgspec.Struct, frozen=True):
    peer: str
    roles: tuple[str, ...]
    addresses: tuple[str, ...]
    seen_at: float
    """Unix time."""


class _Book(msgspec.Struct, frozen=True):
    peers: list[StoredPeer]


class PeerBook:
    def __init__(self, path: Path | None = None) -> None:
        """Without a path it lives as long as the process."""
        self._path = path
        self._peers: dict[PeerId, StoredPeer] = {}
        self._is_changed = False
        for one in [] if path is None else _read(path)[:PEERS_MAX]:
            self._peers[PeerId(one.peer)] = one

    def __len__(self) -> int:
        return len(self._peers)

    def remember(self, record: PeerRecord, now_unix: float) -> None:
        if not record.addresses:
            return
        addresses = record.addresses[:ADDRESSES_MAX]
        stored = StoredPeer(record.peer, record.roles, addresses, now_unix)
        self._peers[PeerId(record.peer)] = stored
        self._is_changed = True
        if len(self._peers) > PEERS_MAX:
            del self._peers[PeerId(self._in_order()[-1].peer)]

    def records(self) -> list[PeerRecord]:
        """The most useful first."""
        return [PeerRecord(one.peer, one.roles, one.addresses) for one in self._in_order()]

    def save(self) -> None:
        """If anything has changed. Raises `AccessError`."""
        if self._path is not None and self._is_changed:
            write_state(self._path, _Book(self._in_order()))
            self._is_changed = False

    def _in_order(self) -> list[StoredPeer]:
        return sorted(self._peers.values(), key=lambda one: (_rank(one), -one.seen_at))


def _read(path: Path) -> list[StoredPeer]:
    """A spoilt book is an empty one: it only ever saves a node some time."""
    try:
        stored = read_state(path, _Book)
    except AccessError:
        return []
    return [] if stored is None else stored.peers


def _rank(peer: StoredPeer) -> int:
    return next((rank for rank, role in enumerate(_RANKS) if role in peer.roles), len(_RANKS))
