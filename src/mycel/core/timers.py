"""Deadlines without a timer each: one heap, of which `wake_at` is the head.

A deadline that moves later, as a lease's does with every renewal, costs a dictionary write: the
heap keeps the old entry, which is put back when it comes up too early.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Timers(Generic[Key]):
    def __init__(self) -> None:
        self._wanted: dict[Key, float] = {}
        self._queued: dict[Key, float] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._order = 0

    @property
    def wake_at(self) -> float | None:
        """The head of the heap; now and then it is early, and nothing is due then."""
        while self._heap and self._heap[0][2] not in self._wanted:
            _, _, key = heapq.heappop(self._heap)
            self._queued.pop(key, None)
        return self._heap[0][0] if self._heap else None

    def __contains__(self, key: object) -> bool:
        return key in self._wanted

    def set(self, key: Key, when: float) -> None:
        self._wanted[key] = when
        queued = self._queued.get(key)
        if queued is None or when < queued:
            self._push(key, when)

    def cancel(self, key: Key) -> None:
        self._wanted.pop(key, None)

    def take_due(self, now: float) -> list[Key]:
        due: list[Key] = []
        while self._heap and self._heap[0][0] <= now:
            when, _, key = heapq.heappop(self._heap)
            if self._queued.get(key) != when:
                continue  # an earlier one was pushed since
            del self._queued[key]
            wanted = self._wanted.get(key)
            if wanted is None:
                continue
            if wanted > now:
                self._push(key, wanted)
                continue
            del self._wanted[key]
            due.append(key)
        return due

    def _push(self, key: Key, when: float) -> None:
        self._order += 1
        self._queued[key] = when
        heapq.heappush(self._heap, (when, self._order, key))
