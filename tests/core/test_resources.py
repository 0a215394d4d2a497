"""A worker never books more than it has."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mycel.core.matching import slots_that_fit, total_of
from mycel.core.matching.slot_counts import left_after
from mycel.core.model.resources import (
    Booking,
    Capabilities,
    Gpu,
    GpuRequirement,
    Ledger,
    Requirements,
)

A100 = Gpu("A100", 40_000_000_000)
T4 = Gpu("T4", 16_000_000_000)

gpu_requirements = st.builds(
    GpuRequirement,
    count=st.sampled_from((0.25, 0.5, 1.0, 2.0)),
    model=st.sampled_from(("", "A100")),
    memory=st.sampled_from((0, 20_000_000_000)),
)
requirements = st.builds(
    Requirements,
    cpu_cores=st.sampled_from((0.0, 0.1, 0.3, 1.0, 2.5)),
    min_memory=st.integers(0, 4_000),
    disk=st.integers(0, 100),
    gpus=st.none() | gpu_requirements,
    custom=st.sampled_from(((), (("licence", 1.0),))),
)
machine = Capabilities(
    cpu_cores=4.0, memory=10_000, disk=300, gpus=(A100, A100, T4), custom=(("licence", 2.0),)
)


@given(st.lists(st.tuples(requirements, st.booleans()), max_size=60))
def test_what_is_booked_never_exceeds_what_there_is(
    story: list[tuple[Requirements, bool]],
) -> None:
    ledger = Ledger(machine)
    bookings: list[Booking] = []
    for wanted, give_back in story:
        if give_back and bookings:
            ledger.give_back(bookings.pop(0))
        booking = ledger.book(wanted)
        if booking is not None:
            bookings.append(booking)
        ledger.assert_sound()
    for booking in bookings:
        ledger.give_back(booking)
    assert ledger.free == ledger.total


def slots(has: Capabilities, need: Requirements) -> int:
    return slots_that_fit(need, has, total_of(has))


def test_tenths_of_a_core_add_up() -> None:
    assert slots(Capabilities(cpu_cores=1.0), Requirements(cpu_cores=0.1)) == 10


def test_a_fraction_goes_to_a_gpu_that_is_shared_already() -> None:
    ledger = Ledger(Capabilities(gpus=(A100, A100)))
    half = Requirements(gpus=GpuRequirement(count=0.5))
    assert ledger.book(half) is not None
    assert ledger.book(half) is not None
    assert ledger.book(Requirements(gpus=GpuRequirement(count=1.0))) is not None


def test_the_model_and_memory_of_a_gpu_count() -> None:
    wanted = Requirements(gpus=GpuRequirement(count=2.0, model="A100"))
    assert slots(machine, wanted) == 1
    big = Requirements(gpus=GpuRequirement(count=1.0, memory=20_000_000_000))
    assert slots(machine, big) == 2


@given(requirements, st.integers(0, 6))
def test_arithmetic_says_what_a_ledger_would(need: Requirements, booked: int) -> None:
    """How many fit, and what is left once so many are there."""
    ledger = Ledger(machine)
    fitting = 0
    for _ in range(booked):
        fitting += ledger.book(need) is not None
    left = left_after(need, machine, total_of(machine), fitting)
    assert left == ledger.free
    more = slots_that_fit(need, machine, left, 5)
    assert more == sum(ledger.book(need) is not None for _ in range(5))
