"""Server-sent events, as the API streams them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec


class Event(msgspec.Struct, frozen=True):
    kind: str
    """`task.succeeded`, `worker.dead`, …; `reset` when events were missed: they are pruned."""
    data: dict[str, Any]
    id: int | None = None
    """Of committed events: `events(after=id)` goes on behind it."""


def read_events(pieces: Iterable[bytes]) -> Iterator[Event | int]:
    """Events, and, where only the place in the stream was told, that place."""
    for block in _blocks(pieces):
        fields: dict[bytes, bytes] = {}
        for line in block.split(b"\n"):
            name, colon, value = line.partition(b":")
            if colon and name:
                fields[name] = value.removeprefix(b" ")
        identifier = int(fields[b"id"]) if b"id" in fields else None
        if b"data" in fields:
            data = msgspec.json.decode(fields[b"data"], type=dict[str, Any])
            yield Event(fields.get(b"event", b"message").decode(), data, identifier)
        elif identifier is not None:
            yield identifier


def read_data(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """What events carry, undecoded."""
    for block in _blocks(pieces):
        for line in block.split(b"\n"):
            name, _, value = line.partition(b":")
            if name == b"data":
                yield value.removeprefix(b" ")


def _blocks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n\n")
        yield from whole
