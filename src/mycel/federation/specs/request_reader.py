"""What requests for resources look like in Flux's and in rainbow's format alike."""

from __future__ import annotations

from typing import Any, Final

from mycel.core.federation.request import counts
from mycel.core.federation.request.counts import Count
from mycel.core.federation.request.request_tree import (
    DEPTH_MAX,
    REQUESTS_MAX,
    SLOT,
    Request,
    Require,
)

from .documents import Document, Keys

_COUNT: Final = frozenset(("min", "max", "operator", "operand"))


class RequestReader:
    """Reads one tree. A format says which keys it has, and what is different in it."""

    known: frozenset[str]
    needed: tuple[str, ...] = ("type",)

    def __init__(self, document: Document) -> None:
        self.document = document
        self._requests = 0

    def count(self, table: dict[str, Any], path: Keys) -> Count:
        raise NotImplementedError

    def label(self, table: dict[str, Any], path: Keys) -> str:
        raise NotImplementedError

    def requires(self, table: dict[str, Any], path: Keys) -> tuple[Require, ...]:
        return ()

    def requests(self, value: Any, path: Keys, depth: int) -> tuple[Request, ...]:
        if depth > DEPTH_MAX:
            raise self.document.wrong(path, f"is nested more than {DEPTH_MAX} deep")
        listed = self.document.sequence(value, path)
        return tuple(
            self.request(one, (*path, str(number)), depth) for number, one in enumerate(listed)
        )

    def request(self, value: Any, path: Keys, depth: int) -> Request:
        document = self.document
        self._requests += 1
        if self._requests > REQUESTS_MAX:
            raise document.wrong(path, f"a job has at most {REQUESTS_MAX} requests")
        table = document.table(value, path, self.known)
        for key in self.needed:
            if key not in table:
                raise document.wrong(path, f"the key {key!r} is missing")
        type_ = document.printable(table["type"], (*path, "type"))
        if not type_:
            raise document.wrong((*path, "type"), "must not be empty")
        exclusive = None
        if "exclusive" in table:
            exclusive = document.boolean(table["exclusive"], (*path, "exclusive"))
        contents: tuple[Request, ...] = ()
        if "with" in table:
            contents = self.requests(table["with"], (*path, "with"), depth + 1)
        label = self.label(table, path)
        if type_ == SLOT and not label:
            raise document.wrong(path, "a slot needs a label")
        if type_ == SLOT and not contents:
            raise document.wrong(path, "a slot needs contents ('with')")
        return Request(
            type_,
            self.count(table, path),
            contents,
            exclusive,
            label,
            document.printable(table.get("unit", ""), (*path, "unit")),
            document.printable(table.get("id", ""), (*path, "id")),
            self.requires(table, path),
        )


def read_count(document: Document, value: Any, path: Keys) -> Count:
    """One number, a range in a text, or a mapping with min, max, operator and operand."""
    place = document.place(path)
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 1:
            raise document.wrong(path, f"is {value}, but a job must ask for at least 1")
        return counts.ranged(value, value, place=place)
    if isinstance(value, str):
        return counts.parse_count(value, place)
    if not isinstance(value, dict):
        raise document.wrong(path, "must be a number, a range or a mapping with 'min'")
    table = document.table(value, path, _COUNT)
    if "min" not in table:
        raise document.wrong(path, "the key 'min' is missing")
    minimum = document.integer(table["min"], (*path, "min"))
    rest = [key for key in ("max", "operator", "operand") if key in table]
    if not rest:
        return counts.ranged(minimum, counts.UNLIMITED, place=place)
    if len(rest) < 3:
        raise document.wrong(path, "give all of 'max', 'operator' and 'operand', or none")
    maximum = document.integer(table["max"], (*path, "max"))
    operator = document.string(table["operator"], (*path, "operator"))
    operand = document.integer(table["operand"], (*path, "operand"), least=0)
    return counts.ranged(minimum, maximum, operator, operand, place=place)
