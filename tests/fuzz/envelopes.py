"""What nodes sign, made by hand: see `native/node/src/envelope.rs`."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from random import Random
from typing import Final

from mycel._native import identity
from mycel.core.identifiers import PeerId

from .credentials import SWARM_NAME, Who, somebody
from .hostile import Hostile

GOSSIP: Final = b"mycel-gossip-v1"
RECORD: Final = b"mycel-record-v1"
MINUTE_MS: Final = 60_000
DAY_MS: Final = 24 * 60 * MINUTE_MS
RECORD_MS: Final = 10 * MINUTE_MS
SHORT_BYTES: Final = 8


def now_ms() -> int:
    return int(time.time() * 1000)


def record_key(peer: PeerId) -> bytes:
    return f"/mycel/worker/{peer}".encode()


class Scribe:
    """Seals in anybody's name."""

    def __init__(self, speaker: Hostile) -> None:
        self._speaker = speaker

    async def seal(
        self,
        who: Who,
        domain: bytes,
        subject: bytes,
        sequence: int,
        at_ms: int,
        payload: bytes,
        *,
        swarm: str = SWARM_NAME,
        claimed: Who | None = None,
    ) -> bytes:
        """`claimed`: whose key stands in the envelope, if not the signer's."""
        numbers = sequence.to_bytes(8, "big") + at_ms.to_bytes(8, "big")
        named = (domain, swarm.encode(), subject)
        signed = b"".join(len(part).to_bytes(8, "big") + part for part in named)
        signature = await self._speaker.sign(who.seed, signed + numbers + payload)
        public = identity((claimed or who).seed)[0]
        return b"\x01" + public + numbers + payload + signature


async def false_records(
    scribe: Scribe, random: Random, victim: Who, sequence: int
) -> AsyncIterator[tuple[bytes, bytes]]:
    """Keys and values that must not be kept. `victim` has put one with this sequence."""
    thief = somebody()
    key, thiefs_key = record_key(victim.peer), record_key(thief.peer)
    while True:
        good_until = now_ms() + RECORD_MS
        payload = random.randbytes(random.randint(0, 200))
        good = await scribe.seal(thief, RECORD, thiefs_key, 1, good_until, payload)
        yield thiefs_key, good[:-64] + random.randbytes(64)
        yield key, good  # another's
        yield key, await scribe.seal(thief, RECORD, key, 99, good_until, payload)
        yield key, await scribe.seal(thief, RECORD, key, 99, good_until, payload, claimed=victim)
        older = random.randrange(sequence)
        yield key, await scribe.seal(victim, RECORD, key, older, good_until, payload)
        ended = now_ms() - random.randint(MINUTE_MS + 5000, DAY_MS)
        yield thiefs_key, await scribe.seal(thief, RECORD, thiefs_key, 1, ended, payload)
        endless = now_ms() + random.randint(2 * DAY_MS, 1 << 50)
        yield thiefs_key, await scribe.seal(thief, RECORD, thiefs_key, 1, endless, payload)
        there = await scribe.seal(thief, RECORD, thiefs_key, 1, good_until, payload, swarm="there")
        yield thiefs_key, there
        yield thiefs_key, await scribe.seal(thief, GOSSIP, thiefs_key, 1, good_until, payload)
        elsewhere = random.randbytes(random.randint(1, 60))
        yield elsewhere, await scribe.seal(thief, RECORD, elsewhere, 1, good_until, payload)
        long = random.randbytes(random.randint(20_000, 40_000))
        yield thiefs_key, await scribe.seal(thief, RECORD, thiefs_key, 1, good_until, long)
        yield thiefs_key, good[: random.randrange(len(good))]


async def false_messages(
    scribe: Scribe, random: Random, topic: str, author: Who, sequence: int
) -> AsyncIterator[bytes]:
    """Gossip that must not be passed on. `author` has sent one with this sequence."""
    thief, name = somebody(), topic.encode()
    while True:
        payload = b"false " + random.randbytes(random.randint(8, 200))
        high = random.randint(sequence + 1, 1 << 62)
        good = await scribe.seal(thief, GOSSIP, name, high, now_ms(), payload)
        yield good[:-64] + random.randbytes(64)
        yield await scribe.seal(thief, GOSSIP, name, high, now_ms(), payload, claimed=author)
        yield await scribe.seal(author, GOSSIP, name, sequence, now_ms(), payload)  # said before
        old = now_ms() - random.randint(MINUTE_MS + 5000, DAY_MS)
        yield await scribe.seal(author, GOSSIP, name, high, old, payload)
        ahead = now_ms() + random.randint(MINUTE_MS + 5000, DAY_MS)
        yield await scribe.seal(author, GOSSIP, name, high, ahead, payload)
        yield await scribe.seal(author, GOSSIP, b"another", high, now_ms(), payload)
        yield await scribe.seal(author, GOSSIP, name, high, now_ms(), payload, swarm="there")
        yield await scribe.seal(author, RECORD, name, high, now_ms(), payload)
        # Each other than all before it: of two that are one, only the first is looked at.
        new = await scribe.seal(somebody(), GOSSIP, name, high, now_ms(), payload)
        yield new[: random.randrange(SHORT_BYTES, len(new))]
        yield random.randbytes(random.randint(SHORT_BYTES, 300))
