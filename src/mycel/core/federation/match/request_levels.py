"""A request tree, made ready for matching.

A `Level` is what is asked for side by side: the contents of one request. Levels have numbers,
so that an answer can be kept for (kind, level).

Two requests of one type side by side, or a slot beside anything else, cannot be matched: a
vertex would have to be given to one of them by a search. Fluxion refuses them, and so do we.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from mycel.core.federation.request.request_tree import SLOT, JobRequest, Request, least_needs, walk

EXTENSION_TYPES: Final = frozenset(("or_slot", "xor_slot", "non_exclusive_slot"))


class Wanted(msgspec.Struct, frozen=True, eq=False):
    """One request, with the level of its contents."""

    request: Request
    contents: Level
    needs: tuple[tuple[str, int], ...]
    """What must lie below a vertex that serves it."""


class Level(msgspec.Struct, frozen=True, eq=False):
    number: int
    by_type: Mapping[str, Wanted]
    slot: Wanted | None
    """If there is one, it stands alone."""
    types: frozenset[str]
    """What candidates are counted by: the types, or `slot`."""

    @property
    def wanted(self) -> tuple[Wanted, ...]:
        return (self.slot,) if self.slot is not None else tuple(self.by_type.values())


class Compiled(msgspec.Struct, frozen=True, eq=False):
    job: JobRequest
    top: Level
    needs: Mapping[str, int]
    together: Mapping[str, int]
    """What must lie right below one vertex, somewhere; empty if levels may be skipped."""
    levels: int
    impossible: str = ""
    """What no graph can satisfy; empty if there is nothing of the kind."""


def compile_job(job: JobRequest) -> Compiled:
    compiler = _Compiler()
    top = compiler.level(job.resources, False)
    needs = least_needs(job.resources)
    together = {} if job.skips_levels else _together(job.resources)
    return Compiled(job, top, needs, together, compiler.levels, compiler.impossible)


def _together(requests: tuple[Request, ...]) -> dict[str, int]:
    """Contents lie in one vertex, whichever it is."""
    found: dict[str, int] = {}
    for request in walk(requests):
        for content in request.contents:
            if content.type != SLOT:
                found[content.type] = max(found.get(content.type, 0), content.count.minimum)
    return found


class _Compiler:
    def __init__(self) -> None:
        self.levels = 0
        self.impossible = ""

    def level(self, requests: tuple[Request, ...], in_exclusive: bool) -> Level:
        number = self.levels
        self.levels += 1
        by_type: dict[str, Wanted] = {}
        slot: Wanted | None = None
        for request in requests:
            self._check(request, in_exclusive)
            inside = in_exclusive or request.type == SLOT or request.exclusive is True
            needs = tuple(sorted(least_needs(request.contents).items()))
            wanted = Wanted(request, self.level(request.contents, inside), needs)
            if request.type == SLOT:
                if len(requests) > 1:
                    self._refuse("a slot beside other requests cannot be matched; put it alone")
                slot = wanted
            elif request.type in by_type:
                self._refuse(f"{request.type!r} is requested twice side by side")
            else:
                by_type[request.type] = wanted
        types = frozenset((SLOT,)) if slot is not None else frozenset(by_type)
        return Level(number, by_type, slot, types)

    def _check(self, request: Request, in_exclusive: bool) -> None:
        if request.type in EXTENSION_TYPES:
            self._refuse(f"{request.type!r} is an extension of Fluxion's that is not supported")
        if request.type == SLOT and not request.contents:
            self._refuse("a slot must contain something")
        if in_exclusive and request.exclusive is False and request.type != SLOT:
            self._refuse(f"{request.type!r} is to be shared inside of something exclusive")

    def _refuse(self, problem: str) -> None:
        self.impossible = self.impossible or problem
