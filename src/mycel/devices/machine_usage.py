"""What of this machine is really in use, by whomever."""

from __future__ import annotations

from typing import Final

import msgspec
import psutil

from mycel.core.model.resources import USAGE_STEPS, Usage

from . import gpus

CPU_FADING: Final = 0.5
"""How much the latest look counts: a moment's peak is no load."""


class Meter:
    """Looks at the machine; the first look at the cores tells nothing yet."""

    def __init__(self, has_gpus: bool) -> None:
        self._has_gpus = has_gpus
        self._cpu: float | None = None
        psutil.cpu_percent(None)

    def look(self) -> Usage:
        cpu = psutil.cpu_percent(None) / 100.0
        self._cpu = cpu if self._cpu is None else self._cpu + CPU_FADING * (cpu - self._cpu)
        memory = psutil.virtual_memory().percent / 100.0
        shares = [sample.utilisation for sample in gpus.samples()] if self._has_gpus else []
        return Usage(
            steps(self._cpu),
            steps(memory),
            tuple(-1 if share is None else steps(share) for share in shares),
        )


def steps(share: float) -> int:
    return round(USAGE_STEPS * min(1.0, max(0.0, share)))


class CoreSeconds(msgspec.Struct, frozen=True):
    """Of all cores together, since the machine started."""

    total: float
    idle: float
    ours: float


def share_of_others(before: CoreSeconds, now: CoreSeconds) -> float:
    elapsed = now.total - before.total
    if elapsed <= 0:
        return 0.0
    busy = elapsed - (now.idle - before.idle)
    others = busy - max(0.0, now.ours - before.ours)
    return min(1.0, max(0.0, others / elapsed))


class OthersMeter:
    """The share of the cores that is in use by others than a process and its descendants."""

    def __init__(self, process: int) -> None:
        self._process = psutil.Process(process)
        self._before = self.times()

    def look(self) -> float:
        """Since the last look."""
        before, self._before = self._before, self.times()
        return share_of_others(before, self._before)

    def times(self) -> CoreSeconds:
        now = psutil.cpu_times()
        waiting = getattr(now, "iowait", 0.0)
        ours = 0.0
        for process in (self._process, *self._process.children(recursive=True)):
            try:
                times = process.cpu_times()
            except psutil.Error:
                continue  # it has just ended: its parent has its times
            ours += times.user + times.system
            ours += getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
        return CoreSeconds(sum(now), now.idle + waiting, ours)
