"""What a worker asks for a task.

    cost = max(floor, rate × hours)      rate = Σ resource × its price an hour × (1 + surge × u)

`u` is how much of the worker is taken: the share of its scarcest resource. A slot is booked at
the rate of its moment, which holds as long as the slot. The rate never falls when a worker
fills, and nothing ever costs less than the floor.
"""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Final

import msgspec

from mycel.core.ranges import Amount

if TYPE_CHECKING:
    from .resources import Free, Requirements

HOUR_SECONDS: Final = 3600.0
GIGABYTE: Final = 1e9


class Tariff(msgspec.Struct, frozen=True, omit_defaults=True):
    """Prices, in whatever unit the swarm has agreed on."""

    floor: Amount = 0.0
    """Each attempt costs at least this."""
    cpu_core_hour: Amount = 0.0
    memory_gb_hour: Amount = 0.0
    gpu_hour: Amount = 0.0
    surge: Amount = 0.0
    """How much dearer a full worker is: 0.5 is half as much again."""

    @property
    def has_rates(self) -> bool:
        return bool(self.cpu_core_hour or self.memory_gb_hour or self.gpu_hour)


def hourly_rate(tariff: Tariff, asked: Requirements, taken: float) -> float:
    """What an hour of such a task costs on a worker of which the share `taken` is taken."""
    gpus = 0.0 if asked.gpus is None else asked.gpus.count
    base = (
        tariff.cpu_core_hour * asked.cpu_cores
        + tariff.memory_gb_hour * asked.min_memory / GIGABYTE
        + tariff.gpu_hour * gpus
    )
    return base * (1.0 + tariff.surge * min(1.0, max(0.0, taken)))


def cost(floor: float, rate: float, seconds: float) -> float:
    """Of one attempt that took so long."""
    return max(floor, rate * max(0.0, seconds) / HOUR_SECONDS)


def price_of(tariff: Tariff, asked: Requirements, taken: float, seconds: float) -> float:
    """What a task that takes so long would cost on a worker with this tariff."""
    rate = hourly_rate(tariff, asked, taken) if tariff.has_rates else 0.0
    return cost(tariff.floor, rate, seconds)


def affordable_seconds(rate: float, budget: float) -> float | None:
    """How long an attempt at this hourly rate may run until it has cost the budget; None if it
    may run for ever."""
    if rate <= 0.0:
        return None
    seconds = max(0.0, budget) * HOUR_SECONDS / rate
    return seconds if isfinite(seconds) else None


def share_taken(total: Free, free: Free) -> float:
    """Of the resource that is scarcest."""
    shares = [
        _share(total.cpu_millis, free.cpu_millis),
        _share(total.memory, free.memory),
        _share(sum(total.gpu_millis), sum(free.gpu_millis)),
    ]
    return max(shares)


def _share(total: int, free: int) -> float:
    return 0.0 if total <= 0 else 1.0 - free / total
