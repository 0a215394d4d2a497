"""What a worker lacks to run a task, in words for people: what is asked and what there is."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mycel.core.model.model_names import shown
from mycel.core.model.resources import Capabilities, GpuRequirement, millis, size
from mycel.core.model.work import Shape

from .slot_counts import gpus_needed, gpus_suiting, micros
from .version_ranges import version_satisfies

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


def _lacks_driver(shape: Shape, has: Capabilities) -> str | None:
    if shape.driver == "model" and shape.model not in has.models:
        served = f"it serves {shown(', '.join(has.models))}" if has.models else "it serves none"
        return f"needs the model {shown(shape.model)}, {served}"
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
    if millis(need) <= millis(has.cpu_cores):
        return None
    return f"needs {need:g} cores, it has {has.cpu_cores:g}"


def _lacks_disk(shape: Shape, has: Capabilities) -> str | None:
    need = shape.requirements.disk
    return None if need <= has.disk else f"needs {size(need)} of disk, it has {size(has.disk)}"


def _lacks_gpus(shape: Shape, has: Capabilities) -> str | None:
    wanted = shape.requirements.gpus
    if wanted is None:
        return None
    if not has.gpus:
        return "needs a GPU, it has none"
    fitting = len(gpus_suiting(wanted, has.gpus))
    if fitting >= gpus_needed(wanted):
        return None
    return f"needs {gpus_in_words(wanted)}, {fitting} of its {len(has.gpus)} GPUs fit"


def gpus_in_words(wanted: GpuRequirement) -> str:
    kind = f"{wanted.model} GPU" if wanted.model else "GPU"
    memory = f" with {size(wanted.memory)}" if wanted.memory else ""
    return f"{wanted.count:g} {kind}{memory}"


def _lacks_custom(shape: Shape, has: Capabilities) -> str | None:
    there = dict(has.custom)
    for name, amount in shape.requirements.custom:
        if micros(amount) > micros(there.get(name, 0.0)):
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


def _lacks_price(shape: Shape, has: Capabilities) -> str | None:
    most = shape.max_cost
    if most is None or has.price.floor <= most:
        return None
    return f"may cost {most:g}, it asks {has.price.floor:g}"


def _lacks_sandbox(shape: Shape, has: Capabilities) -> str | None:
    return "needs a sandbox, it has none" if shape.sandbox and not has.sandbox else None


def _lacks_network(shape: Shape, has: Capabilities) -> str | None:
    return "needs the network, it gives tasks none" if shape.network and not has.network else None


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
    _lacks_price,
    _lacks_sandbox,
    _lacks_network,
)
