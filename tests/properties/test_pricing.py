"""Prices: never below the floor, and never falling when a worker fills or a task takes longer."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from mycel.core.model.prices import (
    Tariff,
    affordable_seconds,
    cost,
    hourly_rate,
    price_of,
    share_taken,
)
from mycel.core.model.resources import Capabilities, Free, Gpu, GpuRequirement, Ledger, Requirements

prices = st.floats(0.0, 1e6)
tariffs = st.builds(
    Tariff,
    floor=prices,
    cpu_core_hour=prices,
    memory_gb_hour=prices,
    gpu_hour=prices,
    surge=st.floats(0.0, 10.0),
)
asked = st.builds(
    Requirements,
    cpu_cores=st.floats(0.0, 512.0),
    min_memory=st.integers(0, 1 << 40),
    gpus=st.none() | st.builds(GpuRequirement, count=st.floats(0.1, 8.0)),
)
shares = st.floats(0.0, 1.0)
seconds = st.floats(0.0, 1e7)


@given(tariffs, asked, shares, seconds)
def test_nothing_costs_less_than_the_floor(
    tariff: Tariff, need: Requirements, taken: float, took: float
) -> None:
    assert cost(tariff.floor, hourly_rate(tariff, need, taken), took) >= tariff.floor


@given(tariffs, asked, shares, shares)
def test_a_fuller_worker_is_never_cheaper(
    tariff: Tariff, need: Requirements, one: float, other: float
) -> None:
    less, more = sorted((one, other))
    assert hourly_rate(tariff, need, less) <= hourly_rate(tariff, need, more)


@given(prices, prices, seconds, seconds)
def test_a_longer_task_is_never_cheaper(
    floor: float, rate: float, one: float, other: float
) -> None:
    less, more = sorted((one, other))
    assert cost(floor, rate, less) <= cost(floor, rate, more)


@given(tariffs, asked, asked)
def test_a_bigger_task_is_never_cheaper(
    tariff: Tariff, one: Requirements, other: Requirements
) -> None:
    count = max(gpus(one), gpus(other))
    both = Requirements(
        cpu_cores=max(one.cpu_cores, other.cpu_cores),
        min_memory=max(one.min_memory, other.min_memory),
        gpus=GpuRequirement(count) if count else None,
    )
    assert hourly_rate(tariff, one, 0.5) <= hourly_rate(tariff, both, 0.5)


@given(tariffs, asked, shares, prices)
@example(Tariff(cpu_core_hour=2.2e-313), Requirements(), 0.0, 1.0)
def test_what_ends_in_time_stays_within_its_budget(
    tariff: Tariff, need: Requirements, taken: float, budget: float
) -> None:
    affordable = affordable_seconds(hourly_rate(tariff, need, taken), budget)
    if affordable is None:
        assert price_of(tariff, need, taken, 1e7) <= max(tariff.floor, budget)
        return
    within = price_of(tariff, need, taken, affordable)
    assert within <= max(tariff.floor, budget * (1.0 + 1e-9))
    beyond = price_of(tariff, need, taken, 2.0 * affordable + 3600.0)
    assert beyond >= within


def gpus(need: Requirements) -> float:
    return 0.0 if need.gpus is None else need.gpus.count


def test_an_hour_costs_what_the_tariff_says() -> None:
    tariff = Tariff(cpu_core_hour=0.1, memory_gb_hour=0.01, gpu_hour=1.0, surge=0.5)
    need = Requirements(cpu_cores=2.0, min_memory=4_000_000_000, gpus=GpuRequirement(1.0))
    assert abs(hourly_rate(tariff, need, 0.0) - 1.24) < 1e-9
    assert abs(hourly_rate(tariff, need, 1.0) - 1.86) < 1e-9
    assert abs(cost(0.5, 1.24, 7200.0) - 2.48) < 1e-9
    assert cost(0.5, 1.24, 1.0) == 0.5


def test_the_scarcest_resource_says_how_full_a_worker_is() -> None:
    ledger = Ledger(Capabilities(cpu_cores=4.0, memory=1000, gpus=(Gpu("g", 1), Gpu("g", 1))))
    assert share_taken(ledger.total, ledger.free) == 0.0
    ledger.book(Requirements(cpu_cores=1.0, min_memory=100, gpus=GpuRequirement(1.0)))
    assert share_taken(ledger.total, ledger.free) == 0.5
    assert share_taken(Free(), Free()) == 0.0
