"""What the searches of one query may cost together, and what they found.

Packing vertices of different sizes takes a search. One search has a limit, but a graph can have
a hundred thousand different pools. When the steps of a query are used up, simpler answers take
the place of searches: too low perhaps, never too high. Whatever was answered once is answered
again, so that what is found to fit can be placed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final, TypeVar

STEPS_MAX: Final = 200_000
"""Of a few microseconds each."""

Found = TypeVar("Found")


class Searches:
    def __init__(self, steps: int = STEPS_MAX) -> None:
        self._left = steps
        self._known: dict[Hashable, Any] = {}

    def once(
        self,
        key: Hashable,
        search: Callable[[], tuple[Found, int]],
        instead: Callable[[], Found],
    ) -> Found:
        """`search` returns what it found and how many steps it took."""
        if key not in self._known:
            if self._left > 0:
                self._known[key], steps = search()
                self._left -= steps
            else:
                self._known[key] = instead()
        found: Found = self._known[key]
        return found
