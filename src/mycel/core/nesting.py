"""How deep JSON nests. Whoever walks through a value calls itself for each level, and there is an
end to that: so there is a limit, far below it and far above what anybody has to say."""

from __future__ import annotations

from typing import Final

import msgspec

DEPTH_MAX: Final = 100
_ALIKE: Final = bytes.maketrans(b"{}", b"[]")
_OTHERS: Final = bytes(set(range(256)) - set(b'[]{}"'))
_decode_raw: Final = msgspec.json.Decoder(msgspec.Raw).decode
"""Looks at all of it, and makes nothing of it."""


def nests_too_deeply(encoded: bytes) -> bool:
    """Of JSON; what is none is left to its decoder. No walk: it goes through all bodies, and the
    longest have ten million bytes."""
    if len(encoded) <= 2 * DEPTH_MAX or encoded.count(b"[") + encoded.count(b"{") <= DEPTH_MAX:
        return False
    unescaped = encoded.replace(b"\\\\", b"").replace(b'\\"', b"")
    outside_of_texts = unescaped.translate(_ALIKE, _OTHERS).split(b'"')[::2]
    left = b"".join(outside_of_texts)
    for _ in range(DEPTH_MAX):
        if not left:
            return False
        left = left.replace(b"[]", b"")
    return bool(left)


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
