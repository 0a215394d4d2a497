"""One admitted peer floods a node: is it cut off in time, and do the others feel it?

    quiet │ flood │ quiet │ flood │ …      each flood by another peer, until it is cut off

What the others feel is the p99 of their requests, beside that of the quiet windows. The two take
turns, and their sources are processes of their own: whatever else this machine does slows both
alike. How sure the comparison is comes from drawing the same measurement anew many times, in
pieces of half a second, since a slow moment is never alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from mycel.bench.percentiles import percentile
from mycel.core.messages import WIRE_VERSION, Join, PeerRecord
from mycel.swarm import message_codec
from mycel.swarm.interface import CONTROL_PROTOCOL

from .attacks import GOSSIP_PROTOCOL
from .credentials import Who, somebody
from .envelopes import GOSSIP, Scribe, now_ms
from .hostile import Hostile, hostile
from .protobuf import delimited, publish
from .siege import READ_MILLISECONDS, Siege
from .target import TOPIC

FLOOD_PER_SECOND: Final = 1_000
CUT_WITHIN_SECONDS: Final = 10.0
RATIO_MAX: Final = 2.0
HONEST_PEERS: Final = 4
QUIET_SECONDS: Final = 4.0
"""About as long as a flood lasts."""
PIECE_SECONDS: Final = 0.5
DRAWS: Final = 400
SEALED_AT_ONCE: Final = 200

Pieces = list[list[float]]
"""Milliseconds of requests, those of each half second together."""


class Flooded(msgspec.Struct):
    """What was measured so far."""

    quiet: Pieces = []
    loud: Pieces = []
    cut_seconds: list[float] = []
    """How long each flood lasted."""

    def line(self, bounds: Bounds) -> str:
        quiet, loud = (percentile(_all(pieces), 99) for pieces in (self.quiet, self.loud))
        cut = ", ".join(f"{seconds:.1f}" for seconds in self.cut_seconds)
        counts = f"{len(_all(self.quiet)):,} and {len(_all(self.loud)):,} requests"
        return (
            f"flood: cut off after {cut} s; p99 {quiet:.2f} ms quiet, {loud:.2f} ms flooded "
            f"({bounds.middle:.2f} ×, surely {bounds.low:.2f} to {bounds.high:.2f}; {counts})"
        )


class Bounds(msgspec.Struct, frozen=True):
    """By how much p99 was higher in the floods; with 95 % certainty between low and high."""

    low: float
    middle: float
    high: float

    @property
    def is_clear(self) -> bool:
        return self.high < RATIO_MAX or self.is_felt

    @property
    def is_felt(self) -> bool:
        """Beyond doubt."""
        return self.low > RATIO_MAX


def compare(quiet: Pieces, loud: Pieces, random: Random) -> Bounds:
    ratios = [_drawn_p99(loud, random) / _drawn_p99(quiet, random) for _ in range(DRAWS)]
    return Bounds(*(percentile(ratios, share) for share in (2.5, 50, 97.5)))


def _drawn_p99(pieces: Pieces, random: Random) -> float:
    return percentile(_all(random.choices(pieces, k=len(pieces))), 99)


def _all(pieces: Sequence[Sequence[float]]) -> list[float]:
    return [sample for piece in pieces for sample in piece]


class Flood:
    """Honest peers and flooding ones, each kind with a speaker of its own."""

    def __init__(self, siege: Siege, flooder: Hostile) -> None:
        self._siege = siege
        self._flooder = Siege(siege.target, flooder, siege.owner, siege.random)
        self._flooder.address = siege.address
        self._streams: list[str] = []
        self.measured = Flooded([], [], [])

    async def begin(self) -> None:
        for _ in range(HONEST_PEERS):
            link = await self._siege.enter()
            self._streams.append(await self._siege.speaker.open(link, CONTROL_PROTOCOL))

    async def round(self) -> None:
        """One quiet window and one flood. Raises AssertionError if nobody cuts it off."""
        author = somebody()
        payloads = await self._sealed(author)
        link = await self._flooder.enter(author)
        stream = await self._flooder.speaker.open(link, GOSSIP_PROTOCOL)
        over = asyncio.Event()
        asyncio.get_running_loop().call_later(QUIET_SECONDS, over.set)
        self.measured.quiet += await self._requests(over)

        over = asyncio.Event()
        began = time.monotonic()

        async def flood() -> float:
            is_written = await self._flooder.speaker.flood(stream, FLOOD_PER_SECOND, payloads)
            over.set()
            assert not is_written, "the flooding peer was not cut off"
            return time.monotonic() - began

        loud, seconds = await asyncio.gather(self._requests(over), flood())
        self.measured.loud += loud
        self.measured.cut_seconds.append(seconds)
        assert await self._siege.count_of("cut_off:") >= len(self.measured.cut_seconds)

    async def _sealed(self, author: Who) -> list[bytes]:
        """As many as it can send before it has to be cut off."""
        scribe, name = Scribe(self._flooder.speaker), TOPIC.encode()
        total = int(FLOOD_PER_SECOND * CUT_WITHIN_SECONDS)
        sealed: list[bytes] = []
        for first in range(0, total, SEALED_AT_ONCE):
            sealed += await asyncio.gather(
                *(
                    scribe.seal(author, GOSSIP, name, (1 << 40) + number, now_ms(), b"flood")
                    for number in range(first, first + SEALED_AT_ONCE)
                )
            )
        return [delimited(publish(TOPIC, message)) for message in sealed]

    async def _requests(self, over: asyncio.Event) -> Pieces:
        began = time.monotonic()
        found = await asyncio.gather(*(self._ask(stream, over) for stream in self._streams))
        pieces: dict[int, list[float]] = {}
        for at, milliseconds in (sample for one in found for sample in one):
            pieces.setdefault(int((at - began) / PIECE_SECONDS), []).append(milliseconds)
        return list(pieces.values())

    async def _ask(self, stream: str, over: asyncio.Event) -> list[tuple[float, float]]:
        """Requests, one after the other: when each began, and what it took."""
        frame = message_codec.encode(
            Join(WIRE_VERSION, PeerRecord(somebody().peer, ("worker",), ()))
        )
        speaker, samples = self._siege.speaker, []
        while not over.is_set():
            began = time.monotonic()
            await speaker.write(stream, len(frame).to_bytes(4, "big") + frame)
            head = await speaker.read(stream, 4, READ_MILLISECONDS)
            await speaker.read(stream, int.from_bytes(head, "big"), READ_MILLISECONDS)
            samples.append((began, (time.monotonic() - began) * 1000))
            await asyncio.sleep(0.01)
        return samples


@asynccontextmanager
async def flooding(siege: Siege, program: Path) -> AsyncIterator[Flood]:
    async with hostile(program) as flooder:
        made = Flood(siege, flooder)
        await made.begin()
        yield made


async def until_clear(flood: Flood, rounds_max: int, say: Callable[[str], None]) -> Bounds:
    """Goes on until there is no doubt whether the others feel it, or for so long."""
    for number in range(1, rounds_max + 1):
        await flood.round()
        bounds = compare(flood.measured.quiet, flood.measured.loud, Random(number))
        say(flood.measured.line(bounds))
        if number > 1 and bounds.is_clear:
            break
    return bounds
