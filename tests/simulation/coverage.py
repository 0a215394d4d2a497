"""Which rows of the transition tables a run has visited."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mycel.core.scheduler.trust.breaker import BREAKER
from mycel.core.states import ATTEMPT, GRANT, LEASE, STAGE, TASK, WORKER, Table

TABLES: tuple[Table[Any, Any], ...] = (TASK, ATTEMPT, LEASE, GRANT, STAGE, WORKER, BREAKER)


Row = tuple[str, str, str]

LEFT_OUT: dict[Row, str] = {
    ("attempt", "running", "start"): (
        "a worker tells of a start once for each link, and a new link's list comes first; a "
        "second telling must do no harm all the same"
    ),
    ("worker", "suspect", "register"): (
        "the simulated network tells of a link's end before the next one begins; the real one "
        "may tell of it later"
    ),
}
"""Rows that no seed visits, and why."""


class Coverage:
    def __init__(self) -> None:
        self.visited: set[Row] = set()

    @property
    def rows(self) -> set[Row]:
        return {(table.subject, *key) for table in TABLES for key in table}

    @property
    def missed(self) -> list[Row]:
        return sorted(self.rows - self.visited)

    @property
    def unexplained(self) -> list[Row]:
        return [row for row in self.missed if row not in LEFT_OUT]

    @property
    def share(self) -> float:
        return len(self.visited & self.rows) / len(self.rows)

    def __str__(self) -> str:
        lines = [f"transition tables: {self.share:.0%} of {len(self.rows)} rows visited"]
        for row in self.missed:
            subject, state, step = row
            why = f" ({LEFT_OUT[row]})" if row in LEFT_OUT else ""
            lines.append(f"  not visited: a {subject} that is {state}: {step}{why}")
        return "\n".join(lines)


@contextmanager
def recorded() -> Iterator[Coverage]:
    """Notes every look-up in the tables."""
    coverage = Coverage()

    def look_up(self: Table[Any, Any], key: tuple[Any, Any]) -> Any:
        coverage.visited.add((self.subject, str(key[0]), str(key[1])))
        return dict.__getitem__(self, key) if key in self else self.__missing__(key)

    Table.__getitem__ = look_up  # type: ignore[method-assign, assignment]
    try:
        yield coverage
    finally:
        del Table.__getitem__
