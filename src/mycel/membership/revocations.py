"""Revocations: how the owner's word reaches every node, and stays.

    API or home ─▶ take ─▶ the gate cuts off ─▶ disk ─▶ gossip ─▶ every other node
    a hello shows that the peer knows others ─▶ one stream each way carries all of them

A record needs no trust in whoever brings it: the swarm checks the owner's signature, and keeps
each until the token would have ended anyway. Gossip passes on only what the owner signed: the
native node checks it before, and cuts off who forges. On a stream anything can be sent: who brings
many there that are neither known nor good is not listened to for a while.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from mycel.access.errors import AccessError
from mycel.access.secret_files import replace_secret_file
from mycel.core.identifiers import PeerId
from mycel.core.principal import Family, accounts
from mycel.swarm.errors import SwarmError
from mycel.swarm.interface import Admission, Stream, Swarm

PROTOCOL: Final = "/mycel/revocations/1"
FRAME_BYTES_MAX: Final = 64 * 1024
RECORDS_PER_FRAME: Final = 400
FRAMES_MAX: Final = 400
"""Of one peer's stream: more than the whole set is nothing but noise."""
ID_BYTES: Final = 32
ENDED_SECONDS: Final = 120.0
"""After a token's end nobody takes a revocation of it any more, however its clock goes."""
USELESS_MAX: Final = 1_000
"""So many records of one source may be of no use, and of those who joined by one invite…"""
USELESS_SECONDS: Final = 3600.0
"""…in this time. Each costs some 50 µs."""
SOURCES_MAX: Final = 10_000
_decode: Final = msgspec.msgpack.Decoder(list[bytes]).decode
_encode: Final = msgspec.msgpack.Encoder().encode


def revocations_topic(swarm_name: str) -> str:
    return f"mycel/{swarm_name}/revocations"


def read_records(path: Path) -> list[bytes]:
    """What an earlier run kept. A damaged file is as good as none: peers know them too."""
    try:
        return _decode(path.read_bytes())
    except (OSError, msgspec.DecodeError):
        return []


class _Patience:
    """With those who bring what is of no use."""

    def __init__(self, unix: Callable[[], float]) -> None:
        self._unix = unix
        self._began_at = unix()
        self._useless: dict[str, int] = {}

    def is_over(self, source: PeerId, family: Family | None) -> bool:
        if self._unix() - self._began_at >= USELESS_SECONDS:
            self._began_at = self._unix()
            self._useless.clear()
        counted = self._useless
        return any(
            counted.get(account, 0) >= most
            for account, most in accounts(source, family, USELESS_MAX)
        )

    def count(self, source: PeerId, family: Family | None, useless: int) -> None:
        for account, _ in accounts(source, family, USELESS_MAX):
            so_far = self._useless.pop(account, 0)
            while len(self._useless) >= SOURCES_MAX:
                del self._useless[next(iter(self._useless))]
            self._useless[account] = so_far + useless


class Revoking:
    """What one node knows to be revoked."""

    def __init__(
        self,
        swarm_name: str,
        note: Callable[..., None],
        *,
        keep_at: Path | None = None,
        others_at: Path | None = None,
        unix: Callable[[], float] = time.time,
    ) -> None:
        """`keep_at` is the node's own file; `others_at` is read once, beside it."""
        self.topic: Final = revocations_topic(swarm_name)
        self.revoked: set[bytes] = set()
        """Ids; the API and the worker's machine hold tokens against it."""
        self.on_news: list[Callable[[frozenset[bytes]], None]] = []
        self._records: list[bytes] = []
        self._note = note
        self._keep_at = keep_at
        self._others_at = others_at
        self._swarm: Swarm | None = None
        self._frames: dict[Stream, int] = {}
        self._unix = unix
        self._patience = _Patience(unix)
        self._families: dict[PeerId, Family] = {}
        """Of the connected peers that joined by invites."""

    def start(self, swarm: Swarm) -> None:
        self._swarm = swarm
        kept = [read_records(path) for path in (self._keep_at, self._others_at) if path]
        records = list(dict.fromkeys(record for part in kept for record in part))
        if records:
            self.take(records, "disk")
        swarm.subscribe(self.topic)

    def stop(self) -> None:
        self._swarm = None

    def take(self, records: list[bytes], source: str) -> int:
        """How many of them were good and news."""
        if self._swarm is None:
            return 0
        try:
            news = self._swarm.revoke(records)
        except SwarmError as error:
            self._note("revocations_not_taken", error=str(error))
            return 0
        if not news:
            return 0
        ids = frozenset(record[:ID_BYTES] for record in news)
        self._records += news
        self.revoked |= ids
        self._note("revoked", count=len(news), source=source)
        self._keep()
        for told in self.on_news:
            told(ids)
        return len(news)

    def spread(self, records: list[bytes]) -> int:
        """What came from the owner: taken in, and told to everybody."""
        taken = self.take(records, "api")
        if self._swarm is not None:
            # Nobody keeps those of tokens that have ended, or passes on what holds one of them.
            unended = [record for record in records if not _ends(record, self._unix())]
            for part in _parts(unended):
                self._swarm.publish(self.topic, _encode(part))
        return taken

    def _keep(self) -> None:
        if self._keep_at is None:
            return
        try:
            replace_secret_file(self._keep_at, _encode(self._records))
        except AccessError as error:
            self._note("revocations_not_kept", error=str(error))

    # What the swarm tells

    def connected(self, peer: PeerId, admission: Admission) -> None:
        if admission.family is not None:
            self._families[peer] = admission.family
        if admission.revocations_differ and self._records and self._swarm is not None:
            self._swarm.open_stream(peer, PROTOCOL)

    def disconnected(self, peer: PeerId) -> None:
        self._families.pop(peer, None)

    def stream_opened(self, stream: Stream, ours: bool) -> None:
        if ours:
            over = self._unix() - ENDED_SECONDS
            for part in _parts([record for record in self._records if not _ends(record, over)]):
                stream.write(_encode(part))
            stream.close()

    def frames(self, stream: Stream, frames: list[bytes]) -> None:
        seen = self._frames[stream] = self._frames.get(stream, 0) + len(frames)
        if seen > FRAMES_MAX:
            stream.close()
            return
        for frame in frames:
            if not self._read(frame, stream.peer, stream.peer):
                stream.close()
                return

    def stream_closed(self, stream: Stream) -> None:
        self._frames.pop(stream, None)

    def gossip(self, source: PeerId, data: bytes) -> None:
        self._read(data, source)

    def _read(self, data: bytes, source: PeerId, peer: PeerId | None = None) -> bool:
        """With `peer`, it came from there as a frame."""
        try:
            records = _decode(data)
        except msgspec.DecodeError as error:
            self._note("malformed_revocations", source=source, error=str(error))
            if self._swarm is not None and peer is not None:
                self._swarm.accuse(peer)
            return False
        unknown = [one for one in records[:RECORDS_PER_FRAME] if one[:ID_BYTES] not in self.revoked]
        if not unknown or self._swarm is None:
            return True
        family = self._families.get(source)
        if self._patience.is_over(source, family):
            return False
        useless = len(unknown) - self.take(unknown, source)
        if useless:
            self._patience.count(source, family, useless)
            if self._patience.is_over(source, family):
                self._note("revocations_ignored", source=source, seconds=USELESS_SECONDS)
        return True


def _ends(record: bytes, before: float) -> bool:
    """Whether the token has ended by then; its end stands behind the id, if it has one."""
    end = record[ID_BYTES : ID_BYTES + 8]
    return bool(end) and int.from_bytes(end) <= before


def _parts(records: list[bytes]) -> list[list[bytes]]:
    starts = range(0, len(records), RECORDS_PER_FRAME)
    return [records[start : start + RECORDS_PER_FRAME] for start in starts]
