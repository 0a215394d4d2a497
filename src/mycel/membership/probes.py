"""Signs of life of workers that have no link: a knock, or a ping over a connection made for it.

    Check ─┬─ connected ───────▶ ping ─▶ CheckAnswered
           ├─ knock, where it was met before ─┬─ it answers ─▶ CheckAnswered
           │                                  ├─ there is no room to dial ─▶ CheckPutOff
           └─ thorough ───────────────────────┴─ dial ─┬─ it succeeds ─▶ ping, and the
                                                       │                 connection ends
                                                       └─ it is refused ─▶ dial each address:
                                                          DialFailed, if that tells something

That no answer came is told by nobody: the machine has its own clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from mycel.core.effects import Check
from mycel.core.events import CheckAnswered, CheckPutOff, Event
from mycel.core.identifiers import PeerId
from mycel.runtime.clock import Clock
from mycel.swarm.errors import SwarmError
from mycel.swarm.interface import DialFailure, Swarm
from mycel.swarm.multiaddress import peer_in

from .peer_requests import Signals

PING_SECONDS_MAX: Final = 30.0
"""An answer is one, however late: it speaks for a worker that was frozen."""
KNOCKS: Final = 3
"""Packets get lost."""
KNOCK_SHARE: Final = 0.1
"""Of the time that a check has: so long each knock is waited for."""
DIALS_MAX: Final = 128
"""At once, half of what a node may have pending: the rest is for calls and searches. Each holds
a socket, for as long as a connection may take if nobody answers."""


class Surroundings(Protocol):
    """What the node knows of a peer."""

    def is_connected(self, peer: PeerId) -> bool: ...
    def is_linked(self, peer: PeerId) -> bool: ...
    def dial_all(self, peer: PeerId, addresses: tuple[str, ...]) -> bool: ...
    def where_met(self, peer: PeerId, addresses: tuple[str, ...]) -> list[str]:
        """Those of them at which the peer itself answers, as far as is known."""
        ...


class Checks:
    def __init__(
        self,
        node: Surroundings,
        signals: Signals,
        clock: Clock,
        post: Callable[[Event], None],
    ) -> None:
        self._node = node
        self._signals = signals
        self._clock = clock
        self._post = post
        self._swarm: Swarm | None = None
        self._knocking: dict[PeerId, Check] = {}
        self._dialling: dict[PeerId, tuple[Check, bool]] = {}
        """And whether it was knocked at in vain before."""
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
        if self._swarm is None or peer in self._pinging:
            return
        if peer in self._knocking or peer in self._dialling:
            return
        if self._node.is_connected(peer):
            self._ping(peer)
        elif effect.is_thorough and len(self._dialling) < DIALS_MAX:
            self._dial(effect)
        else:
            self._knock(effect, KNOCKS)

    def _knock(self, effect: Check, knocks_left: int) -> None:
        assert self._swarm is not None
        try:
            places = self._node.where_met(effect.peer, effect.addresses)
            can_hear = self._swarm.knock(effect.peer, places)
        except SwarmError:
            return  # what others say of its addresses is no address
        if not can_hear:
            self._dial(effect)
            return
        self._knocking[effect.peer] = effect

        def unheard() -> None:
            if self._knocking.get(effect.peer) is not effect or self._swarm is None:
                return
            if knocks_left > 1:
                self._knock(effect, knocks_left - 1)
            else:
                del self._knocking[effect.peer]
                self._dial(effect, after_knocks=True)

        self._clock.call_at(self._clock.now() + KNOCK_SHARE * effect.seconds, unheard)

    def knocked(self, peer: PeerId, seconds: float) -> None:
        """Perhaps late, while it is being dialled: that goes on."""
        if self._knocking.pop(peer, None) is not None or peer in self._dialling:
            self._post(CheckAnswered(peer, seconds, hears_knocks=True))

    def _dial(self, effect: Check, *, after_knocks: bool = False) -> None:
        assert self._swarm is not None
        peer = effect.peer
        if self._node.is_connected(peer):
            self._ping(peer)
            return
        if len(self._dialling) >= DIALS_MAX:
            self._post(CheckPutOff(peer, after_knocks))
            return
        try:
            self._swarm.dial_peer(peer, effect.addresses)
        except SwarmError:
            return
        self._dialling[peer] = effect, after_knocks

    def wanted(self, peer: PeerId) -> None:
        """It is called meanwhile: what connects it stays."""
        self._knocking.pop(peer, None)
        self._dialling.pop(peer, None)
        self._connected_for.discard(peer)

    def dial_succeeded(self, address: str, peer: PeerId) -> None:
        """Who had to be dialled after knocks in vain, or was not met directly now either, does
        not hear them."""
        dialled = self._dialling.pop(peer, None) if address.startswith("/p2p/") else None
        if dialled is None:
            return
        effect, after_knocks = dialled
        is_met = bool(self._node.where_met(peer, effect.addresses))
        self._connected_for.add(peer)
        self._ping(peer, False if after_knocks or not is_met else None)

    def dial_failed(self, address: str, failure: DialFailure) -> None:
        peer = peer_in(address) if address.startswith("/p2p/") else None
        dialled = self._dialling.pop(peer, None) if peer is not None else None
        if dialled is not None and failure is DialFailure.REFUSED and self._swarm is not None:
            # By somebody: whether that was the worker's machine shows when its addresses are
            # dialled one by one, and nobody but the dead costs that much.
            self._node.dial_all(dialled[0].peer, dialled[0].addresses)

    def disconnected(self, peer: PeerId) -> None:
        self._connected_for.discard(peer)

    def _ping(self, peer: PeerId, hears_knocks: bool | None = None) -> None:
        assert self._swarm is not None
        self._pinging.add(peer)

        def measured(seconds: list[float], _: str) -> None:
            self._pinging.discard(peer)
            if seconds:
                self._post(CheckAnswered(peer, seconds[0], hears_knocks))
            self._leave(peer)

        self._signals.ping(self._swarm, peer, 1, PING_SECONDS_MAX, measured)

    def _leave(self, peer: PeerId) -> None:
        if peer not in self._connected_for:
            return
        self._connected_for.discard(peer)
        is_used = self._node.is_linked(peer) or self._signals.is_pinging(peer)
        if self._swarm is not None and not is_used:
            self._swarm.disconnect(peer)
