"""Who seems to have room: levels of what is free, coarse, so that they change seldom. Who seems
to have room is then asked exactly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mycel.core.model.resources import Amounts, Free, Requirements, millis

from .indexes import Levels, bucket_of
from .slot_counts import gpus_needed, micros

_STEPS: Final = 2
"""Four levels to each doubling."""
_GPU_STEP_MILLIS: Final = 125


class Room:
    def __init__(self) -> None:
        self._levels: dict[str, Levels] = {}
        self._custom: dict[str, Levels] = {}
        self._names: dict[int, frozenset[str]] = {}
        """The custom resources of each slot that has any."""

    def put(self, slot: int, free: Free) -> None:
        for name, level in _levels_of(free):
            levels = self._levels.get(name)
            if levels is None:
                levels = self._levels[name] = Levels()
            levels.put(slot, level)
        if free.custom or slot in self._names:
            self._put_custom(slot, free.custom)

    def remove(self, slot: int) -> None:
        for levels in self._levels.values():
            levels.put(slot, None)
        self._put_custom(slot, ())

    def _put_custom(self, slot: int, amounts: Amounts) -> None:
        names = frozenset(name for name, _ in amounts)
        for name in self._names.pop(slot, frozenset()) - names:
            self._custom[name].put(slot, None)
            if not self._custom[name]:
                del self._custom[name]
        for name, amount in amounts:
            self._custom.setdefault(name, Levels()).put(slot, bucket_of(micros(amount), _STEPS))
        if names:
            self._names[slot] = names

    def cut(self, mask: int, need: Requirements) -> int:
        """Those of the mask that seem to have room for one such task."""
        for name, level in _levels_needed(need):
            levels = self._levels.get(name)
            mask &= 0 if levels is None else levels.at_least(level)
        for name, amount in need.custom:
            if amount > 0.0:
                levels = self._custom.get(name)
                level = bucket_of(micros(amount), _STEPS)
                mask &= 0 if levels is None else levels.at_least(level)
        return mask


def _levels_of(free: Free) -> Iterator[tuple[str, int]]:
    yield "cpu", bucket_of(free.cpu_millis, _STEPS)
    yield "memory", bucket_of(free.memory, _STEPS)
    yield "disk", bucket_of(free.disk, _STEPS)
    yield "whole_gpus", sum(share == 1000 for share in free.gpu_millis)
    yield "gpu_share", max(free.gpu_millis, default=0) // _GPU_STEP_MILLIS


def _levels_needed(need: Requirements) -> Iterator[tuple[str, int]]:
    """The levels that a worker with room reaches."""
    if need.cpu_cores:
        yield "cpu", bucket_of(millis(need.cpu_cores), _STEPS)
    if need.min_memory:
        yield "memory", bucket_of(need.min_memory, _STEPS)
    if need.disk:
        yield "disk", bucket_of(need.disk, _STEPS)
    wanted = need.gpus
    if wanted is not None and wanted.count >= 1:
        yield "whole_gpus", gpus_needed(wanted)
    elif wanted is not None:
        yield "gpu_share", millis(wanted.count) // _GPU_STEP_MILLIS
