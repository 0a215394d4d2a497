"""What a worker can be found by.

    capabilities ─▶ facets it provides          requirement ─▶ facets it asks, rarest first

A worker that satisfies a requirement provides every facet that the requirement asks: any one of
them finds it, and the rarest finds the fewest others beside it. Amounts become thresholds in
powers of two: a worker provides all that it reaches, a requirement asks the highest below it.
Facets find candidates; whether one satisfies the whole requirement is `matching`'s to say.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mycel.core.model.gpu_names import family_keys, key_asked
from mycel.core.model.resources import Capabilities
from mycel.core.model.work import Shape

Facet = str

MEMORY_BITS: Final = range(30, 45)
"""Thresholds from 1 GiB to 16 TiB; smaller needs ask nothing, larger ones the last."""
GPU_MEMORY_BITS: Final = range(30, 41)
GPU_COUNT_BITS: Final = range(7)


def facets_of(capabilities: Capabilities) -> tuple[Facet, ...]:
    """Everything that a worker with these capabilities is found by."""
    return tuple(dict.fromkeys(_provided(capabilities)))


def _provided(has: Capabilities) -> Iterator[Facet]:
    yield from (f"driver={driver}" for driver in has.drivers)
    yield from (f"model={model}" for model in has.models)
    yield from (f"gpu={key}" for gpu in has.gpus for key in family_keys(gpu.model))
    yield from (f"label={name}={value}" for name, value in has.labels)
    yield from (f"custom={name}" for name, amount in has.custom if amount > 0)
    yield from (f"software={name}" for name, _ in has.software)
    if has.arch:
        yield f"arch={has.arch}"
    if has.os:
        yield f"os={has.os}"
    yield from (f"memory=2^{bits}" for bits in MEMORY_BITS if has.memory >= 1 << bits)
    largest = max((gpu.memory for gpu in has.gpus), default=0)
    yield from (f"gpu_memory=2^{bits}" for bits in GPU_MEMORY_BITS if largest >= 1 << bits)
    yield from (f"gpus=2^{bits}" for bits in GPU_COUNT_BITS if len(has.gpus) >= 1 << bits)


def facets_asked(shape: Shape) -> tuple[Facet, ...]:
    """What a worker for this shape must provide, the rarest first; never empty."""
    return tuple(dict.fromkeys(_asked(shape)))


def _asked(shape: Shape) -> Iterator[Facet]:
    """In the order of how few workers have it, as far as one can tell beforehand."""
    need = shape.requirements
    if shape.driver == "model":
        yield f"model={shape.model}"
    if need.gpus is not None:
        key = key_asked(need.gpus.model)
        if key:
            yield f"gpu={key}"
    yield from (f"custom={name}" for name, amount in need.custom if amount > 0)
    yield from (f"label={name}={value}" for name, value in need.labels)
    if need.gpus is not None:
        yield from _threshold("gpu_memory", need.gpus.memory, GPU_MEMORY_BITS)
        yield from _threshold("gpus", max(1, round(need.gpus.count)), GPU_COUNT_BITS)
    yield from _threshold("memory", need.min_memory, MEMORY_BITS)
    yield from (f"software={name}" for name, _ in need.software)
    if need.arch:
        yield f"arch={need.arch}"
    if need.os:
        yield f"os={need.os}"
    yield f"driver={shape.driver}"


def _threshold(name: str, amount: int, bits: range) -> Iterator[Facet]:
    """The highest threshold that everybody with this amount reaches."""
    reached = min(amount.bit_length() - 1, bits[-1])
    if reached in bits:
        yield f"{name}=2^{reached}"
