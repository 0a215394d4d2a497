"""The transition tables are the specification."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import pytest

from mycel.core.errors import WrongStep
from mycel.core.states import (
    ATTEMPT,
    GRANT,
    LEASE,
    TASK,
    TERMINAL,
    WORKER,
    AttemptState,
    AttemptStep,
    GrantState,
    GrantStep,
    LeaseState,
    LeaseStep,
    Table,
    TaskState,
    TaskStep,
    WorkerState,
    WorkerStep,
)

KINDS: list[tuple[Table[Any, Any], type[StrEnum], type[StrEnum]]] = [
    (TASK, TaskState, TaskStep),
    (ATTEMPT, AttemptState, AttemptStep),
    (LEASE, LeaseState, LeaseStep),
    (GRANT, GrantState, GrantStep),
    (WORKER, WorkerState, WorkerStep),
]
PAIRS = [
    (table, state, step) for table, states, steps in KINDS for state in states for step in steps
]


@pytest.mark.parametrize(("table", "state", "step"), PAIRS, ids=str)
def test_only_what_a_table_lists_can_happen(table: Any, state: StrEnum, step: StrEnum) -> None:
    if (state, step) in table:
        assert table[state, step] in type(state)
    else:
        with pytest.raises(WrongStep, match=f"{state} cannot {step}"):
            table[state, step]


def test_nothing_leads_out_of_a_terminal_state() -> None:
    assert not [key for key in TASK if key[0] in TERMINAL]
    ended = {LeaseState.OVER, GrantState.OVER, WorkerState.DEAD, AttemptState.RETURNED}
    for table in (LEASE, GRANT, WORKER, ATTEMPT):
        assert not [key for key in table if key[0] in ended]


@pytest.mark.parametrize(("table", "states", "steps"), KINDS, ids=lambda one: str(one)[:20])
def test_every_step_is_used(
    table: Table[Any, Any], states: type[StrEnum], steps: type[StrEnum]
) -> None:
    assert {step for _, step in table} == set(steps)
