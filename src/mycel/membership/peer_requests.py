"""Signals: short words between any two nodes, on a stream that lives for one exchange.

A ping is answered by whoever hears it, so that both event loops are in what is measured. A
summons asks a worker for a link; it is how a scheduler calls a worker that it is connected with
and has no link to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mycel.core.identifiers import PeerId
from mycel.core.messages import Ping, Pong, Summons
from mycel.runtime.clock import Clock
from mycel.swarm import message_codec
from mycel.swarm.interface import Stream, Swarm

from .protocols import SIGNAL_PROTOCOL

IDLE_SECONDS: Final = 30.0
"""Who opens a signal stream and says nothing for so long is cut off."""
PINGS_MAX: Final = 100
SERIES_MAX: Final = 8
"""Of pings to one peer, at once."""

Measured = Callable[[list[float], str], None]
"""Round trips in seconds, and what ended the series early, if anything did."""


class _Series:
    """Pings to one peer, one after another."""

    def __init__(self, peer: PeerId, count: int, measured: Measured) -> None:
        self.peer = peer
        self.count = count
        self.measured = measured
        self.seconds: list[float] = []
        self.sent_at = 0.0
        self.stream: Stream | None = None


class Signals:
    """Both ends. Owns every stream of the signal protocol."""

    def __init__(
        self,
        clock: Clock,
        summoned: Callable[[PeerId], None],
        accuse: Callable[[PeerId, str], None],
    ) -> None:
        """`accuse` is told of each frame that is no message."""
        self._clock = clock
        self._accuse = accuse
        self._summoned = summoned
        self._summoning: set[PeerId] = set()
        self._pinging: dict[PeerId, list[_Series]] = {}

    def summon(self, swarm: Swarm, peer: PeerId) -> None:
        """To a connected peer; if it fails, whoever waits for the link will notice."""
        if peer not in self._summoning:
            self._summoning.add(peer)
            swarm.open_stream(peer, SIGNAL_PROTOCOL)

    def ping(
        self, swarm: Swarm, peer: PeerId, count: int, timeout_seconds: float, measured: Measured
    ) -> None:
        """To a connected peer; `measured` is called once."""
        under_way = self._pinging.setdefault(peer, [])
        if len(under_way) >= SERIES_MAX:
            measured([], "it is being pinged already")
            return
        series = _Series(peer, min(count, PINGS_MAX), measured)
        under_way.append(series)
        swarm.open_stream(peer, SIGNAL_PROTOCOL)

        def late() -> None:
            if series in self._pinging.get(peer, ()):
                self._end(series, f"no answer within {timeout_seconds:g} s")

        self._clock.call_at(self._clock.now() + timeout_seconds, late)

    def is_pinging(self, peer: PeerId) -> bool:
        return peer in self._pinging

    def _series_on(self, peer: PeerId, stream: Stream | None) -> _Series | None:
        """The one that has this stream, or the first that waits for one."""
        return next((one for one in self._pinging.get(peer, ()) if one.stream is stream), None)

    # What the swarm tells of streams of this protocol

    def stream_opened(self, stream: Stream, ours: bool) -> None:
        if not ours:
            self._cut_off_later(stream)
            return
        if stream.peer in self._summoning:
            self._summoning.discard(stream.peer)
            stream.write(message_codec.encode(Summons()))
            stream.close()
            return
        series = self._series_on(stream.peer, None)
        if series is None:
            stream.close()
            return
        series.stream = stream
        self._send_ping(series)

    def _cut_off_later(self, stream: Stream) -> None:
        self._clock.call_at(self._clock.now() + IDLE_SECONDS, stream.close)

    def stream_failed(self, peer: PeerId, error: str) -> None:
        self._summoning.discard(peer)
        self.peer_lost(peer, error)

    def stream_closed(self, stream: Stream, error: str) -> None:
        series = self._series_on(stream.peer, stream)
        if series is not None:
            self._end(series, error or "the peer closed it")

    def peer_lost(self, peer: PeerId, cause: str) -> None:
        self._summoning.discard(peer)
        for series in list(self._pinging.get(peer, ())):
            self._end(series, cause)

    def frames(self, stream: Stream, frames: list[bytes], arrived_at: float) -> None:
        for frame in frames:
            try:
                message = message_codec.decode_signal(frame)
            except message_codec.MalformedFrame as error:
                self._accuse(stream.peer, str(error))
                stream.close()
                continue
            if isinstance(message, Ping):
                stream.write(message_codec.encode(Pong(message.number)))
            elif isinstance(message, Summons):
                self._summoned(stream.peer)
            else:
                self._answered(stream, message, arrived_at)

    def _answered(self, stream: Stream, pong: Pong, arrived_at: float) -> None:
        series = self._series_on(stream.peer, stream)
        if series is None or pong.number != len(series.seconds):
            return
        series.seconds.append(max(0.0, arrived_at - series.sent_at))
        if len(series.seconds) >= series.count:
            self._end(series, "")
        else:
            self._send_ping(series)

    def _send_ping(self, series: _Series) -> None:
        assert series.stream is not None
        series.sent_at = self._clock.now()
        series.stream.write(message_codec.encode(Ping(len(series.seconds))))

    def _end(self, series: _Series, error: str) -> None:
        under_way = self._pinging[series.peer]
        under_way.remove(series)
        if not under_way:
            del self._pinging[series.peer]
        if series.stream is not None:
            series.stream.close()
        series.measured(series.seconds, error)
