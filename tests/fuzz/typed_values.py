"""Messages that are nearly right: every struct of every stream, with extremes among its fields.

They are written as raw msgpack, so that no type of ours has a say in what stands there.
"""

from __future__ import annotations

import math
import struct
from random import Random
from typing import Any, Final

import msgspec.inspect as looking

INTEGERS: Final = (
    *(0, 1, -1, 2, 3, 255, 256, -128),
    *((1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 40, (1 << 40) + 1, 1 << 53),
    *(1 << 61, (1 << 62) - 1, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1),
    *(-(1 << 31), -(1 << 53), -(1 << 63)),
)
FLOATS: Final = (
    *(0.0, -0.0, 1.0, -1.0, 0.5, 5e-324, 1e-9, 1e12, 1e15, 1e18, -1e18, 1e300),
    *(math.inf, -math.inf, math.nan),
)
TEXTS: Final = ("", "a", "\0", "\ud800", "a\udfff", "²", "🙂", "../..", "succeeded", "process")
BYTES: Final = (b"", b"1", b"null", b"\xff" * 9, b"[" * 2000, b'{"progress": 1e999}')
HUGE_TEXT: Final = "x" * 70_000
HUGE_BYTES: Final = b"1" * 200_000
STATES: Final = ("succeeded", "failed", "timed_out", "cancelled", "lost")
NAMES: Final = ("process", "python", "model", "zone", "")

Pools = dict[str, list[Any]]
"""What the node under attack knows of, by the name of the field that it stands in."""
SAME: Final = {
    "first": "attempt",
    "attempts": "attempt",
    "kill": "attempt",
    "pieces": "attempt",
    "reports": "attempt",
    "leases": "lease",
    "others": "lease",
    "unknown_leases": "lease",
    "indices": "index",
}


class Maker:
    def __init__(self, random: Random, pools: Pools) -> None:
        self._random = random
        self._pools = pools
        self._share = 0.0

    def message(self, kind: looking.StructType) -> bytes:
        """How many of its fields are extremes is another matter each time."""
        self._share = self._random.choice((0.0, 0.0, 0.02, 0.1, 0.5))
        return raw(self._struct(kind))

    def _struct(self, kind: looking.StructType) -> Any:
        count = len(kind.fields)
        if self._is_extreme(0.1):
            count = self._random.randrange(count + 1)
        fields = [(one.encode_name, self._value(one.type, one.name)) for one in kind.fields[:count]]
        if not kind.array_like:
            return dict(fields)
        tag = [] if kind.tag is None else [kind.tag]
        return [*tag, *(value for _, value in fields)]

    def _is_extreme(self, factor: float = 1.0) -> bool:
        return self._random.random() < self._share * factor

    def _value(self, kind: looking.Type, name: str) -> Any:
        random = self._random
        if self._is_extreme(0.05):
            return random.choice((None, True, [], {}, *INTEGERS, *FLOATS, *TEXTS, *BYTES))
        match kind:
            case looking.BoolType():
                return random.random() < 0.5
            case looking.IntType(ge=low, le=high):
                return self._integer(name, low, high)
            case looking.FloatType():
                return random.choice(FLOATS) if self._is_extreme() else random.uniform(0.0, 9.0)
            case looking.StrType():
                return self._text(name)
            case looking.BytesType():
                if self._is_extreme(0.05):
                    return HUGE_BYTES
                return random.choice(BYTES) if self._is_extreme() else b"1"
            case looking.NoneType():
                return None
            case looking.LiteralType(values=values):
                return random.choice(values)
            case looking.EnumType(cls=members):
                return random.choice([one.value for one in members])
            case looking.UnionType(types=kinds):
                return self._value(random.choice(kinds), name)
            case looking.TupleType(item_types=kinds):
                return [self._value(one, name) for one in kinds]
            case looking.ListType(item_type=item) | looking.VarTupleType(item_type=item):
                length = random.choice((0, 1, 1, 2)) if not self._is_extreme(0.2) else 40
                return [self._value(item, name) for _ in range(length)]
            case looking.DictType(key_type=key, value_type=value):
                return {self._value(key, name): self._value(value, name) for _ in range(2)}
            case looking.StructType():
                return self._struct(kind)
            case looking.Metadata(type=inner):
                return self._value(inner, name)
        raise NotImplementedError(kind)

    def _integer(self, name: str, low: int | None, high: int | None) -> int:
        random = self._random
        if self._is_extreme():
            return random.choice(INTEGERS)
        known = self._pools.get(SAME.get(name, name))
        if known and random.random() < 0.9:
            return int(random.choice(known))
        edges = [one for one in (low, high) if one is not None]
        if edges and random.random() < 0.1:
            return int(random.choice(edges))
        return random.randrange(1, 4)

    def _text(self, name: str) -> str:
        if self._is_extreme(0.05):
            return HUGE_TEXT
        if self._is_extreme():
            return self._random.choice(TEXTS)
        known = self._pools.get(name)
        if known:
            return str(self._random.choice(known))
        return self._random.choice(STATES if name == "state" else NAMES)


def structs_of(union: Any) -> list[looking.StructType]:
    """Of all messages of a stream, or of one."""
    kind = looking.type_info(union)
    kinds = kind.types if isinstance(kind, looking.UnionType) else (kind,)
    return [one for one in kinds if isinstance(one, looking.StructType)]


def raw(value: Any) -> bytes:
    """msgpack of anything, whether anybody should write it or not."""
    match value:
        case None:
            return b"\xc0"
        case bool():
            return b"\xc3" if value else b"\xc2"
        case int():
            return struct.pack(">Bq", 0xD3, value) if value < 1 << 63 else _unsigned(value)
        case float():
            return struct.pack(">Bd", 0xCB, value)
        case str():
            encoded = value.encode("utf-8", "surrogatepass")
            return struct.pack(">BI", 0xDB, len(encoded)) + encoded
        case bytes():
            return struct.pack(">BI", 0xC6, len(value)) + value
        case list() | tuple():
            return struct.pack(">BI", 0xDD, len(value)) + b"".join(map(raw, value))
        case dict():
            pairs = b"".join(raw(key) + raw(one) for key, one in value.items())
            return struct.pack(">BI", 0xDF, len(value)) + pairs
    raise TypeError(value)


def _unsigned(value: int) -> bytes:
    return struct.pack(">BQ", 0xCF, value)
