"""The attacks of `run.py` in little, and two that need nothing but numbers."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from pathlib import Path

from mycel.bench.percentiles import percentile
from mycel.core.messages import WIRE_VERSION, Join, PeerRecord
from mycel.swarm.interface import CONTROL_PROTOCOL
from mycel.wire import codec

from .attacks import GOSSIP_PROTOCOL
from .credentials import somebody
from .envelopes import GOSSIP, Scribe, now_ms
from .protobuf import delimited, publish
from .run import Sizes, run
from .siege import READ_MILLISECONDS, Siege, eventually
from .target import TOPIC

HALF_OPEN = 400
FLOOD_PER_SECOND = 1_000
CUT_WITHIN_SECONDS = 10.0
NOISE_MS = 30.0
"""What a busy machine adds to anybody's p99, flood or no flood."""


async def test_nothing_false_is_taken_and_everything_good_is(program: Path) -> None:
    lines: list[str] = []
    verdict = await run(Sizes(frames=60, records=120, tokens=60), 7, lines.append)
    assert not verdict.complaints, "\n".join([*verdict.complaints, *lines])


async def test_half_open_connections_from_one_address_keep_no_member_out(besieged: Siege) -> None:
    host, port = "127.0.0.1", int(besieged.address.split("/")[4])
    with contextlib.ExitStack() as held:
        for _ in range(HALF_OPEN):
            one = held.enter_context(socket.socket())
            one.bind(("127.0.0.66", 0))
            one.connect((host, port))
        began = time.monotonic()
        assert await besieged.is_admitted()
        assert time.monotonic() - began < READ_MILLISECONDS / 1000


async def _round_trips(siege: Siege, link: str, seconds: float) -> list[float]:
    """An honest peer's requests, one after the other: what each took, in milliseconds."""
    me = PeerRecord(somebody().peer, ("worker",), ())
    frame = codec.encode(Join(WIRE_VERSION, me))
    stream = await siege.speaker.open(link, CONTROL_PROTOCOL)
    samples = []
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        began = time.monotonic()
        await siege.speaker.write(stream, len(frame).to_bytes(4, "big") + frame)
        head = await siege.speaker.read(stream, 4, READ_MILLISECONDS)
        await siege.speaker.read(stream, int.from_bytes(head, "big"), READ_MILLISECONDS)
        samples.append((time.monotonic() - began) * 1000)
        await asyncio.sleep(0.01)
    return samples


async def test_a_flooding_member_is_cut_off_and_the_others_do_not_feel_it(besieged: Siege) -> None:
    honest = await besieged.enter()
    quiet = await _round_trips(besieged, honest, 3.0)
    scribe, author = Scribe(besieged.speaker), somebody()
    name, total = TOPIC.encode(), int(FLOOD_PER_SECOND * (CUT_WITHIN_SECONDS + 2))
    messages = [
        await scribe.seal(author, GOSSIP, name, (1 << 40) + number, now_ms(), b"flood")
        for number in range(total)
    ]
    link = await besieged.enter(author)
    stream = await besieged.speaker.open(link, GOSSIP_PROTOCOL)
    payloads = [delimited(publish(TOPIC, message)) for message in messages]
    began = time.monotonic()
    flood = asyncio.create_task(besieged.speaker.flood(stream, FLOOD_PER_SECOND, payloads))

    async def is_cut_off() -> bool:
        return any(name.startswith("cut_off:") for name in (await besieged.report())["counts"])

    loud, is_cut = await asyncio.gather(
        _round_trips(besieged, honest, 3.0), eventually(is_cut_off, CUT_WITHIN_SECONDS)
    )
    assert is_cut, "the flooding peer was not cut off"
    assert time.monotonic() - began < CUT_WITHIN_SECONDS + 1
    assert not await flood
    # The flood lasts as long as the measurement: were it felt, most requests would feel it. The
    # slowest few show what else this machine does.
    assert percentile(loud, 90) < 2 * percentile(quiet, 90) + NOISE_MS
