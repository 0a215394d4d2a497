"""Derivation is what a brute-force expansion says, every time; and graphs have an order."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mycel.core.errors import Unprocessable
from mycel.core.identifiers import JobId, JobNumber
from mycel.core.model.derivation import (
    BATCH_TASKS_MAX,
    JOB_TASKS_MAX,
    Derived,
    Override,
    StagePlan,
    derive,
    positions_where,
)
from mycel.core.model.jobs import Group, Job, Specification
from mycel.core.model.resources import Requirements
from mycel.core.model.stages import find_cycle, runs_of
from mycel.core.model.sweeps import Axis, Sweep
from mycel.core.model.work import Work

scalars = st.one_of(st.integers(-9, 9), st.text("ab${}", max_size=3), st.booleans(), st.none())
axes = st.dictionaries(
    st.text("abc", min_size=1, max_size=2), st.lists(scalars, min_size=1, max_size=4), max_size=3
)


def specification(number: int = 0, sweep: Sweep | None = None) -> Specification:
    return Specification(Work("process", ("true",)), Requirements(), number, sweep=sweep)


def sweep_over(matrix: dict[str, list[Any]]) -> Sweep:
    encode = msgspec.json.encode
    return Sweep(tuple(Axis(n, tuple(encode(v) for v in values)) for n, values in matrix.items()))


def job_of(derived: Derived) -> Job:
    """As a scheduler takes it in."""
    groups = tuple(Group.of(one, "owner", stage) for one, stage in derived.groups)
    job = Job(JobNumber(1), JobId("0" * 26), "", "owner", groups, 0.0)
    job.stages = runs_of(derived.stages)
    for batch, part in enumerate(derived.parts):
        job.append(part.group, batch, part.count, part.arguments, 1)
    return job


def tasks_of(job: Job) -> list[tuple[int, int, Any]]:
    """For each task its stage, its priority (which names its specification) and arguments."""
    found = []
    for index in range(job.count):
        block = job.block_of(index)
        assert block is not None
        argument = block.argument(index)
        decoded = msgspec.json.decode(argument) if argument else None
        found.append((block.group.stage, block.group.specification.priority, decoded))
    return found


@st.composite
def stage_plans(draw: st.DrawFn, place: int) -> tuple[StagePlan, list[tuple[int, int, Any]]]:
    """A plan, and what a brute-force expansion makes of it."""
    base = place * 100
    kind = draw(st.sampled_from(("count", "arguments", "matrix")))
    arguments, sweep = b"", None
    parameters: list[Any] = []
    if kind == "count":
        parameters = [None] * draw(st.integers(0, 30))
    elif kind == "arguments":
        parameters = draw(st.lists(st.lists(scalars, max_size=2), min_size=1, max_size=12))
        arguments = msgspec.json.encode(parameters)
    else:
        matrix = draw(axes)
        sweep = sweep_over(matrix)
        parameters = [
            dict(zip(matrix, values, strict=True)) for values in itertools.product(*matrix.values())
        ]
    overrides, priorities = [], [base] * len(parameters)
    for number in range(draw(st.integers(0, 3)) if parameters else 0):
        places = st.sets(st.integers(0, len(parameters) - 1), max_size=5)
        chosen = tuple(sorted(draw(places)))
        overrides.append(Override(chosen, specification(base + number + 1, sweep)))
        for position in chosen:
            priorities[position] = base + number + 1
    plan = StagePlan(specification(base, sweep), len(parameters), arguments, tuple(overrides))
    expected = [
        (place, priority, one) for priority, one in zip(priorities, parameters, strict=True)
    ]
    return plan, expected


@given(st.data())
def test_derivation_equals_a_brute_force_expansion(data: st.DataObject) -> None:
    drawn = [data.draw(stage_plans(place)) for place in range(data.draw(st.integers(1, 4)))]
    plans = tuple(plan for plan, _ in drawn)
    derived = derive((), plans)
    assert tasks_of(job_of(derived)) == [task for _, tasks in drawn for task in tasks]
    assert derive((), plans) == derived
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(derived), type=Derived) == derived
    # A group is never split in two, and each stage has one even without tasks.
    assert len(set(derived.groups)) == len(derived.groups)
    assert {stage for _, stage in derived.groups} == set(range(len(plans)))


@given(axes, st.data())
def test_where_finds_what_a_search_finds(matrix: dict[str, list[Any]], data: st.DataObject) -> None:
    sweep = sweep_over(matrix)
    chosen = {
        name: {msgspec.json.encode(data.draw(st.sampled_from(values)))}
        for name, values in matrix.items()
        if data.draw(st.booleans())
    }
    found = [
        position
        for position in range(sweep.count)
        if all(dict(sweep.parameters(position))[name] in chosen[name] for name in chosen)
    ]
    assert list(positions_where(sweep, chosen)) == found


@given(st.lists(st.sets(st.integers(0, 7), max_size=4), min_size=8, max_size=8))
def test_a_cycle_is_found_if_there_is_one(needs: list[set[int]]) -> None:
    ordered = [sorted(one) for one in needs]
    reachable = [set(one) for one in needs]
    for _ in needs:
        for one in reachable:
            one |= set().union(*(reachable[other] for other in one))
    cycle = find_cycle(ordered)
    assert (cycle is not None) == any(place in one for place, one in enumerate(reachable))
    if cycle is not None:
        assert cycle[0] == cycle[-1]
        assert all(after in needs[before] for before, after in itertools.pairwise(cycle))


def test_a_million_combinations_are_arithmetic() -> None:
    values = tuple(b"%d" % value for value in range(100))
    sweep = Sweep((Axis("x", values), Axis("y", values), Axis("z", values)))
    derived = derive((), (StagePlan(specification(0, sweep), sweep.count),))
    assert len(derived.parts) == JOB_TASKS_MAX // BATCH_TASKS_MAX
    assert len(msgspec.msgpack.encode(derived)) < 10_000
    job = job_of(derived)
    block = job.block_of(123_456)
    assert block is not None
    assert msgspec.json.decode(block.argument(123_456)) == {"x": 12, "y": 34, "z": 56}


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (StagePlan(specification(), JOB_TASKS_MAX + 1), "1,000,001"),
        (StagePlan(specification(), 3, overrides=(Override((3,), specification(1)),)), "task 3"),
        (
            StagePlan(
                specification(),
                5000,
                overrides=(Override((*range(0, 4000, 2),), specification(1)),),
            ),
            "stretches",
        ),
    ],
)
def test_what_is_too_much_is_refused_with_the_number(plan: StagePlan, said: str) -> None:
    with pytest.raises(Unprocessable, match=said):
        derive((), (plan,))
