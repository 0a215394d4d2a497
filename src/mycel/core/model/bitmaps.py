"""One bit per task of a block."""

from __future__ import annotations


def empty(count: int) -> bytearray:
    return bytearray((count + 7) // 8)


def has(bitmap: bytes | bytearray, position: int) -> bool:
    return bool(bitmap[position >> 3] >> (position & 7) & 1)


def put(bitmap: bytearray, position: int) -> None:
    bitmap[position >> 3] |= 1 << (position & 7)


def count(bitmap: bytes | bytearray) -> int:
    return int.from_bytes(bitmap, "little").bit_count()


def union(*bitmaps: bytes | bytearray) -> bytearray:
    total = 0
    for bitmap in bitmaps:
        total |= int.from_bytes(bitmap, "little")
    return bytearray(total.to_bytes(len(bitmaps[0]), "little"))
