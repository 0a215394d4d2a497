"""The keys of the DHT under which workers are found.

A key stands for one facet and one shard. Kademlia keeps some twenty providers a key, so that a
facet which thousands of workers share needs many keys: a worker provides each of its facets at
the shard that its peer id falls into. How many shards there are, 2^bits, is part of the key and
of the swarm's policy; while the policy changes, some workers still provide at one bit less.
"""

from __future__ import annotations

import hashlib
from random import Random
from typing import Final

from mycel.core.identifiers import PeerId
from mycel.core.matching.index_keys import Facet, facets_of
from mycel.core.model.resources import Capabilities

SHARD_BITS_MAX: Final = 8
FACETS_MAX: Final = 128
"""So many facets of one worker are provided."""
_SHA2_256: Final = b"\x12\x20"
"""Before the digest: a key is a multihash, as other implementations of libp2p expect."""


def key_of(facet: Facet, bits: int, shard: int) -> bytes:
    assert 0 <= shard < 1 << bits <= 1 << SHARD_BITS_MAX
    text = f"/mycel/capability/1/{bits}/{shard}/{facet}"
    return _SHA2_256 + hashlib.sha256(text.encode()).digest()


def shard_of(peer: PeerId, bits: int) -> int:
    digest = hashlib.sha256(peer.encode()).digest()
    return int.from_bytes(digest[:4], "big") % (1 << bits)


def provided_keys(capabilities: Capabilities, peer: PeerId, bits: int) -> list[bytes]:
    shard = shard_of(peer, bits)
    return [key_of(facet, bits, shard) for facet in facets_of(capabilities)[:FACETS_MAX]]


def sampled_keys(facet: Facet, bits: int, random: Random) -> list[bytes]:
    """Every key under which workers with this facet may be: the shards of the policy in random
    order, so that no shard's workers are asked before the others', then those of one bit less."""
    keys: list[bytes] = []
    for width in (bits, bits - 1) if bits else (bits,):
        shards = list(range(1 << width))
        random.shuffle(shards)
        keys += [key_of(facet, width, shard) for shard in shards]
    return keys
