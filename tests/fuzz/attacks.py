"""Every attack, with its control: what must be refused, and what must be taken meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Final

import msgspec

from mycel.blobs import blob_messages as blob_messages
from mycel.blobs.blob_messages import BLOB_PROTOCOL
from mycel.core.identifiers import AttemptId
from mycel.core.messages import WIRE_VERSION, Join, Kill, PeerRecord, Ping
from mycel.membership import revocations
from mycel.membership.protocols import PROTOCOLS, SIGNAL_PROTOCOL
from mycel.swarm import message_codec
from mycel.swarm.interface import CONTROL_PROTOCOL

from . import payloads
from .credentials import HOUR, Owner, Who, hello, somebody
from .envelopes import (
    GOSSIP,
    RECORD,
    RECORD_MS,
    Scribe,
    false_messages,
    false_records,
    now_ms,
    record_key,
)
from .hostile import Refused
from .protobuf import GET_VALUE, add_provider, delimited, kademlia, publish, put_value
from .siege import READ_MILLISECONDS, Row, Siege, eventually
from .target import TOPIC

KADEMLIA: Final = "/mycel/kad/1"
GOSSIP_PROTOCOL: Final = "/mycel/gossip/1.1.0"
PING: Final = "/ipfs/ping/1.0.0"
FOREIGN: Final = (
    "/ipfs/id/1.0.0",
    "/ipfs/id/push/1.0.0",
    PING,
    KADEMLIA,
    GOSSIP_PROTOCOL,
    "/mycel/gossip/1.0.0",
    "/libp2p/circuit/relay/0.2.0/hop",
    "/libp2p/circuit/relay/0.2.0/stop",
    "/libp2p/dcutr",
    "/libp2p/autonat/2/dial-request",
    "/libp2p/autonat/2/dial-back",
)
"""Of libp2p. A node need not speak all of them with everybody."""
TAKEN: Final = {CONTROL_PROTOCOL: "note:peer_joined", revocations.PROTOCOL: "note:revoked"}
"""What the gateway notes when it takes something on a stream that it serves itself."""
HELLOS_AT_ONCE: Final = 48
"""Fewer than a node lets wait from one address; one that is cut short keeps it waiting."""
GOSSIP_BATCH: Final = 8
"""From one identity: who goes on is not listened to any more."""
JUDGED_SECONDS: Final = 2.0
TAKEN_SECONDS: Final = 5.0
GREETINGS: Final = (
    b"",
    b"\x13/multistream/1.0.0\n\x07/noise\n",
    b"\x13/multistream/1.0.0\n\x0b/tls/1.0.0\n",
)


async def noise_on_the_port(siege: Siege, count: int) -> Row:
    """Strangers that do not even speak libp2p."""
    row = Row("noise on the port")
    port = int(siege.address.split("/")[4])
    before = await siege.count("refused")
    for number in range(count):
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(GREETINGS[number % len(GREETINGS)])
            writer.write(payloads.noise(siege.random))
            writer.close()
            await writer.wait_closed()
        row.sent += 1
        if number % 100 == 99:
            await row.control(siege.is_admitted)

    async def all_refused() -> bool:
        return await siege.count("refused") - before >= count

    await eventually(all_refused, 20)
    row.reached = await siege.count("refused") - before
    return row


async def broken_hellos(siege: Siege, count: int) -> Row:
    row = Row("/mycel/hello/1")
    who = somebody()
    broken = payloads.broken_hellos(siege.random, hello(siege.owner.token(who.peer)))
    await _say_all(siege, row, count, lambda: (who, next(broken)))
    return row


async def false_tokens(siege: Siege, count: int) -> Row:
    """Whole hellos with tokens that are not for whoever presents them."""
    row = Row("tokens")
    stranger_owner = Owner()
    victims = [somebody() for _ in range(20)]
    stolen = [siege.owner.token(victim.peer) for victim in victims]
    kinds = itertools.cycle(range(5))

    def false() -> tuple[Who, bytes]:
        thief = somebody()
        kind = next(kinds)
        if kind == 0:
            token = siege.random.choice(stolen)
        elif kind == 1:
            token = siege.owner.token(thief.peer, -HOUR)
        elif kind == 2:
            token = stranger_owner.token(thief.peer)
        elif kind == 3:
            token = payloads.flipped(siege.random, siege.owner.token(thief.peer))
        else:
            own = bytearray(siege.owner.token(thief.peer))
            token = bytes(own[: siege.random.randrange(len(own))])
        return thief, hello(token)

    await _say_all(siege, row, count, false)
    return row


async def _say_all(
    siege: Siege, row: Row, count: int, make: Callable[[], tuple[Who, bytes]]
) -> None:
    before = await siege.count("refused")

    async def one() -> None:
        who, first = make()
        with contextlib.suppress(Refused):
            await siege.speaker.leave(await siege.say(who, first))
            row.accepted += 1

    while row.sent < count:
        at_once = min(HELLOS_AT_ONCE, count - row.sent)
        await asyncio.gather(*(one() for _ in range(at_once)))
        row.sent += at_once
        await row.control(siege.is_admitted)

    async def all_refused() -> bool:
        return await siege.count("refused") - before >= row.sent

    await eventually(all_refused, 20)
    row.reached = await siege.count("refused") - before


async def strangers_on_protocols(siege: Siege, count: int) -> Row:
    """Connected, encrypted, multiplexed, but never a word of hello."""
    row = Row("strangers on every protocol")
    everything = (*FOREIGN, *(protocol.name for protocol in PROTOCOLS))
    for number in range(count):
        protocol = everything[number % len(everything)]
        with contextlib.suppress(Refused):
            link = await siege.speaker.connect(somebody().seed, siege.address)
            row.sent += 1
            with contextlib.suppress(Refused):
                stream = await siege.speaker.open(link, protocol)
                await siege.speaker.write(stream, bytes(32))
                row.accepted += bool(await siege.speaker.read(stream, 1, 50))
            await siege.speaker.leave(link)
        if number % 20 == 19:
            await row.control(siege.is_admitted)
    row.reached = row.sent
    return row


async def broken_frames(siege: Siege, protocol: str, count: int) -> Row:
    """On our own streams, from admitted peers."""
    row = Row(protocol)
    limits = {known.name: known.max_frame_bytes for known in PROTOCOLS}
    valid = _valid_frame(protocol)
    taking = TAKEN.get(protocol, f"taken:{protocol}")
    taken_before = await siege.count(taking)
    broken = payloads.broken_frames(siege.random, valid, limits[protocol])

    is_answered = protocol != revocations.PROTOCOL

    async def answered() -> bool:
        if not is_answered:
            return await _asks(siege, PING, bytes(32))
        taken = await siege.count(taking)

        async def is_taken() -> bool:
            """A heartbeat may have answered before the frame was read."""
            return await siege.count(taking) > taken

        return await _asks(siege, protocol, len(valid).to_bytes(4, "big") + valid, is_taken)

    await siege.pelt(row, protocol, broken, count, answered)
    good = taken_before + (row.controls_accepted if is_answered else 0)
    row.accepted = await siege.count(taking) - good
    return row


def _valid_frame(protocol: str) -> bytes:
    me = PeerRecord(somebody().peer, ("worker",), ("/ip4/127.0.0.1/tcp/1",))
    if protocol == BLOB_PROTOCOL:
        return blob_messages.encode(blob_messages.Get("blake3:" + 64 * "0", 7))
    if protocol == revocations.PROTOCOL:
        return msgspec.msgpack.encode([bytes(120)])  # signed by nobody
    if protocol == SIGNAL_PROTOCOL:
        return message_codec.encode(Ping(7))
    return message_codec.encode(
        Join(WIRE_VERSION, me) if protocol == CONTROL_PROTOCOL else Kill([AttemptId(7)])
    )


async def broken_protocols(siege: Siege, protocol: str, count: int) -> Row:
    """On protocols of libp2p, from admitted peers."""
    row = Row(protocol)
    row.is_spoken = await siege.speaks(protocol)
    if not row.is_spoken:
        return row
    valid = {
        KADEMLIA: kademlia(GET_VALUE, b"key"),
        GOSSIP_PROTOCOL: publish(TOPIC, b"data"),
    }.get(protocol, b"\x08\x01\x12\x04test")

    async def pinged() -> bool:
        return await _asks(siege, PING, bytes(32))

    await siege.pelt(row, protocol, payloads.broken_protobuf(siege.random, valid), count, pinged)
    return row


async def _asks(
    siege: Siege,
    protocol: str,
    request: bytes,
    is_taken: Callable[[], Awaitable[bool]] | None = None,
) -> bool:
    """Whether somebody honest gets an answer, and is heard before it leaves."""
    try:
        link = await siege.enter()
        stream = await siege.speaker.open(link, protocol)
        await siege.speaker.write(stream, request)
        heard = bool(await siege.speaker.read(stream, 1, READ_MILLISECONDS))
        if heard and is_taken is not None:
            heard = await eventually(is_taken, TAKEN_SECONDS)
        await siege.speaker.leave(link)
    except Refused:
        return False
    return heard


async def forged_records(siege: Siege, count: int) -> Row:
    """Signed by the wrong one, for the wrong key, too old, too new, too long."""
    row = Row("records of the DHT")
    scribe = Scribe(siege.speaker)
    victim, sequence = somebody(), 1_000_000
    kept: set[bytes] = set()
    before = await _refused_records(siege)
    kept_before = (await siege.report())["figures"]["dht_records"]

    async def put(who: Who, number: int) -> bool:
        key = record_key(who.peer)
        value = await scribe.seal(who, RECORD, key, number, now_ms() + RECORD_MS, b"good")
        link = await siege.enter(who)
        stream = await siege.speaker.open(link, KADEMLIA)
        await siege.speaker.write(stream, delimited(put_value(key, value)))
        answer = await siege.speaker.read(stream, 2, READ_MILLISECONDS)
        await siege.speaker.leave(link)
        kept.add(key)
        return bool(answer)

    async def put_a_good_one() -> bool:
        try:
            return await put(somebody(), 1)
        except Refused:
            return False

    await row.control(lambda: put(victim, sequence))
    false = false_records(scribe, siege.random, victim, sequence)
    requests = _put_requests(false)
    link = ""
    while row.sent < count:
        batch = [await anext(requests) for _ in range(min(20, count - row.sent))]
        link = link or await siege.enter()
        done = await siege.speaker.pelt(link, KADEMLIA, batch, 200)
        row.sent += len(batch) - done.failed
        await row.control(put_a_good_one)
        if done.failed:
            await siege.speaker.leave(link)
            link = ""
    row.reached = await _refused_records(siege) - before

    async def counted() -> bool:
        """The node counts what it keeps now and then."""
        return bool((await siege.report())["figures"]["dht_records"] >= kept_before + len(kept))

    await eventually(counted, 10)
    row.accepted = (await siege.report())["figures"]["dht_records"] - kept_before - len(kept)
    return row


async def _put_requests(false: AsyncIterator[tuple[bytes, bytes]]) -> AsyncIterator[bytes]:
    async for key, value in false:
        yield delimited(put_value(key, value))


async def _refused_records(siege: Siege) -> int:
    figures = (await siege.report())["figures"]
    return sum(figures["dht_refused"].values())


async def false_providers(siege: Siege, count: int) -> Row:
    """In the name of others."""
    row = Row("providers of the DHT")
    address = socket.inet_aton("127.0.0.1")
    other = bytes.fromhex("0024080112") + bytes([32])

    def requests() -> Iterator[bytes]:
        while True:
            key = siege.random.randbytes(16)
            peer = other + siege.random.randbytes(32)
            yield delimited(add_provider(key, peer, b"\x04" + address + b"\x06\x00\x01"))

    before = (await siege.report())["figures"]["dht_providers"]

    async def pinged() -> bool:
        return await _asks(siege, PING, bytes(32))

    await siege.pelt(row, KADEMLIA, requests(), count, pinged)
    row.accepted = (await siege.report())["figures"]["dht_providers"] - before
    return row


async def forged_gossip(siege: Siege, count: int) -> Row:
    row = Row("gossip")
    scribe = Scribe(siege.speaker)
    author, sequence = somebody(), 1 << 40
    said: list[str] = []
    heard_before = len((await siege.report())["heard"])

    async def heard_now() -> list[str]:
        """Not what an earlier attack has said: a control would be taken for heard at once."""
        heard: list[str] = (await siege.report())["heard"]
        return heard[heard_before:]

    async def say(link: str, *messages: bytes) -> None:
        stream = await siege.speaker.open(link, GOSSIP_PROTOCOL)
        rpcs = b"".join(delimited(publish(TOPIC, message)) for message in messages)
        await siege.speaker.write(stream, rpcs)

    async def say_a_good_one() -> bool:
        text = f"good {len(said)}"
        said.append(text)
        who = author if len(said) == 1 else somebody()
        message = await scribe.seal(who, GOSSIP, TOPIC.encode(), sequence, now_ms(), text.encode())
        link = await siege.enter()

        async def heard() -> bool:
            return text in await heard_now()

        with contextlib.suppress(Refused):
            await say(link, message)
        arrived = await eventually(heard, 5)
        await siege.speaker.leave(link)
        return arrived

    async def judged() -> int:
        return int((await siege.report())["figures"]["gossip_invalid"])

    async def say_false_ones(link: str, messages: list[bytes]) -> None:
        """Who hangs up at once takes with it what the node has not read yet."""
        due = await judged() + len(messages)
        await say(link, *messages)

        async def all_judged() -> bool:
            return await judged() >= due

        await eventually(all_judged, JUDGED_SECONDS)

    before = await judged()
    await row.control(say_a_good_one)
    false = false_messages(scribe, siege.random, TOPIC, author, sequence)
    while row.sent < count:
        batch = [await anext(false) for _ in range(GOSSIP_BATCH)]
        link = await siege.enter()
        with contextlib.suppress(Refused):
            await say_false_ones(link, batch)
            row.sent += len(batch)
        if row.sent % 40 < GOSSIP_BATCH:
            await row.control(say_a_good_one)
        await siege.speaker.leave(link)

    row.reached = await judged() - before
    row.accepted = len([text for text in await heard_now() if text not in said])
    return row
