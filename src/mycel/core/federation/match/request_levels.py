"""A request tree, made ready for matching.

A `Level` is what is asked for side by side: the contents of one request. Levels have numbers,
so that an answer can be kept for (kind, level).

    one request of a type       every vertex of the type that serves it is a candidate
    several of one type         a `Family`: a candidate carries which of them it can serve, and
                                is given to one of them in the end
    one slot                    its contents are a level of their own
    several slots               alternatives: one level has the contents of all of them, and each
                                slot that is built is of one of them

A slot beside anything but slots cannot be matched: Fluxion refuses it, and so do we.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from mycel.core.federation.request.alternatives import VARIANTS_MAX, variants
from mycel.core.federation.request.counts import Count
from mycel.core.federation.request.request_tree import SLOT, JobRequest, Request, least_needs, walk

NON_EXCLUSIVE_SLOT: Final = "non_exclusive_slot"
SIBLINGS_MAX: Final = 32
"""Requests of one type, or slots, side by side."""


class Wanted(msgspec.Struct, frozen=True, eq=False):
    """One request, with the level of its contents."""

    request: Request
    contents: Level
    needs: tuple[tuple[tuple[str, int], ...], ...]
    """What must lie below a vertex that serves it; if there are several, any of them."""


class Family(msgspec.Struct, frozen=True, eq=False):
    """Requests of one type, side by side."""

    type: str
    members: tuple[Wanted, ...]
    alone: tuple[Level, ...]
    """Each of them as if it had no siblings."""


class Part(msgspec.Struct, frozen=True):
    """What one slot takes of a type."""

    type: str
    member: int
    """In the type's family; 0 if there is none."""
    count: Count


Recipe = tuple[Part, ...]


class Level(msgspec.Struct, frozen=True, eq=False):
    number: int
    by_type: Mapping[str, Wanted]
    """Types that are requested once."""
    families: Mapping[str, Family]
    """Types that are requested several times."""
    slot: Wanted | None
    """If there are slots, nothing stands beside them."""
    recipes: tuple[Recipe, ...]
    """If it is the contents of slots: what each of them takes."""
    types: frozenset[str]
    """What candidates are counted by: the types of `by_type`, or `slot`."""
    wanted: tuple[Wanted, ...]
    """The requests of those types."""

    @property
    def asked(self) -> frozenset[str]:
        return self.types.union(self.families)

    def anchors(self, child_types: frozenset[str] | set[str]) -> bool:
        """Whether slots of these contents can be built of children of these types."""
        if len(self.recipes) == 1:
            return self.types <= child_types and self.families.keys() <= child_types
        return any(all(part.type in child_types for part in one) for one in self.recipes)


class Compiled(msgspec.Struct, frozen=True, eq=False):
    job: JobRequest
    top: Level
    needs: Mapping[str, int]
    together: Mapping[str, int]
    """What must lie right below one vertex, somewhere; empty if levels may be skipped."""
    levels: int
    impossible: str = ""
    """What no graph can satisfy; empty if there is nothing of the kind."""


def compile_variants(job: JobRequest) -> tuple[Compiled, ...]:
    """One for each choice that an `xor_slot` leaves open, in order; mostly there is only one."""
    found = variants(job)
    if not found:
        compiled = compile_job(msgspec.structs.replace(job, resources=()))
        problem = f"its xor_slots can be chosen in more than {VARIANTS_MAX} ways"
        return (msgspec.structs.replace(compiled, impossible=problem),)
    return tuple(compile_job(one) for one in found)


def compile_job(job: JobRequest) -> Compiled:
    compiler = _Compiler(job.skips_levels)
    top = compiler.level(job.resources, False)
    needs = least_needs(job.resources)
    together = {} if job.skips_levels else _together(job.resources)
    return Compiled(job, top, needs, together, compiler.levels, compiler.impossible)


def _together(requests: tuple[Request, ...]) -> dict[str, int]:
    """Contents lie in one vertex, whichever it is. Of alternatives it says nothing."""
    found: dict[str, int] = {}
    for request in walk(requests):
        if sum(one.type == SLOT for one in request.contents) > 1:
            return {}
        inside: dict[str, int] = {}
        for content in request.contents:
            if content.type != SLOT:
                inside[content.type] = inside.get(content.type, 0) + content.count.minimum
        for name, amount in inside.items():
            found[name] = max(found.get(name, 0), amount)
    return found


class _Compiler:
    def __init__(self, skips_levels: bool) -> None:
        self.levels = 0
        self.impossible = ""
        self._skips = skips_levels

    def level(self, requests: tuple[Request, ...], in_exclusive: bool) -> Level:
        for request in requests:
            self._check(request, in_exclusive)
        slots = [request for request in requests if request.type == SLOT]
        if not slots:
            return self._plain(requests, in_exclusive, ())
        number = self._next()
        if len(slots) < len(requests):
            self._refuse("a slot beside requests that are no slots cannot be matched")
        slot = self._slots(slots)
        return Level(number, {}, {}, slot, (), frozenset((SLOT,)), (slot,))

    def _slots(self, slots: list[Request]) -> Wanted:
        """Several are alternatives, as in Fluxion: their counts must be one and the same."""
        first = slots[0]
        if len(slots) > SIBLINGS_MAX:
            self._refuse(f"more than {SIBLINGS_MAX} slots stand side by side")
            slots = slots[:1]
        if self._skips and len(slots) > 1:
            self._refuse("slots side by side are alternatives in Flux's format alone; name one")
        if any(one.count != first.count for one in slots):
            self._refuse("slots side by side are alternatives: give all of them the same count")
        inside = tuple(content for one in slots for content in one.contents)
        if any(content.type == SLOT for content in inside):
            self._refuse("a slot may not lie right in a slot")
        for content in inside:
            self._check(content, True)
        places: dict[str, int] = {}
        recipes = []
        for one in slots:
            recipe = []
            for content in one.contents:
                recipe.append(Part(content.type, places.get(content.type, 0), content.count))
                places[content.type] = places.get(content.type, 0) + 1
            recipes.append(tuple(recipe))
        contents = self._plain(inside, True, tuple(recipes))
        return Wanted(first, contents, tuple(_needs(one) for one in slots))

    def _plain(
        self, requests: tuple[Request, ...], in_exclusive: bool, recipes: tuple[Recipe, ...]
    ) -> Level:
        number = self._next()
        grouped: dict[str, list[Wanted]] = {}
        for request in requests:
            inside = in_exclusive or request.exclusive is True
            contents = self.level(request.contents, inside)
            wanted = Wanted(request, contents, (_needs(request),))
            grouped.setdefault(request.type, []).append(wanted)
        by_type = {type_: those[0] for type_, those in grouped.items() if len(those) == 1}
        families = {
            type_: self._family(type_, those) for type_, those in grouped.items() if len(those) > 1
        }
        single = tuple(by_type.values())
        return Level(number, by_type, families, None, recipes, frozenset(by_type), single)

    def _family(self, type_: str, members: list[Wanted]) -> Family:
        if len(members) > SIBLINGS_MAX:
            self._refuse(f"more than {SIBLINGS_MAX} requests of type {type_!r} stand side by side")
        alone = tuple(only(one, self._next()) for one in members)
        return Family(type_, tuple(members), alone)

    def _next(self) -> int:
        self.levels += 1
        return self.levels - 1

    def _check(self, request: Request, in_exclusive: bool) -> None:
        if request.type == NON_EXCLUSIVE_SLOT:
            self._refuse(f"{request.type!r} is an extension of Fluxion's that is not supported")
        if request.type == SLOT and not request.contents:
            self._refuse("a slot must contain something")
        if in_exclusive and request.exclusive is False and request.type != SLOT:
            self._refuse(f"{request.type!r} is to be shared inside of something exclusive")

    def _refuse(self, problem: str) -> None:
        self.impossible = self.impossible or problem


def only(wanted: Wanted, number: int = -1) -> Level:
    """A level of one request."""
    type_ = wanted.request.type
    return Level(number, {type_: wanted}, {}, None, (), frozenset((type_,)), (wanted,))


def _needs(request: Request) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(least_needs(request.contents).items()))


def too_little(free: Mapping[str, int], needs: Iterable[tuple[tuple[str, int], ...]]) -> bool:
    """Whether none of the alternatives can be met."""
    for one in needs:
        for name, amount in one:
            if free.get(name, 0) < amount:
                break
        else:
            return False
    return True
