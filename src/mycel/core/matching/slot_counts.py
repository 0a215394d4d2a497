"""How many tasks of a kind fit into what is free: arithmetic, where a ledger would book one by
one. A worker's ledger decides; this is what a scheduler expects it to say."""

from __future__ import annotations

from mycel.core.model.gpu_names import gpu_suits
from mycel.core.model.resources import (
    SLOTS_MAX,
    Amounts,
    Booking,
    Capabilities,
    Free,
    Gpu,
    GpuRequirement,
    Requirements,
    millis,
)


def micros(amount: float) -> int:
    """Amounts of custom resources are compared in millionths, as integers. However little is
    needed, who has none of it does not have enough."""
    return max(1, round(amount * 1_000_000)) if amount > 0.0 else 0


def total_of(capabilities: Capabilities) -> Free:
    """All of it, as if nothing were booked."""
    return Free(
        cpu_millis=millis(capabilities.cpu_cores),
        memory=capabilities.memory,
        disk=capabilities.disk,
        gpu_millis=(1000,) * len(capabilities.gpus),
        custom=capabilities.custom,
    )


def less(free: Free, booking: Booking) -> Free:
    """What is left of it beside that slice."""
    custom = free.custom
    if booking.custom:
        taken = dict(booking.custom)
        custom = tuple((name, max(0.0, has - taken.get(name, 0.0))) for name, has in custom)
    gpu_millis = free.gpu_millis
    if booking.gpu_millis:
        left = list(gpu_millis)
        for index, share in booking.gpu_millis:
            left[index] -= share
        gpu_millis = tuple(left)
    return Free(
        cpu_millis=free.cpu_millis - booking.cpu_millis,
        memory=free.memory - booking.memory,
        disk=free.disk - booking.disk,
        gpu_millis=gpu_millis,
        custom=custom,
    )


def gpus_needed(wanted: GpuRequirement) -> int:
    return max(1, round(wanted.count))


def gpus_suiting(wanted: GpuRequirement, gpus: tuple[Gpu, ...]) -> list[int]:
    """Which of them are of the kind that is wanted, whether free or not."""
    return [
        index
        for index, gpu in enumerate(gpus)
        if gpu.memory >= wanted.memory
        and gpu_suits(wanted.model, gpu.model, gpu.vendor, gpu.memory)
    ]


def slots_that_fit(
    requirements: Requirements, capabilities: Capabilities, free: Free, at_most: int = SLOTS_MAX
) -> int:
    """How many such tasks fit into what is free, side by side."""
    most = min(at_most, SLOTS_MAX)
    cpu_millis = millis(requirements.cpu_cores)
    if cpu_millis:
        most = min(most, free.cpu_millis // cpu_millis)
    if requirements.min_memory:
        most = min(most, free.memory // requirements.min_memory)
    if requirements.disk:
        most = min(most, free.disk // requirements.disk)
    for name, amount in requirements.custom:
        if amount > 0.0:
            there = micros(dict(free.custom).get(name, 0.0))
            most = min(most, there // micros(amount))
    wanted = requirements.gpus
    if wanted is not None and most > 0:
        suiting = gpus_suiting(wanted, capabilities.gpus)
        share = millis(wanted.count)
        if wanted.count < 1:
            fitting = sum(free.gpu_millis[index] // share for index in suiting) if share else most
        else:
            whole = sum(free.gpu_millis[index] == 1000 for index in suiting)
            fitting = whole // gpus_needed(wanted)
        most = min(most, fitting)
    return max(0, most)


def has_room(requirements: Requirements, capabilities: Capabilities, free: Free) -> bool:
    """Whether one such task fits into what is free now."""
    return slots_that_fit(requirements, capabilities, free, 1) == 1


def left_after(
    requirements: Requirements, capabilities: Capabilities, free: Free, slots: int
) -> Free:
    """What is free once so many tasks are there; nothing falls below zero."""
    taken: dict[str, float] = {name: amount * slots for name, amount in requirements.custom}
    custom: Amounts = free.custom
    if taken:
        custom = tuple((name, max(0.0, has - taken.get(name, 0.0))) for name, has in free.custom)
    wanted = requirements.gpus
    gpu_millis = free.gpu_millis
    if wanted is not None:
        gpu_millis = _gpus_after(wanted, capabilities.gpus, gpu_millis, slots)
    return Free(
        cpu_millis=max(0, free.cpu_millis - slots * millis(requirements.cpu_cores)),
        memory=max(0, free.memory - slots * requirements.min_memory),
        disk=max(0, free.disk - slots * requirements.disk),
        gpu_millis=gpu_millis,
        custom=custom,
    )


def _gpus_after(
    wanted: GpuRequirement, gpus: tuple[Gpu, ...], free: tuple[int, ...], slots: int
) -> tuple[int, ...]:
    """As a ledger books: whole ones in order, a fraction on the fullest that has room."""
    left = list(free)
    suiting = gpus_suiting(wanted, gpus)
    if wanted.count >= 1:
        whole = [index for index in suiting if left[index] == 1000]
        for index in whole[: slots * gpus_needed(wanted)]:
            left[index] = 0
        return tuple(left)
    share = millis(wanted.count)
    for index in sorted(suiting, key=lambda one: (left[one], one)):
        here = min(slots, left[index] // share) if share else 0
        left[index] -= here * share
        slots -= here
    return tuple(left)
