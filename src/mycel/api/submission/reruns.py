"""A job once more: as it stands in the journal, as a job of its own.

All of it, or what has not succeeded. Then a stage whose results another one asks for runs whole,
because the values are those of its tasks in this job; and a task keeps its own arguments, although
its number changes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import msgspec

from mycel.api.http.problems import unprocessable
from mycel.core.journal_codec import decode_specification, decode_stages
from mycel.core.model.derivation import BATCH_TASKS_MAX, Derived, Part
from mycel.core.model.jobs import Specification
from mycel.core.model.stages import Stage
from mycel.store.interface import DefinedBlock, JobDefinition

ARGUMENTS_BYTES_MAX: Final = 256 << 20
_decode_items: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


def derived_again(defined: JobDefinition, *, only_unsuccessful: bool) -> Derived:
    """Raises a 422 where nothing is left to run, or it is too much."""
    if sum(len(block.arguments) for block in defined.blocks) > ARGUMENTS_BYTES_MAX:
        raise unprocessable(
            f"its arguments are more than {ARGUMENTS_BYTES_MAX >> 20} MiB: submit it again"
        )
    stages = decode_stages(defined.opened.stages)
    groups = _groups(defined)
    if not only_unsuccessful:
        parts = [Part(one.group, one.count, one.arguments) for one in defined.blocks]
        return Derived(stages, tuple(groups), tuple(parts))
    whole = _whole_stages(stages, groups, defined)
    plain = [(_without_sweep(specification), stage) for specification, stage in groups]
    found: list[Part] = []
    for block in defined.blocks:
        specification, stage = groups[block.group]
        chosen = range(block.first, block.first + block.count)
        found += _parts(
            block, specification, [*chosen] if stage in whole else list(block.unsuccessful)
        )
    if not found:
        raise unprocessable("all of its tasks have succeeded: there is nothing to run again")
    return Derived(stages, tuple(plain), tuple(found))


def _groups(defined: JobDefinition) -> list[tuple[Specification, int]]:
    first = decode_specification(defined.opened.specification)
    added = sorted(defined.groups, key=lambda one: one.group)
    every = [(first, 0), *((decode_specification(one.specification), one.stage) for one in added)]
    passed = time.time() - defined.opened.created_at
    return [(_later(specification, passed), stage) for specification, stage in every]


def _later(specification: Specification, seconds: float) -> Specification:
    """A deadline is as far away as it was."""
    if specification.deadline_at is None:
        return specification
    deadline = specification.deadline_at + max(0.0, seconds)
    return msgspec.structs.replace(specification, deadline_at=deadline)


def _without_sweep(specification: Specification) -> Specification:
    return msgspec.structs.replace(specification, sweep=None)


def _whole_stages(
    stages: tuple[Stage, ...], groups: list[tuple[Specification, int]], defined: JobDefinition
) -> set[int]:
    """Those for whose results one that runs again asks."""
    running = {groups[block.group][1] for block in defined.blocks if block.unsuccessful}
    whole: set[int] = set()
    waiting = list(running) if stages else []
    while waiting:
        for place in stages[waiting.pop()].wants:
            if place not in whole:
                whole.add(place)
                waiting.append(place)
    return whole


def _parts(block: DefinedBlock, specification: Specification, chosen: list[int]) -> Iterator[Part]:
    sweep = specification.sweep
    items = _decode_items(block.arguments) if block.arguments and chosen else None
    for begin in range(0, len(chosen), BATCH_TASKS_MAX):
        some = chosen[begin : begin + BATCH_TASKS_MAX]
        arguments: list[bytes] = []
        if sweep is not None:
            arguments = [sweep.arguments(index) for index in some]
        elif items is not None:
            arguments = [bytes(items[index - block.first]) for index in some]
        encoded = b"[" + b",".join(arguments) + b"]" if arguments else b""
        yield Part(block.group, len(some), encoded)
