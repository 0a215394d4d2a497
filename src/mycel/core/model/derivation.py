"""From a job to its tasks.

A job has stages, or is one by itself; a stage has a number of tasks that share a
specification, but for those that are overridden. What comes out is what a scheduler takes in:
groups (tasks with one specification) and parts (blocks to be) in the order of the indexes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any, Final

import msgspec

from mycel.core.errors import Unprocessable

from .jobs import Specification
from .stages import Stage
from .substitution import Budget, fill_value, head_of, references
from .sweeps import Sweep

BATCH_TASKS_MAX: Final = 10_000
JOB_TASKS_MAX: Final = 1_000_000
RUNS_MAX: Final = 1_000
"""Stretches of tasks with one specification; each is a block."""

_decode_items: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


class Override(msgspec.Struct, frozen=True):
    """Some tasks of a stage that differ."""

    positions: tuple[int, ...]
    """Within the stage, from 0."""
    specification: Specification


class StagePlan(msgspec.Struct, frozen=True):
    """What a client said of a stage, checked and converted."""

    specification: Specification
    """With the sweep, if it is one."""
    count: int = 1
    arguments: bytes = b""
    """A JSON array with `count` elements, or nothing."""
    overrides: tuple[Override, ...] = ()


class Part(msgspec.Struct, frozen=True):
    """Consecutive tasks of one group."""

    group: int
    count: int
    arguments: bytes


class Derived(msgspec.Struct, frozen=True):
    stages: tuple[Stage, ...]
    """None for a job that has no stages."""
    groups: tuple[tuple[Specification, int], ...]
    """Each with the place of its stage."""
    parts: tuple[Part, ...]

    @property
    def count(self) -> int:
        return sum(part.count for part in self.parts)


def derive(stages: tuple[Stage, ...], plans: tuple[StagePlan, ...]) -> Derived:
    """Raises `Unprocessable` for what is too large."""
    total = sum(plan.count for plan in plans)
    if total > JOB_TASKS_MAX:
        raise Unprocessable(f"a job has at most {JOB_TASKS_MAX:,} tasks, not {total:,}")
    groups: list[tuple[Specification, int]] = []
    parts: list[Part] = []
    first = 0
    for place, plan in enumerate(plans):
        numbers: dict[Specification, int] = {}
        items = _decode_items(plan.arguments) if plan.arguments else None
        # A stage has a group even while it has no tasks: batches may bring some.
        runs = list(_runs(plan)) or [(0, 0, plan.specification)]
        for start, end, specification in runs:
            shifted = _shifted(specification, first)
            if shifted not in numbers:
                numbers[shifted] = len(groups)
                groups.append((shifted, place))
            for begin in range(start, end, BATCH_TASKS_MAX):
                stop = min(end, begin + BATCH_TASKS_MAX)
                encoded = b"" if items is None else b"[" + b",".join(items[begin:stop]) + b"]"
                parts.append(Part(numbers[shifted], stop - begin, encoded))
        first += plan.count
    return Derived(stages, tuple(groups), tuple(parts))


def _shifted(specification: Specification, first: int) -> Specification:
    if specification.sweep is None or first == 0:
        return specification
    sweep = msgspec.structs.replace(specification.sweep, first=first)
    return msgspec.structs.replace(specification, sweep=sweep)


def _runs(plan: StagePlan) -> Iterator[tuple[int, int, Specification]]:
    """Stretches of tasks with one specification. A later override wins over an earlier one."""
    chosen: dict[int, Specification] = {}
    for override in plan.overrides:
        for position in override.positions:
            if position >= plan.count:
                raise Unprocessable(
                    f"an override names task {position}, and there are {plan.count}, from 0 on"
                )
            chosen[position] = override.specification
    found: list[tuple[int, int, Specification]] = []
    position = 0
    for place in sorted(chosen):
        if position < place:
            found.append((position, place, plan.specification))
        if found and found[-1][1] == place and found[-1][2] == chosen[place]:
            found[-1] = (found[-1][0], place + 1, chosen[place])
        else:
            found.append((place, place + 1, chosen[place]))
        position = place + 1
    if position < plan.count:
        found.append((position, plan.count, plan.specification))
    if len(found) > RUNS_MAX:
        raise Unprocessable(
            f"the overrides cut the tasks into {len(found):,} stretches; the limit is {RUNS_MAX:,}"
        )
    yield from found


def positions_where(sweep: Sweep, chosen: dict[str, set[bytes]]) -> tuple[int, ...]:
    """Of the combinations in which these parameters have one of these values."""
    digits = [
        [
            digit
            for digit, value in enumerate(axis.values)
            if axis.name not in chosen or value in chosen[axis.name]
        ]
        for axis in sweep.axes
    ]
    positions = []
    for combination in product(*digits):
        position = 0
        for axis, digit in zip(sweep.axes, combination, strict=True):
            position = position * len(axis.values) + digit
        positions.append(position)
    return tuple(positions)


def mentions_input(command: Iterable[str], values: Iterable[str]) -> bool:
    """Whether a command, or its environment, says where an input belongs."""
    return any(
        "{input}" in word or any(head_of(path) == "input" for path in references(word))
        for word in (*command, *values)
    )


def input_arguments(one: Any, template: Any, alone: bool) -> Any:
    """A task's arguments for one element of `inputs`: a table of parameters, or one value that
    is called `input`. `alone` does as xargs does: the value is the last word of a command that
    mentions none, and a function's only argument."""
    parameters = one if isinstance(one, dict) else {"input": one}
    if template is not None:
        return fill_value(template, parameters, Budget())
    if alone and list(parameters) == ["input"]:
        return [parameters["input"]]
    return parameters
