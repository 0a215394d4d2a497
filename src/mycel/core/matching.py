"""Which workers can run a task, and for each that cannot, the first thing it lacks.

Filter, then order. The reasons are made for people: they name what is asked and what there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from .resources import Capabilities, Free, GpuRequirement, Requirements, millis, slots_that_fit
from .work import Shape

Check = Callable[[Shape, Capabilities], str | None]


def obstacle(shape: Shape, capabilities: Capabilities) -> str | None:
    """The first reason why a worker with these capabilities can never run this shape; None if
    it can."""
    return next(_reasons(shape, capabilities), None)


def all_obstacles(shape: Shape, capabilities: Capabilities) -> list[str]:
    """Everything that is missing, so that nobody mends one thing to be told of the next."""
    return list(_reasons(shape, capabilities))


def _reasons(shape: Shape, capabilities: Capabilities) -> Iterator[str]:
    for check in _CHECKS:
        reason = check(shape, capabilities)
        if reason is not None:
            yield reason


def has_room(requirements: Requirements, capabilities: Capabilities, free: Free) -> bool:
    """Whether one such task fits into what is free now."""
    if (
        millis(requirements.cpu_cores) > free.cpu_millis
        or requirements.min_memory > free.memory
        or requirements.disk > free.disk
    ):
        return False
    custom = dict(free.custom)
    if any(amount > custom.get(name, 0.0) for name, amount in requirements.custom):
        return False
    wanted = requirements.gpus
    if wanted is None:
        return True
    share = min(1000, millis(wanted.count))
    fitting = sum(
        gpu_free >= share and _gpu_suits(wanted, gpu.model, gpu.memory)
        for gpu, gpu_free in zip(capabilities.gpus, free.gpu_millis, strict=False)
    )
    return fitting >= max(1, round(wanted.count))


def size(amount: int) -> str:
    """Bytes, for people."""
    for unit, factor in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if amount >= factor:
            return f"{amount / factor:.3g} {unit}"
    return f"{amount} bytes"


def _gpu_suits(wanted: GpuRequirement, model: str, memory: int) -> bool:
    return memory >= wanted.memory and (not wanted.model or wanted.model == model)


def _lacks_driver(shape: Shape, has: Capabilities) -> str | None:
    if shape.driver == "model" and shape.model not in has.models:
        served = f"it serves {', '.join(has.models)}" if has.models else "it serves none"
        return f"needs the model {shape.model}, {served}"
    if shape.driver in has.drivers:
        return None
    return f"needs the driver {shape.driver}, it has {', '.join(has.drivers) or 'none'}"


def _lacks_memory(shape: Shape, has: Capabilities) -> str | None:
    need = shape.requirements.min_memory
    return (
        None if need <= has.memory else f"needs {size(need)} of memory, it has {size(has.memory)}"
    )


def _lacks_cores(shape: Shape, has: Capabilities) -> str | None:
    need = shape.requirements.cpu_cores
    return None if need <= has.cpu_cores else f"needs {need:g} cores, it has {has.cpu_cores:g}"


def _lacks_disk(shape: Shape, has: Capabilities) -> str | None:
    need = shape.requirements.disk
    return None if need <= has.disk else f"needs {size(need)} of disk, it has {size(has.disk)}"


def _lacks_gpus(shape: Shape, has: Capabilities) -> str | None:
    wanted = shape.requirements.gpus
    if wanted is None:
        return None
    if not has.gpus:
        return "needs a GPU, it has none"
    fitting = sum(_gpu_suits(wanted, gpu.model, gpu.memory) for gpu in has.gpus)
    if fitting >= max(1, round(wanted.count)):
        return None
    kind = f"{wanted.model} GPU" if wanted.model else "GPU"
    memory = f" with {size(wanted.memory)}" if wanted.memory else ""
    return f"needs {wanted.count:g} {kind}{memory}, {fitting} of its {len(has.gpus)} GPUs fit"


def _lacks_custom(shape: Shape, has: Capabilities) -> str | None:
    there = dict(has.custom)
    for name, amount in shape.requirements.custom:
        if amount > there.get(name, 0.0):
            return f"needs {amount:g} {name}, it has {there.get(name, 0.0):g}"
    return None


def _lacks_place(shape: Shape, has: Capabilities) -> str | None:
    need = shape.requirements
    if need.arch and need.arch != has.arch:
        return f"needs arch {need.arch}, it is {has.arch or 'unknown'}"
    if need.os and need.os != has.os:
        return f"needs os {need.os}, it is {has.os or 'unknown'}"
    return None


def _lacks_label(shape: Shape, has: Capabilities) -> str | None:
    there = dict(has.labels)
    for name, value in shape.requirements.labels:
        if there.get(name) != value:
            found = f"it has {name}={there[name]}" if name in there else "it has no such label"
            return f"needs the label {name}={value}, {found}"
    return None


def _lacks_software(shape: Shape, has: Capabilities) -> str | None:
    there = dict(has.software)
    for name, wanted in shape.requirements.software:
        if name not in there:
            return f"needs {name} {wanted}, it has none"
        if not version_satisfies(there[name], wanted):
            return f"needs {name} {wanted}, it has {there[name]}"
    return None


_CHECKS: tuple[Check, ...] = (
    _lacks_memory,
    _lacks_gpus,
    _lacks_cores,
    _lacks_disk,
    _lacks_custom,
    _lacks_place,
    _lacks_label,
    _lacks_software,
    _lacks_driver,
)


def version_satisfies(version: str, wanted: str) -> bool:
    """`wanted` is a list like ">=12.2,<13"; without an operator it means exactly that."""
    have = _version(version)
    for part in wanted.split(","):
        text = part.strip()
        operator = next((o for o in (">=", "<=", "==", "!=", ">", "<") if text.startswith(o)), "")
        need = _version(text[len(operator) :])
        width = max(len(have), len(need))
        left = have + (0,) * (width - len(have))
        right = need + (0,) * (width - len(need))
        if not _COMPARE[operator or "=="](left, right):
            return False
    return True


def _version(text: str) -> tuple[int, ...]:
    numbers = []
    for part in text.strip().lstrip("v").split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        numbers.append(int(digits) if digits else 0)
    return tuple(numbers)


_COMPARE: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    ">=": lambda left, right: left >= right,
    "<=": lambda left, right: left <= right,
    "==": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    ">": lambda left, right: left > right,
    "<": lambda left, right: left < right,
}


class Candidate:
    """A worker that can run a shape, with what the order of asking depends on."""

    __slots__ = ("key", "load", "room", "rtt_seconds", "slots")

    def __init__(
        self, key: str, room: bool, slots: int, load: float, rtt_seconds: float | None
    ) -> None:
        self.key = key
        self.room = room
        self.slots = slots
        self.load = load
        self.rtt_seconds = rtt_seconds


def in_order(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Those with room first, the least loaded first, the nearest first."""
    return sorted(
        candidates,
        key=lambda one: (not one.room, one.load, one.rtt_seconds or 0.0, one.key),
    )


def slots_of(shape: Shape, capabilities: Capabilities, at_most: int) -> int:
    """How many tasks of this shape the whole worker could hold."""
    return slots_that_fit(capabilities, shape.requirements, at_most)
