"""Which rows of the transition tables a run has visited."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mycel.core.states import ATTEMPT, GRANT, LEASE, STAGE, TASK, WORKER, Table

TABLES: tuple[Table[Any, Any], ...] = (TASK, ATTEMPT, LEASE, GRANT, STAGE, WORKER)


class Coverage:
    def __init__(self) -> None:
        self.visited: set[tuple[str, str, str]] = set()

    @property
    def rows(self) -> set[tuple[str, str, str]]:
        return {(table.subject, *key) for table in TABLES for key in table}

    @property
    def missed(self) -> list[tuple[str, str, str]]:
        return sorted(self.rows - self.visited)

    @property
    def share(self) -> float:
        return len(self.visited & self.rows) / len(self.rows)

    def __str__(self) -> str:
        lines = [f"transition tables: {self.share:.0%} of {len(self.rows)} rows visited"]
        lines += [f"  not visited: a {s} that is {state}: {step}" for s, state, step in self.missed]
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
