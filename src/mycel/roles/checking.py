"""Signs of life of workers that have no link: a ping, over a connection made for it if need be.

    Check ─┬─ connected ────────────────▶ ping ─▶ CheckAnswered
           └─ dial ─┬─ it succeeds ─────▶ ping ─▶ CheckAnswered, and the connection ends
                    └─ it is refused ───▶ dial each address: DialFailed, if that tells something

That no answer came is told by nobody: the machine has its own clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from mycel.core.effects import Check
from mycel.core.events import CheckAnswered, Event
from mycel.core.identifiers import PeerId
from mycel.swarm.errors import SwarmError
from mycel.swarm.interface import DialFailure, Swarm

from .joining import peer_in
from .signals import Signals

PING_SECONDS_MAX: Final = 30.0
"""An answer is one, however late: it speaks for a worker that was frozen."""


class Surroundings(Protocol):
    """What the node knows of a peer."""

    def is_connected(self, peer: PeerId) -> bool: ...
    def is_linked(self, peer: PeerId) -> bool: ...
    def dial_all(self, peer: PeerId, addresses: tuple[str, ...]) -> bool: ...


class Checks:
    def __init__(self, node: Surroundings, signals: Signals, post: Callable[[Event], None]) -> None:
        self._node = node
        self._signals = signals
        self._post = post
        self._swarm: Swarm | None = None
        self._dialling: dict[PeerId, Check] = {}
        self._pinging: set[PeerId] = set()
        self._connected_for: set[PeerId] = set()
        """Connections that exist for a check."""

    def start(self, swarm: Swarm) -> None:
        self._swarm = swarm

    def stop(self) -> None:
        self._swarm = None

    def perform(self, effect: Check) -> None:
        """While an earlier check is under way, its answer serves."""
        peer = effect.peer
        if self._swarm is None or peer in self._dialling or peer in self._pinging:
            return
        if self._node.is_connected(peer):
            self._ping(peer)
            return
        try:
            self._swarm.dial_peer(peer, effect.addresses)
        except SwarmError:
            return  # what others say of its addresses is no address
        self._dialling[peer] = effect

    def wanted(self, peer: PeerId) -> None:
        """It is called meanwhile: what connects it stays."""
        self._dialling.pop(peer, None)
        self._connected_for.discard(peer)

    def dial_succeeded(self, address: str, peer: PeerId) -> None:
        if address.startswith("/p2p/") and self._dialling.pop(peer, None) is not None:
            self._connected_for.add(peer)
            self._ping(peer)

    def dial_failed(self, address: str, failure: DialFailure) -> None:
        peer = peer_in(address) if address.startswith("/p2p/") else None
        effect = self._dialling.pop(peer, None) if peer is not None else None
        if effect is not None and failure is DialFailure.REFUSED and self._swarm is not None:
            # By somebody: whether that was the worker's machine shows when its addresses are
            # dialled one by one, and nobody but the dead costs that much.
            self._node.dial_all(effect.peer, effect.addresses)

    def disconnected(self, peer: PeerId) -> None:
        self._connected_for.discard(peer)

    def _ping(self, peer: PeerId) -> None:
        assert self._swarm is not None
        self._pinging.add(peer)

        def measured(seconds: list[float], _: str) -> None:
            self._pinging.discard(peer)
            if seconds:
                self._post(CheckAnswered(peer, seconds[0]))
            self._leave(peer)

        self._signals.ping(self._swarm, peer, 1, PING_SECONDS_MAX, measured)

    def _leave(self, peer: PeerId) -> None:
        if peer not in self._connected_for:
            return
        self._connected_for.discard(peer)
        is_used = self._node.is_linked(peer) or self._signals.is_pinging(peer)
        if self._swarm is not None and not is_used:
            self._swarm.disconnect(peer)
