"""rainbow's job specs: `resources` is a map of names, and `requires` asks for subsystems."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from mycel.core.federation.request.counts import Count, exactly
from mycel.core.federation.request.request_tree import JobRequest, Require
from mycel.core.matching.version_ranges import is_version_range

from .documents import Document, Keys
from .request_reader import RequestReader, read_count

DIALECT: Final = "rainbow"
_TOP: Final = frozenset(
    ("version", "name", "resources", "task", "tasks", "groups", "attributes", "requires")
)
_RESOURCE: Final = frozenset(
    (
        "type",
        "count",
        "replicas",
        "with",
        "requires",
        "exclusive",
        "unit",
        "label",
        "attributes",
        "schedule",
    )
)
_REQUIRE: Final = frozenset(("name", "field", "match", "min", "max"))
_TASK: Final = frozenset(
    ("name", "command", "resources", "replicas", "count", "depends_on", "attributes", "local")
)


def read_rainbow(document: Document) -> JobRequest:
    """Raises SpecError."""
    return _Reader(document).job()


class _Requests(RequestReader):
    known = _RESOURCE

    def count(self, table: dict[str, Any], path: Keys) -> Count:
        given = [key for key in ("count", "replicas") if key in table]
        if len(given) > 1:
            raise self.document.wrong(path, "has 'count' and 'replicas'; give one")
        if not given:
            return exactly(1)
        return read_count(self.document, table[given[0]], (*path, given[0]))

    def label(self, table: dict[str, Any], path: Keys) -> str:
        return self.document.printable(table.get("label", path[-1]), (*path, "label"))

    def requires(self, table: dict[str, Any], path: Keys) -> tuple[Require, ...]:
        return _requires(self.document, table.get("requires", []), (*path, "requires"))


class _Reader:
    def __init__(self, document: Document) -> None:
        self._document = document

    def job(self) -> JobRequest:
        document = self._document
        top = document.table(document.value, (), _TOP)
        if document.integer(top.get("version"), ("version",)) != 1:
            raise document.wrong(("version",), "version 1 is known of specs with named resources")
        named = top["resources"]
        if not named:
            raise document.wrong(("resources",), "must not be empty")
        common = _requires(document, top.get("requires", []), ("requires",))
        reader = _Requests(document)
        found = [reader.request(one, ("resources", name), 1) for name, one in named.items()]
        resources = tuple(
            msgspec.structs.replace(one, requires=common + one.requires) for one in found
        )
        attributes = top.get("attributes") or {}
        if not isinstance(attributes, dict):
            raise document.wrong(("attributes",), "must be a mapping")
        return JobRequest(
            resources=resources,
            duration_seconds=self._duration(attributes),
            skips_levels=True,
            name=document.string(top.get("name", ""), ("name",)),
            tasks=self._tasks(top, frozenset(named)),
            attributes=attributes,
            dialect=DIALECT,
            original=document.text,
        )

    def _duration(self, attributes: dict[str, Any]) -> int:
        value = attributes.get("duration")
        if value is None:
            return 0
        return -int(-self._document.seconds(value, ("attributes", "duration")) // 1)

    def _tasks(self, top: dict[str, Any], named: frozenset[str]) -> tuple[tuple[str, ...], ...]:
        document = self._document
        if "task" in top and "tasks" in top:
            raise document.wrong(("task",), "stands beside 'tasks'; give one of them")
        paths: list[Keys]
        if "task" in top:
            given, paths = [top["task"]], [("task",)]
        else:
            tasks = document.sequence(top.get("tasks"), ("tasks",))
            given, paths = tasks, [("tasks", str(number)) for number in range(len(tasks))]
        found = []
        for value, path in zip(given, paths, strict=True):
            table = document.table(value, path, _TASK)
            used = table.get("resources")
            if isinstance(used, str) and used not in named:
                raise document.wrong((*path, "resources"), f"there are no resources {used!r}")
            words = table.get("command", [])
            if isinstance(words, str):
                words = [words]
            if not isinstance(words, list):
                raise document.wrong((*path, "command"), "must be a list of words")
            found.append(tuple(document.string(word, (*path, "command")) for word in words))
        return tuple(found)


def _requires(document: Document, value: Any, path: Keys) -> tuple[Require, ...]:
    if not isinstance(value, list):
        raise document.wrong(path, "must be a list")
    return tuple(_require(document, one, (*path, str(n))) for n, one in enumerate(value))


def _require(document: Document, value: Any, path: Keys) -> Require:
    table = document.table(value, path, _REQUIRE)
    if "name" not in table:
        raise document.wrong(path, "the key 'name' (of a subsystem) is missing")
    texts = {key: document.string(one, (*path, key)) for key, one in table.items()}
    bounds = [f"{sign}{texts[key]}" for key, sign in (("min", ">="), ("max", "<=")) if key in texts]
    if bounds and "match" in texts:
        raise document.wrong(path, "has 'match' beside 'min' or 'max'; give one of them")
    for bound in bounds:
        if not is_version_range(bound):
            raise document.wrong(path, f"{bound[2:]!r} is no version")
    field = texts.get("field", "version" if bounds else "type")
    return Require(texts["name"], field, texts.get("match", ""), ",".join(bounds))
