"""How deep JSON nests. Whoever walks through a value calls itself for each level, and there is an
end to that: so there is a limit, far below it and far above what anybody has to say."""

from __future__ import annotations

from itertools import accumulate
from typing import Final

import msgspec

DEPTH_MAX: Final = 100
_ALIKE: Final = bytes.maketrans(b"{}", b"[]")
_OTHERS: Final = bytes(set(range(256)) - set(b'[]{}"'))
_STEPS: Final = bytes.maketrans(b"[]", b"\x01\xff")
"""One level up, and one down, as signed bytes."""
_USUAL_DEPTH: Final = 4
_decode_raw: Final = msgspec.json.Decoder(msgspec.Raw).decode
"""Looks at all of it, and makes nothing of it."""


def nests_too_deeply(encoded: bytes) -> bool:
    """Of JSON; what is none is left to its decoder. No walk: it goes through all bodies, and the
    longest have ten million bytes. Brackets go pair by pair, from the innermost on, and are
    counted only where that comes to no end soon: each further round costs as much as the first."""
    if len(encoded) <= 2 * DEPTH_MAX or encoded.count(b"[") + encoded.count(b"{") <= DEPTH_MAX:
        return False
    unescaped = encoded.replace(b"\\\\", b"").replace(b'\\"', b"")
    left = unescaped.translate(_ALIKE, _OTHERS).replace(b'""', b"")
    if b'"' in left:  # brackets in texts
        left = b"".join(left.split(b'"')[::2])
    for _ in range(_USUAL_DEPTH):
        left = left.replace(b"[]", b"")
        if not left:
            return False
    levels = accumulate(memoryview(left.translate(_STEPS)).cast("b"))
    return max(levels) > DEPTH_MAX - _USUAL_DEPTH


def objection_to(result: bytes) -> str:
    """Why nobody could read it; empty if it is JSON, and not nested too deeply. Whoever lists
    tasks has to read what they brought, and others may have encoded it than us."""
    if nests_too_deeply(result):
        return f"the result is nested more than {DEPTH_MAX} levels deep: write it to a file instead"
    try:
        _decode_raw(result)
        result.decode()
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return f"the result is not JSON: {error}"
    return ""
