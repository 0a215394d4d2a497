"""The one queue of effects: nothing leaves before what it stands on is on disk.

    put ─▶ [Send][Record][Send][Reply][Record][Send] ─▶ released
             │      └── commit group ──┴── at most one group is under way
             └ no record is ahead of it: it leaves at once

Effects keep their order. A commit group takes the records at the head of the queue; when it is
on disk, everything up to the next record leaves. Only renewals, pieces of what tasks write, and
tasks of jobs that nobody knows of yet may overtake.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from mycel.core.effects import OVERTAKING, Effect, Record
from mycel.core.journal import Entry

GROUP_ENTRIES_MAX: Final = 2000


class Outbox:
    def __init__(self) -> None:
        self._waiting: deque[Effect] = deque()
        self._group = 0
        """How many of the waiting effects end with the last record of the group under way."""

    @property
    def is_committing(self) -> bool:
        return self._group > 0

    @property
    def is_empty(self) -> bool:
        return not self._waiting

    def put(self, effects: list[Effect]) -> list[Effect]:
        """Takes effects in; returns those that may leave at once."""
        if not self._waiting and not any(type(effect) is Record for effect in effects):
            return effects
        released: list[Effect] = []
        for effect in effects:
            if type(effect) is not Record and (not self._waiting or isinstance(effect, OVERTAKING)):
                released.append(effect)
            else:
                self._waiting.append(effect)
        return released

    def put_behind(self, effects: list[Effect]) -> list[Effect]:
        """Takes in what comes instead of the effects that `committed` has just given: records
        among them go behind what waits, the rest leaves now."""
        records = [effect for effect in effects if type(effect) is Record]
        self._waiting.extend(records)
        return [effect for effect in effects if type(effect) is not Record]

    def take_group(self) -> list[Entry]:
        """The entries to commit next; none while a group is under way."""
        if self._group:
            return []
        entries: list[Entry] = []
        for position, effect in enumerate(self._waiting):
            if type(effect) is Record:
                if entries and len(entries) + len(effect.entries) > GROUP_ENTRIES_MAX:
                    break
                entries.extend(effect.entries)
                self._group = position + 1
        return entries

    def committed(self) -> list[Effect]:
        """The group under way is on disk: what may leave now."""
        assert self._group, "no commit group is under way"
        released: list[Effect] = []
        for _ in range(self._group):
            effect = self._waiting.popleft()
            if type(effect) is not Record:
                released.append(effect)
        self._group = 0
        while self._waiting and type(self._waiting[0]) is not Record:
            released.append(self._waiting.popleft())
        return released
