"""splitmix64: the one hash and generator of the simulator, the same in Python and numba."""

from __future__ import annotations

from typing import Final

MASK: Final = (1 << 64) - 1
GAMMA: Final = 0x9E3779B97F4A7C15


def mix(value: int) -> int:
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & MASK
    return value ^ (value >> 31)


def mix_pair(first: int, second: int) -> int:
    return mix((mix((first + GAMMA) & MASK) + second + GAMMA) & MASK)
