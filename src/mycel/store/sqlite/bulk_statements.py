"""Statements that take many rows at once.

`executemany` lets go of the interpreter's lock for each row and waits to have it again, which
under load takes longer than the row: the loop's thread holds it. Here up to 256 rows share one
step. A statement is prepared for a few sizes only, so that they all stay in SQLite's cache.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

Row = tuple[Any, ...]

SIZES: Final = (256, 64, 16, 8, 4, 2, 1)


class ManyRows:
    """`text` finds the rows as the table `given`, whose columns are `a1`, `a2`, …

    It must not read the table that it writes, or only where the rows of one call cannot matter
    to each other: they are looked at before the first of them is written.
    """

    def __init__(self, text: str, columns: int, *, single: str = "") -> None:
        """`single` does the same for one row, where that is quicker; its values are `?1`, …"""
        names = ", ".join(f"a{number}" for number in range(1, columns + 1))
        row = f"({', '.join('?' * columns)})"
        self._texts = {
            size: f"WITH given ({names}) AS (VALUES {', '.join([row] * size)}) {text}"
            for size in SIZES
        }
        if single:
            self._texts[1] = single
        self._single = self._texts[1]

    def run(self, connection: sqlite3.Connection, rows: Sequence[Row]) -> int:
        """How many rows it has changed."""
        before = connection.total_changes
        if len(rows) == 1:  # a lone task's: the loop below would take as long as the statement
            connection.execute(self._single, rows[0])
            return connection.total_changes - before
        done = 0
        for size, text in self._texts.items():
            while len(rows) - done >= size:
                connection.execute(text, tuple(chain.from_iterable(rows[done : done + size])))
                done += size
        return connection.total_changes - before
