"""Flux's job specs (RFC 14, RFC 25) with constraints (RFC 31).

The limits are those of Fluxion's parser, and those of RFC 14 where it is silent. A task's
`slot` need not name a slot: Fluxion does not ask for it, and its own examples rely on that.
"""

from __future__ import annotations

import math
from typing import Any, Final

from mycel.core.federation.request.constraints import EVERYWHERE, Constraint, parse_constraint
from mycel.core.federation.request.counts import Count
from mycel.core.federation.request.request_tree import JobRequest

from .documents import Document, Keys
from .request_reader import RequestReader, read_count

DIALECT: Final = "flux"
VERSION_MAX: Final = 9999
_TOP: Final = frozenset(("version", "resources", "tasks", "attributes"))
_TASK: Final = frozenset(("command", "slot", "count", "distribution", "attributes"))
_ATTRIBUTES: Final = frozenset(("user", "system"))


def read_flux(document: Document) -> JobRequest:
    """Raises SpecError."""
    return _Reader(document).job()


class _Requests(RequestReader):
    known = frozenset(("type", "count", "unit", "exclusive", "with", "label", "id"))
    needed = ("type", "count")

    def count(self, table: dict[str, Any], path: Keys) -> Count:
        return read_count(self.document, table["count"], (*path, "count"))

    def label(self, table: dict[str, Any], path: Keys) -> str:
        return self.document.printable(table.get("label", ""), (*path, "label"))


class _Reader:
    def __init__(self, document: Document) -> None:
        self._document = document

    def job(self) -> JobRequest:
        document = self._document
        top = document.table(document.value, (), _TOP)
        for key in ("version", "resources", "tasks", "attributes"):
            if key not in top:
                raise document.wrong((), f"the key {key!r} is missing")
        version = document.integer(top["version"], ("version",))
        if version > VERSION_MAX:
            raise document.wrong(("version",), f"versions 1 to {VERSION_MAX} are known")
        system, attributes = self._attributes(top["attributes"])
        resources = _Requests(document).requests(top["resources"], ("resources",), 1)
        return JobRequest(
            resources=resources,
            duration_seconds=self._duration(system),
            constraint=self._constraint(system),
            tasks=self._tasks(top["tasks"]),
            attributes=attributes,
            dialect=DIALECT,
            original=document.text,
        )

    def _attributes(self, value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        if value is None:
            return {}, {}
        document = self._document
        attributes = document.table(value, ("attributes",), _ATTRIBUTES)
        system = attributes.get("system")
        if system is None:
            return {}, attributes
        path = ("attributes", "system")
        if not isinstance(system, dict):
            raise document.wrong(path, "must be a mapping")
        environment = system.get("environment")
        if environment is not None and not isinstance(environment, dict):
            raise document.wrong((*path, "environment"), "must be a mapping")
        for key in ("queue", "cwd"):
            if key in system:
                document.string(system[key], (*path, key))
        return system, attributes

    def _duration(self, system: dict[str, Any]) -> int:
        """Rounded up: a job never gets less than it asked for."""
        if "duration" not in system:
            return 0
        path = ("attributes", "system", "duration")
        return math.ceil(self._document.seconds(system["duration"], path))

    def _constraint(self, system: dict[str, Any]) -> Constraint:
        if "constraints" not in system:
            return EVERYWHERE
        place = self._document.place(("attributes", "system", "constraints"))
        return parse_constraint(system["constraints"], place)

    def _tasks(self, value: Any) -> tuple[tuple[str, ...], ...]:
        tasks = self._document.sequence(value, ("tasks",))
        return tuple(self._task(one, ("tasks", str(n))) for n, one in enumerate(tasks))

    def _task(self, value: Any, path: Keys) -> tuple[str, ...]:
        document = self._document
        table = document.table(value, path, _TASK)
        for key in ("command", "slot", "count"):
            if key not in table:
                raise document.wrong(path, f"the key {key!r} is missing")
        words = table["command"]
        if not isinstance(words, list):
            raise document.wrong((*path, "command"), "must be a list of words")
        command = tuple(
            document.string(word, (*path, "command", str(n))) for n, word in enumerate(words)
        )
        document.string(table["slot"], (*path, "slot"))
        if "distribution" in table:
            document.string(table["distribution"], (*path, "distribution"))
        if not isinstance(table.get("attributes", {}), dict):
            raise document.wrong((*path, "attributes"), "must be a mapping")
        self._task_count(table["count"], (*path, "count"))
        return command

    def _task_count(self, value: Any, path: Keys) -> None:
        document = self._document
        if not isinstance(value, dict):
            raise document.wrong(path, "must be a mapping, such as 'per_slot: 1'")
        if len(value) != 1:
            raise document.wrong(path, "must have exactly one key: per_slot, total or per_resource")
        ((key, number),) = value.items()
        if key in ("per_slot", "total"):
            document.integer(number, (*path, key))
        elif key == "per_resource":
            table = document.table(number, (*path, key), frozenset(("type", "count")))
            document.string(table.get("type"), (*path, key, "type"))
            document.integer(table.get("count"), (*path, key, "count"))
