"""Links: the control and the work stream between a scheduler and a worker, as one.

The worker opens both; a link is up when both stand, and gone when either breaks. Frames become
messages here and go no further if they are not ours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, get_args

from mycel.core.events import (
    Event,
    HeartbeatReceived,
    LinkDown,
    LinkUp,
    Received,
    SilenceNoticed,
)
from mycel.core.identifiers import PeerId
from mycel.core.messages import (
    ControlMessage,
    WorkMessage,
)
from mycel.core.principal import Principal, Tally
from mycel.runtime.clock import Clock
from mycel.swarm import message_codec
from mycel.swarm.errors import FrameTooLong
from mycel.swarm.frame_limits import CONTROL_BYTES_MAX, WORK_BYTES_MAX
from mycel.swarm.interface import CONTROL_PROTOCOL, WORK_PROTOCOL, Stream, Swarm

CONTROL_MESSAGES: Final = frozenset(get_args(ControlMessage))
HALF_SECONDS: Final = 5.0
"""A link whose second stream has not come by then is given up."""
EARLY_BATCHES_MAX: Final = 64
"""Of frames of the first stream, which may wait for the second to stand."""
EARLY_BYTES_MAX: Final = WORK_BYTES_MAX + CONTROL_BYTES_MAX
"""Of the links of one peer, and with them of its family."""

_DECODE: Final[dict[str, Callable[[bytes], WorkMessage | ControlMessage]]] = {
    CONTROL_PROTOCOL: message_codec.decode_control,
    WORK_PROTOCOL: message_codec.decode_work,
}


class Link:
    """What stands between this node and one peer."""

    def __init__(self, peer: PeerId, principal: Principal) -> None:
        self.peer = peer
        self.principal = principal
        self.streams: dict[str, Stream] = {}
        self.early: list[tuple[Stream, list[bytes], float]] = []
        self.early_bytes = 0

    @property
    def is_up(self) -> bool:
        return len(self.streams) == 2


class Links:
    def __init__(
        self,
        clock: Clock,
        post: Callable[[Event], None],
        heard_by: Callable[[PeerId], str] | None = None,
        keep: Callable[[PeerId, bool], None] | None = None,
        accuse: Callable[[PeerId, str], None] | None = None,
        principal_of: Callable[[PeerId], Principal] = lambda _: Principal(),
    ) -> None:
        """`accuse` is told of each frame that is no message."""
        self._clock = clock
        self._post = post
        self._heard_by = heard_by
        self._keep = keep
        self._accuse = accuse
        self._principal_of = principal_of
        self._early_bytes = Tally(EARLY_BYTES_MAX)
        self._garbled: set[Stream] = set()
        """Closed for a frame that was no message; more may come before the peer hears of it."""
        self._links: dict[PeerId, Link] = {}
        self._opening: set[PeerId] = set()

    def get(self, peer: PeerId) -> Link | None:
        return self._links.get(peer)

    def is_linked(self, peer: PeerId) -> bool:
        return peer in self._links or peer in self._opening

    def is_up(self, peer: PeerId) -> bool:
        link = self._links.get(peer)
        return link is not None and link.is_up

    def open(self, swarm: Swarm, peer: PeerId) -> None:
        """The worker's side: both streams, to a connected scheduler."""
        if not self.is_linked(peer):
            self._opening.add(peer)
            swarm.open_stream(peer, CONTROL_PROTOCOL)
            swarm.open_stream(peer, WORK_PROTOCOL)

    def send(self, peer: PeerId, message: WorkMessage | ControlMessage) -> None:
        """Dropped if the link is down: both sides start afresh with the next one."""
        link = self._links.get(peer)
        if link is None or not link.is_up:
            return
        is_control = type(message) in CONTROL_MESSAGES
        stream = link.streams[CONTROL_PROTOCOL if is_control else WORK_PROTOCOL]
        try:
            stream.write(message_codec.encode(message))
        except (FrameTooLong, UnicodeEncodeError) as error:
            # Never the end of a process: both sides start afresh, as after any broken link.
            self.hang_up(peer, f"a {type(message).__name__} cannot be sent: {error}")

    def hang_up(self, peer: PeerId, cause: str) -> None:
        link = self._links.pop(peer, None)
        self._opening.discard(peer)
        if link is not None:
            self._close(link, cause)

    # What the swarm tells

    def stream_opened(self, stream: Stream) -> None:
        self._opening.discard(stream.peer)
        link = self._links.get(stream.peer)
        if link is not None and stream.protocol in link.streams:
            # The peer has begun a new link before we noticed the end of the old one.
            self.hang_up(stream.peer, "the peer opened a new link")
            link = None
        if link is None:
            principal = self._principal_of(stream.peer)
            link = self._links[stream.peer] = Link(stream.peer, principal)
            self._give_up_half(link)
        link.streams[stream.protocol] = stream
        if link.is_up:
            heard_by = "" if self._heard_by is None else self._heard_by(stream.peer)
            self._post(LinkUp(stream.peer, heard_by, link.principal))
            if self._keep is not None:
                self._keep(stream.peer, True)
            early = self._take_early(link)
            for waiting, frames, arrived_at in early:
                self.frames(waiting, frames, arrived_at)

    def _give_up_half(self, link: Link) -> None:
        """The other stream may have failed, or died before this one stood."""

        def due() -> None:
            if self._links.get(link.peer) is link and not link.is_up:
                self.hang_up(link.peer, "only one of its two streams came")

        self._clock.call_at(self._clock.now() + HALF_SECONDS, due)

    def stream_failed(self, peer: PeerId, error: str) -> None:
        self._opening.discard(peer)
        self.hang_up(peer, error)

    def stream_closed(self, stream: Stream, error: str) -> None:
        self._garbled.discard(stream)
        link = self._links.get(stream.peer)
        if link is not None and link.streams.get(stream.protocol) is stream:
            self.hang_up(stream.peer, error or "the peer closed it")

    def frames(self, stream: Stream, frames: list[bytes], arrived_at: float) -> None:
        link = self._links.get(stream.peer)
        if link is None or link.streams.get(stream.protocol) is not stream:
            if stream in self._garbled:
                self._count_garbage(stream, frames)
            return
        if not link.is_up:
            self._keep_early(link, stream, frames, arrived_at)
            return
        decode = _DECODE[stream.protocol]
        place = 0
        try:
            for place, frame in enumerate(frames):  # noqa: B007 - the last one is looked at again
                self._post(Received(stream.peer, decode(frame), arrived_at))
        except message_codec.MalformedFrame as error:
            self._garbled.add(stream)
            self.hang_up(stream.peer, str(error))
            self._count_garbage(stream, frames[place:])

    def _keep_early(
        self, link: Link, stream: Stream, frames: list[bytes], arrived_at: float
    ) -> None:
        size = sum(map(len, frames))
        has_room = self._early_bytes.has_room(link.peer, link.principal.family, size)
        if not has_room or len(link.early) >= EARLY_BATCHES_MAX:
            self.hang_up(link.peer, "it spoke before the link stood")
            return
        self._early_bytes.take(link.peer, link.principal.family, size)
        link.early_bytes += size
        link.early.append((stream, frames, arrived_at))

    def _take_early(self, link: Link) -> list[tuple[Stream, list[bytes], float]]:
        self._early_bytes.give_back(link.peer, link.principal.family, link.early_bytes)
        early, link.early, link.early_bytes = link.early, [], 0
        return early

    def _count_garbage(self, stream: Stream, frames: list[bytes]) -> None:
        """Each counts, however they come: one by one, or all at once."""
        for frame in frames:
            try:
                _DECODE[stream.protocol](frame)
            except message_codec.MalformedFrame as error:
                if self._accuse is not None:
                    self._accuse(stream.peer, str(error))

    def heartbeat(self, stream: Stream, peer_clock: float, arrived_at: float) -> None:
        if self.is_up(stream.peer):
            self._post(HeartbeatReceived(stream.peer, peer_clock, arrived_at))

    def silent(self, stream: Stream, seconds: float) -> None:
        if self.is_up(stream.peer):
            self._post(SilenceNoticed(stream.peer, seconds))

    def _close(self, link: Link, cause: str) -> None:
        was_up = link.is_up
        self._take_early(link)
        for stream in link.streams.values():
            stream.close()
        if was_up:
            self._post(LinkDown(link.peer, cause))
            if self._keep is not None:
                self._keep(link.peer, False)
