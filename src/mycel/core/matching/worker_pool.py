"""The workers that a scheduler knows, indexed: a decision scans none of them.

    put, remove         who there is and what they can do        rare
    report, ask, …      how they stand at the moment             often; mostly changes no index
    has_data            whose cache has a file
    ranked              who should be asked for a shape, the best first

Workers that are linked and workers that are only known, from the DHT, live here alike.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, TypeVar

from mycel.core.model.resources import Capabilities, Free, Requirements, Usage
from mycel.core.model.work import Shape, reserved

from .eligibility import Eligibility
from .free_room import Room
from .indexes import Levels
from .rank_terms import (
    LOAD_METRICS,
    Member,
    history_level,
    mean_level,
    score_of,
)
from .ranking import ALGORITHMS, Algorithm, Order, SelectionSettings, View
from .score import RERANKED, Terms, burden, terms_of
from .slot_counts import has_room, total_of
from .worker_sets import mask_of, slots_of, without

Key = TypeVar("Key")
SHAPES_KEPT_MAX: Final = 256
FILES_KEPT_MAX: Final = 4096
_MEASURED_BYTES_MIN: Final = 1 << 20
"""Smaller files say more of the round trip than of the bandwidth."""
_BANDWIDTH_SHARE: Final = 0.3
"""What one more transfer counts in the mean."""
_WRONG_MAX: Final = 32
"""So many that only seemed to have room, and the rest is looked at one by one."""


class Pool:
    def __init__(
        self,
        settings: SelectionSettings | None = None,
        algorithms: Mapping[str, Algorithm] = ALGORITHMS,
    ) -> None:
        self._members: dict[str, Member] = {}
        self._by_slot: list[Member | None] = []
        self._free_slots: list[int] = []
        self.eligibility = Eligibility()
        self.load = Levels()
        self.burden = Levels()
        self.history = Levels()
        self._room = Room()
        self._scores = 0.0
        self._scored = 0
        self.available = 0
        self.linked = 0
        self.local = 0
        self.own = 0
        """In the scheduler's own process."""
        self.far = 0
        """Farther than `max_network_latency`."""
        self.measured = 0
        self.turn = 0
        """Who is behind the one that was asked last."""
        self.warm: dict[Shape, int] = {}
        """Who has run a shape before."""
        self.data: dict[str, int] = {}
        """Who has a file, by its digest; the one that was seen longest ago is first."""
        self._sizes: dict[str, int] = {}
        """Of files, by digest, in bytes."""
        self.apply(settings or SelectionSettings(), algorithms)

    def apply(
        self, settings: SelectionSettings, algorithms: Mapping[str, Algorithm] = ALGORITHMS
    ) -> None:
        """From now on these settings count; everybody is looked at once."""
        self.settings = settings
        self._order = Order(settings, algorithms)
        self._load_of = LOAD_METRICS[settings.load_metric]
        for member in self._members.values():
            self._place(member)
            if member.rtt_seconds is not None:
                self.set_rtt(member, member.rtt_seconds)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def __len__(self) -> int:
        return len(self._members)

    def get(self, key: str) -> Member | None:
        return self._members.get(key)

    def at(self, slot: int) -> Member:
        member = self._by_slot[slot]
        assert member is not None, "an empty slot was selected"
        return member

    # Who there is

    def put(
        self,
        key: str,
        capabilities: Capabilities,
        *,
        linked: bool,
        local: bool = False,
        source: str = "",
        seen_at: float = 0.0,
    ) -> Member:
        """A worker has come, or says something else of itself than before."""
        member = self._members.get(key)
        if member is None:
            slot = self._free_slots.pop() if self._free_slots else len(self._by_slot)
            if slot == len(self._by_slot):
                self._by_slot.append(None)
            member = self._members[key] = self._by_slot[slot] = Member(key, slot, capabilities)
            self.eligibility.put(slot, None, capabilities)
        elif member.capabilities != capabilities:
            self.eligibility.put(member.slot, member.capabilities, capabilities)
            member.capabilities = capabilities
            member.free = member.total = total_of(capabilities)
            member.foresee()
        member.linked, member.local = linked, local
        if not linked:
            member.free, member.running = member.total, 0
            member.foresee()
        member.source, member.seen_at = source, seen_at
        self.linked = _with(self.linked, member.slot, linked)
        self.local = _with(self.local, member.slot, local)
        self.available = _with(self.available, member.slot, member.available)
        self._place(member)
        return member

    def remove(self, key: str) -> None:
        member = self._members.pop(key, None)
        if member is None:
            return
        slot = member.slot
        self.eligibility.put(slot, member.capabilities, None)
        for levels in (self.load, self.burden, self.history):
            levels.put(slot, None)
        self._room.remove(slot)
        if member.score is not None:
            self._scores -= member.score
            self._scored -= 1
        self.available = _with(self.available, slot, False)
        self.linked = _with(self.linked, slot, False)
        self.local = _with(self.local, slot, False)
        self.own = _with(self.own, slot, False)
        self.far = _with(self.far, slot, False)
        self.measured = _with(self.measured, slot, False)
        for shape, warm in self.warm.items():
            self.warm[shape] = _with(warm, slot, False)
        for digest, having in self.data.items():
            self.data[digest] = _with(having, slot, False)
        self._by_slot[slot] = None
        self._free_slots.append(slot)

    # How they stand

    def report(self, member: Member, free: Free, running: int, usage: Usage | None = None) -> None:
        """The worker has said what is free, and what is in use."""
        member.free, member.running, member.usage = free, running, usage
        member.foresee()
        self._place(member)

    def set_running(self, member: Member, running: int) -> None:
        """Tasks were sent to it, or have ended."""
        if member.running != running:
            member.running = running
            load = self._load_of(member)
            self.load.put(member.slot, load)
            self.burden.put(member.slot, burden(member, self.settings.weights))

    def set_available(self, member: Member, available: bool) -> None:
        if member.available != available:
            member.available = available
            self.available = _with(self.available, member.slot, available)

    def set_own(self, member: Member) -> None:
        self.own |= 1 << member.slot

    def set_rtt(self, member: Member, seconds: float) -> None:
        member.rtt_seconds = seconds
        is_far = seconds > self.settings.max_network_latency_seconds
        self.far = _with(self.far, member.slot, is_far)
        self.burden.put(member.slot, burden(member, self.settings.weights))

    def measure(self, member: Member, success_rate: float, relative_seconds: float) -> None:
        """`relative_seconds`: how long its tasks take, 1 being the mean of their shapes."""
        score = score_of(success_rate, relative_seconds)
        self._scores += score - (member.score or 0.0)
        if member.score is None:
            self._scored += 1
            self.measured |= 1 << member.slot
        member.score = score
        level = history_level(score)
        if level == self.history.get(member.slot):
            return
        self.history.put(member.slot, level)
        self.burden.put(member.slot, burden(member, self.settings.weights))

    def has_run(self, member: Member, shape: Shape) -> None:
        """Its environment, model or image is there from now on."""
        warm = self.warm.get(shape, 0)
        if not warm >> member.slot & 1:
            _bound(self.warm, SHAPES_KEPT_MAX)
            self.warm[shape] = warm | 1 << member.slot

    def has_data(self, member: Member, digest: str, size: int = 0, seconds: float = 0.0) -> None:
        """`seconds` is what it took to move the file there, if it was moved."""
        having = self.data.pop(digest, 0)
        _bound(self.data, FILES_KEPT_MAX)
        self.data[digest] = having | 1 << member.slot
        if size:
            _bound(self._sizes, FILES_KEPT_MAX)
            self._sizes[digest] = size
        if size >= _MEASURED_BYTES_MIN and seconds > 0.0:
            rate = size / seconds
            before = member.bandwidth or rate
            member.bandwidth = before + _BANDWIDTH_SHARE * (rate - before)

    def having(self, digests: Iterable[str]) -> int:
        """Who has all of these files, as far as that is known; if nobody has, who has any."""
        every, some = -1, 0
        for digest in digests:
            having = self.data.get(digest, 0)
            if having:
                every &= having
                some |= having
        return every & some or some

    def ask(self, member: Member, request: int, shape: Shape, slots: int) -> None:
        """So much was just assigned to it: until it answers, that counts as taken."""
        member.assigned[request] = (reserved(shape), slots)
        self.turn = member.slot + 1
        member.foresee()
        self._place(member)

    def answered(self, member: Member, request: int) -> None:
        if member.assigned.pop(request, None) is not None:
            member.foresee()
            self._place(member)

    def _place(self, member: Member) -> None:
        slot = member.slot
        load = self._load_of(member)
        self.load.put(slot, load)
        self.burden.put(slot, burden(member, self.settings.weights))
        self._room.put(slot, member.expected)

    @property
    def mean_history(self) -> int:
        return mean_level(self._scores, self._scored)

    # Who should be asked

    def eligible(self, shape: Shape) -> int:
        """Everybody who could ever run it."""
        return self.eligibility.eligible(shape)

    def can_run(self, member: Member, shape: Shape) -> bool:
        return bool(self.eligibility.eligible(shape) >> member.slot & 1)

    def filtered(self, shape: Shape, refusing: int = 0) -> int:
        """The filter: the whole requirement, healthy, willing, and near unless none of those
        is. One that has only no room at the moment is waited for."""
        able = without(self.eligibility.eligible(shape) & self.available, refusing)
        return without(able, self.far) or able

    def candidates(self, shape: Shape, refusing: int = 0) -> int:
        """Those with a link that may be sent such a task, with room or without. `refusing` are
        workers that do not take this shape, or its user's tasks."""
        return self.filtered(shape, refusing) & self.linked

    def best(
        self,
        shape: Shape,
        random: Callable[[], float],
        *,
        refusing: int = 0,
        excluded: int = 0,
        avoided: int = 0,
        having_data: int = 0,
        files: Collection[str] = (),
        expected_seconds: float | None = None,
    ) -> Member | None:
        """The first of the candidates with room; one of those to avoid only if there is no
        other. It has the last turn then."""
        among = self.candidates(shape, refusing)
        if excluded:
            among = without(among, excluded)
        need = reserved(shape)
        among = self._room.cut(among, need)
        for mask in (without(among, avoided), among & avoided) if avoided else (among,):
            found = self._first_with_room(mask, shape, random, having_data, files, expected_seconds)
            if found is not None:
                self.turn = found.slot + 1
                return found
        return None

    def _first_with_room(
        self,
        mask: int,
        shape: Shape,
        random: Callable[[], float],
        having_data: int,
        files: Collection[str],
        expected_seconds: float | None,
    ) -> Member | None:
        if not mask:
            return None
        if mask & (mask - 1) == 0:
            only = self.at(mask.bit_length() - 1)
            return only if has_room(reserved(shape), only.capabilities, only.expected) else None
        ranked = self.ranked(shape, random, among=mask, having_data=having_data, filtered=True)
        if self.settings.algorithm != "best":
            found = next(ranked, None)
            return found[0] if found is not None and found[1] else None
        first = [member for member, has in islice(ranked, RERANKED) if has]
        if having_data & mask:
            first += self._with_room(having_data & mask, reserved(shape))
        if len(first) < 2:
            return first[0] if first else None
        return min(first, key=lambda one: self.terms(one, shape, files, expected_seconds).total)

    def _with_room(self, mask: int, need: Requirements) -> list[Member]:
        """Some of them, from a place of their own: those with a file may be all."""
        return [self.at(slot) for slot in islice(self._having_room(need, mask), RERANKED)]

    def terms(
        self,
        member: Member,
        shape: Shape,
        files: Collection[str] = (),
        expected_seconds: float | None = None,
        wait_seconds: float = 0.0,
    ) -> Terms:
        """What speaks for and against it, for a task of this shape that needs these files."""
        return terms_of(
            member,
            reserved(shape),
            self.settings.weights,
            expected_seconds=expected_seconds,
            wait_seconds=wait_seconds,
            bytes_missing=self._bytes_missing(member, files),
            start_seconds=self._start_seconds(member, shape),
        )

    def _start_seconds(self, member: Member, shape: Shape) -> float:
        if shape.driver == "model" or self.warm.get(shape, 0) >> member.slot & 1:
            return 0.0  # a model is loaded where it is served
        weights = self.settings.weights
        is_brought = bool(shape.environment or shape.image)
        return weights.prepare_seconds if is_brought else weights.start_seconds

    def _bytes_missing(self, member: Member, files: Collection[str]) -> int:
        """Of files that nobody has fetched yet the size is not known."""
        return sum(
            self._sizes.get(digest, 0)
            for digest in files
            if not self.data.get(digest, 0) >> member.slot & 1
        )

    def ranked(
        self,
        shape: Shape,
        random: Callable[[], float],
        among: int = -1,
        excluded: int = 0,
        having_data: int = 0,
        filtered: bool = False,
    ) -> Iterator[tuple[Member, bool]]:
        """Whom of these to ask, the best first, each with whether it has room now. The pool
        must not be changed before the last one is asked for. With `filtered`, `among` went
        through the filter already."""
        candidates = among if filtered else self.filtered(shape) & among
        if excluded:
            candidates = without(candidates, excluded)
        need = reserved(shape)

        def fits_now(slot: int) -> bool:
            member = self.at(slot)
            return has_room(need, member.capabilities, member.expected)

        room = self._room.cut(candidates, need)
        late = candidates ^ room
        wrong = 0
        view = View(self, shape, random, having_data, fits_now)
        while room:
            for slot in self._order.apply(room, view):
                room ^= 1 << slot
                if fits_now(slot):
                    yield self.at(slot), True
                    continue
                late |= 1 << slot
                wrong += 1
                if wrong == _WRONG_MAX:
                    exact = mask_of(self._having_room(need, room))
                    late |= room ^ exact
                    room = exact
                break  # it was no standard for the others: order them again without it
        view = View(self, shape, random, having_data)
        for slot in self._order.apply(late, view) if late else ():
            yield self.at(slot), False

    def _having_room(self, need: Requirements, mask: int) -> Iterator[int]:
        for slot in slots_of(mask):
            member = self.at(slot)
            if has_room(need, member.capabilities, member.expected):
                yield slot


def _with(mask: int, slot: int, there: bool) -> int:
    bit = 1 << slot
    return mask | bit if there else mask ^ (mask & bit)


def _bound(kept: dict[Key, int], most: int) -> None:
    if len(kept) >= most:
        del kept[next(iter(kept))]
