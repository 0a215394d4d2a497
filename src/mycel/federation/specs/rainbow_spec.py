"""rainbow's job specs: `resources` is a map of names, and `requires` asks for subsystems."""

from __future__ import annotations

from typing import Any, Final

from mycel.core.federation.request.counts import Count, exactly
from mycel.core.federation.request.request_tree import (
    DEPTH_MAX,
    REQUESTS_MAX,
    SLOT,
    JobRequest,
    Request,
    Require,
)
from mycel.core.matching.version_ranges import is_version_range

from .documents import Document, Keys
from .flux_spec import read_count

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


class _Reader:
    def __init__(self, document: Document) -> None:
        self._document = document
        self._requests = 0

    def job(self) -> JobRequest:
        document = self._document
        top = document.table(document.value, (), _TOP)
        if document.integer(top.get("version"), ("version",)) != 1:
            raise document.wrong(("version",), "version 1 is known of specs with named resources")
        named = top["resources"]
        if not named:
            raise document.wrong(("resources",), "must not be empty")
        common = self._requires(top.get("requires", []), ("requires",))
        resources = tuple(
            self._resource(value, ("resources", name), 1, common) for name, value in named.items()
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

    def _resource(self, value: Any, path: Keys, depth: int, common: tuple[Require, ...]) -> Request:
        document = self._document
        self._requests += 1
        if self._requests > REQUESTS_MAX or depth > DEPTH_MAX:
            raise document.wrong(path, "has too many requests, or nests them too deep")
        table = document.table(value, path, _RESOURCE)
        if "type" not in table:
            raise document.wrong(path, "the key 'type' is missing")
        type_ = document.string(table["type"], (*path, "type"))
        if not type_:
            raise document.wrong((*path, "type"), "must not be empty")
        contents: tuple[Request, ...] = ()
        if "with" in table:
            below = document.sequence(table["with"], (*path, "with"))
            contents = tuple(
                self._resource(one, (*path, "with", str(number)), depth + 1, ())
                for number, one in enumerate(below)
            )
        if type_ == SLOT and not contents:
            raise document.wrong(path, "a slot needs contents ('with')")
        exclusive = table.get("exclusive")
        return Request(
            type_,
            self._count(table, path),
            contents,
            None if exclusive is None else document.boolean(exclusive, (*path, "exclusive")),
            document.string(table.get("label", path[-1]), (*path, "label")),
            document.string(table.get("unit", ""), (*path, "unit")),
            requires=common + self._requires(table.get("requires", []), (*path, "requires")),
        )

    def _count(self, table: dict[str, Any], path: Keys) -> Count:
        given = [key for key in ("count", "replicas") if key in table]
        if len(given) > 1:
            raise self._document.wrong(path, "has 'count' and 'replicas'; give one")
        if not given:
            return exactly(1)
        return read_count(self._document, table[given[0]], (*path, given[0]))

    def _requires(self, value: Any, path: Keys) -> tuple[Require, ...]:
        if not isinstance(value, list):
            raise self._document.wrong(path, "must be a list")
        return tuple(self._require(one, (*path, str(n))) for n, one in enumerate(value))

    def _require(self, value: Any, path: Keys) -> Require:
        document = self._document
        table = document.table(value, path, _REQUIRE)
        if "name" not in table:
            raise document.wrong(path, "the key 'name' (of a subsystem) is missing")
        texts = {key: document.string(one, (*path, key)) for key, one in table.items()}
        bounds = [
            f"{sign}{texts[key]}" for key, sign in (("min", ">="), ("max", "<=")) if key in texts
        ]
        if bounds and "match" in texts:
            raise document.wrong(path, "has 'match' beside 'min' or 'max'; give one of them")
        for bound in bounds:
            if not is_version_range(bound):
                raise document.wrong(path, f"{bound[2:]!r} is no version")
        field = texts.get("field", "version" if bounds else "type")
        return Require(texts["name"], field, texts.get("match", ""), ",".join(bounds))

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
