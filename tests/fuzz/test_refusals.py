"""Who comes with a fault of its own hears which, and the other side counts it."""

from __future__ import annotations

import time

import pytest

from mycel.access.tokens import inspect
from mycel.swarm.errors import InvalidToken

from .credentials import HELLO_PROTOCOL, HELLO_VERSION, SWARM_NAME, Owner, hello_block, somebody
from .payloads import says_the_same, with_bit
from .siege import READ_MILLISECONDS, Siege

HOURS_MS = 3 * 3600 * 1000


def _entry(tag: int, value: bytes) -> bytes:
    return bytes([tag]) + len(value).to_bytes(2, "big") + value


def _clock(shift_ms: int) -> bytes:
    return _entry(2, (int(time.time() * 1000) + shift_ms).to_bytes(8, "big"))


@pytest.mark.parametrize(
    ("version", "shift_ms", "swarm", "kind", "verdict", "told"),
    [
        (HELLO_VERSION, HOURS_MS, SWARM_NAME, "clock", 5, "s ahead of this node's: set it right"),
        (HELLO_VERSION, -HOURS_MS, SWARM_NAME, "clock", 5, "s behind this node's: set it right"),
        (0, 0, SWARM_NAME, "version", 2, "hello version 0 is not spoken here, 2 is: upgrade"),
        (HELLO_VERSION, 0, "another", "swarm", 4, "this is the swarm"),
    ],
)
async def test_a_refusal_says_why_and_is_counted(
    besieged: Siege, version: int, shift_ms: int, swarm: str, kind: str, verdict: int, told: str
) -> None:
    who = somebody()
    block = hello_block(besieged.owner.token(who.peer)) + _clock(shift_ms)
    block += _entry(4, swarm.encode())
    link = await besieged.speaker.connect(who.seed, besieged.address)
    stream = await besieged.speaker.open(link, HELLO_PROTOCOL)
    said = bytes([version]) + len(block).to_bytes(2, "big") + block
    await besieged.speaker.write(stream, said)
    head = await besieged.speaker.read(stream, 4, READ_MILLISECONDS)
    assert head[:2] == bytes([HELLO_VERSION, verdict])
    length = int.from_bytes(head[2:], "big")
    assert told in (await besieged.speaker.read(stream, length, READ_MILLISECONDS)).decode()
    await besieged.speaker.leave(link)
    assert await besieged.is_admitted()
    assert (await besieged.report())["figures"]["refusals"] == {kind: 1}


def test_a_token_with_another_bit_is_refused_or_grants_exactly_the_same() -> None:
    owner, peer = Owner(), somebody().peer
    token = owner.token(peer)
    granted = inspect(owner.public, token, peer)
    for at in range(len(token)):
        for bit in range(8):
            try:
                found = inspect(owner.public, with_bit(token, at, bit), peer)
            except InvalidToken:
                continue
            assert says_the_same(token, at), f"bit {bit} of byte {at} is not signed"
            assert found == granted, "rights, and the ids by which they are revoked"
