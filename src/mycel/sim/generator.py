"""The random numbers of policies: splitmix64, so that both engines draw the same."""

from __future__ import annotations

from mycel.topology.splitmix import GAMMA, MASK, mix


class Generator:
    """Deterministic by seed. Tests compare it with the compiled one of the fast engine."""

    __slots__ = ("state",)

    def __init__(self, seed: int) -> None:
        self.state = mix(seed & MASK)

    def next(self) -> int:
        self.state = (self.state + GAMMA) & MASK
        return mix(self.state)

    def below(self, limit: int) -> int:
        """Uniform from 0 to limit - 1, but for a bias of limit ÷ 2⁶⁴."""
        return self.next() % limit

    def distinct(self, count: int, limit: int) -> list[int]:
        """Different numbers below the limit, in the order drawn; all of them if there are few."""
        if count >= limit:
            return list(range(limit))
        found: list[int] = []
        while len(found) < count:
            drawn = self.below(limit)
            if drawn not in found:
                found.append(drawn)
        return found
