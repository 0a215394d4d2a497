"""The transition tables, row by row: a row that is added, changed or lost fails here.

<state> <step> <next state>
"""

from __future__ import annotations

from typing import Any

import pytest

from mycel.core.states import ATTEMPT, GRANT, LEASE, STAGE, TASK, WORKER, Table

ROWS = {
    "task": """
        queued assign leased
        queued adopt leased
        queued fail failed
        queued cancel cancelled
        leased start running
        leased give_back queued
        leased retry queued
        leased succeed succeeded
        leased fail failed
        leased cancel cancelled
        running retry queued
        running succeed succeeded
        running fail failed
        running cancel cancelled
    """,
    "attempt": """
        assigned start running
        assigned succeed succeeded
        assigned fail failed
        assigned time_out timed_out
        assigned lose lost
        assigned cancel cancelled
        assigned return returned
        running start running
        running succeed succeeded
        running fail failed
        running time_out timed_out
        running lose lost
        running cancel cancelled
    """,
    "lease": """
        restored confirm held
        restored replace over
        restored expire over
        restored end over
        held confirm held
        held replace over
        held renew held
        held expire over
        held end over
    """,
    "grant": """
        granted renew granted
        granted expire over
        granted end over
    """,
    "worker": """
        expected register healthy
        expected die dead
        called register healthy
        called die dead
        healthy register healthy
        healthy miss suspect
        healthy lose_link away
        healthy part parted
        suspect register healthy
        suspect miss suspect
        suspect hear healthy
        suspect lose_link away
        suspect die dead
        away register healthy
        away die dead
    """,
    "stage": """
        waiting start started
        waiting skip skipped
        started end ended
    """,
}


@pytest.mark.parametrize(
    "table", [TASK, ATTEMPT, LEASE, GRANT, WORKER, STAGE], ids=lambda one: one.subject
)
def test_a_table_has_these_rows_and_no_others(table: Table[Any, Any]) -> None:
    rows = [f"{state} {step} {table[state, step]}" for state, step in table]
    expected = [line.strip() for line in ROWS[table.subject].strip().splitlines()]
    assert sorted(rows) == sorted(expected)
