"""Which ways of finding each other a node uses. Each alone suffices."""

from __future__ import annotations

import msgspec


class Ways(msgspec.Struct, frozen=True, kw_only=True):
    dht: bool = True
    gossip: bool = True
    shard_bits: int = 2
