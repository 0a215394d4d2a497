"""Workers without a link: found, called when work wants them, and parted from when it does not.

    Sighting ─▶ known ── work waits ──▶ called ─▶ Dial ─▶ it registers
                  ▲                                            │
                  └──────── too many links, and idle ◀─────────┘

A shape that the known workers cannot serve is sought: at once if none of them suits it, then
ever more slowly, and every `discovery_interval` while it lacks workers.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from mycel.core.effects import Announce, Dial, Part, Seek
from mycel.core.events import Sighting, WorkersSeen, WorkerWithdrawn
from mycel.core.identifiers import PeerId
from mycel.core.matching import obstacle, slots_that_fit, total_of
from mycel.core.messages import Register
from mycel.core.model.work import Shape, reserved
from mycel.core.scheduler.records import Call, Worker
from mycel.core.scheduler.state import State
from mycel.core.scheduler.tasks.shape_queue import ShapeQueue
from mycel.core.states import LeaseStep, WorkerState, WorkerStep

from .known_workers import KnownWorker
from .registrations import Registrations
from .worker_health import Measuring
from .worker_index import Roster
from .worker_probes import Checking

CALLS_MAX: Final = 64
"""So many workers are dialled at once."""
PART_SECONDS: Final = 5.0
"""While there are too many links and all are in use, they are looked at so often."""


class Calling:
    def __init__(
        self,
        state: State,
        registrations: Registrations,
        measuring: Measuring,
        roster: Roster,
        checking: Checking,
    ) -> None:
        self._state = state
        self._checking = checking
        self._roster = roster
        self._registrations = registrations
        self._measuring = measuring
        self.has_new_links = False

    # What discovery tells

    def seen(self, event: WorkersSeen, now: float) -> None:
        state = self._state
        has_news = False
        for sighting in event.sightings:
            worker = state.workers.get(sighting.peer)
            if worker is not None:
                # Its own word over the link, or its silence, counts for more.
                worker.facts["presence"] = (sighting.source, now)
            elif state.known.see(sighting, now):
                state.timers.set(("forget", sighting.peer), now + sighting.valid_seconds)
                self._checking.known(sighting.peer, now)
                has_news = True
        if has_news:
            for queue in self._state.queues.values():
                if queue.waiting:
                    self._state.touch(queue)

    def withdrawn(self, event: WorkerWithdrawn, now: float) -> None:
        self.forget(event.peer, now)

    def forget(self, peer: PeerId, now: float) -> None:
        self._state.timers.cancel(("forget", peer))
        self._checking.forget(peer)
        self._state.known.take(peer)

    def _hand_over(self, peer: PeerId) -> None:
        """To the workers with a record of their own."""
        self._state.timers.cancel(("forget", peer))
        self._checking.forget(peer)
        self._state.known.hand_over(peer)

    # Calling

    def look(self, queue: ShapeQueue, now: float) -> None:
        """After every chance to use the linked workers: is there still too little?"""
        if not queue.waiting:
            return
        want = self._unmet(queue)
        if want > 0 and len(self._state.known):
            want = self._call(queue, want, now)
        if want > 0 and queue.shape not in self._state.seeks:
            self._begin_to_seek(queue, now)

    def _unmet(self, queue: ShapeQueue) -> int:
        state = self._state
        called = sum(one.slots for one in state.calls.values() if one.shape == queue.shape)
        return queue.waiting + queue.live - queue.held_slots - called

    def _call(self, queue: ShapeQueue, want: int, now: float) -> int:
        """Calls workers that suit; returns what is still wanted."""
        state = self._state
        chosen: list[tuple[KnownWorker, int]] = []
        for known in state.known.suitable(queue.shape, state.random):
            if want <= 0 or len(state.calls) + len(chosen) >= CALLS_MAX:
                break
            has = known.capabilities
            slots = slots_that_fit(reserved(queue.shape), has, total_of(has), want)
            chosen.append((known, max(1, slots)))
            want -= max(1, slots)
        for known, slots in chosen:
            self._dial(known, now)
            state.calls[known.peer] = Call(queue.shape, slots)
            state.timers.set(("call", known.peer), now + state.settings.call_seconds)
        return want

    def call_is_late(self, peer: PeerId, now: float) -> None:
        """Others are called in its place; should it come yet, so much the better."""
        call = self._state.calls.get(peer)
        if call is not None:
            call.slots = 0
            self._look_again(call.shape)

    def _dial(self, known: KnownWorker, now: float) -> None:
        state = self._state
        self._hand_over(known.peer)
        worker = state.add_worker(known.peer, WorkerState.CALLED)
        worker.boot = known.boot
        worker.name = known.name
        worker.capabilities = known.capabilities
        worker.addresses = known.addresses
        worker.software_version = known.software_version
        worker.facts["presence"] = worker.facts["capabilities"] = (known.source, known.seen_at)
        self._roster.described(worker, now)
        state.emit(Dial(known.peer, known.addresses))
        state.timers.set(("away", known.peer), now + state.settings.away_seconds)

    def answered(self, peer: PeerId) -> None:
        """It has registered, or is dead: either way nobody waits for it."""
        call = self._state.calls.pop(peer, None)
        if call is not None:
            self._state.timers.cancel(("call", peer))
            self._look_again(call.shape)

    def _look_again(self, shape: Shape) -> None:
        queue = self._state.queues.get(shape)
        if queue is not None:
            self._state.touch(queue)

    # Seeking

    def _begin_to_seek(self, queue: ShapeQueue, now: float) -> None:
        settings, shape = self._state.settings, queue.shape
        if self._is_served(shape):
            self._seek_later(shape, settings.discovery_interval, now)
        else:
            self._state.emit(Seek(shape))
            self._seek_later(shape, settings.seek_seconds_min, now)

    def _is_served(self, shape: Shape) -> bool:
        """Whether some linked or called worker suits it, busy or not."""
        return bool(self._state.pool.eligible(shape) & self._state.pool.linked)

    def _seek_later(self, shape: Shape, delay: float, now: float) -> None:
        delay = min(delay, self._state.settings.discovery_interval)
        self._state.seeks[shape] = delay
        self._state.timers.set(("seek", shape), now + delay)

    def seek_due(self, shape: Shape, now: float) -> None:
        delay = self._state.seeks.pop(shape, None)
        queue = self._state.queues.get(shape)
        if delay is None:
            return  # a worker's death, at the same moment, has made it begin afresh
        if queue is None or not queue.waiting or self._unmet(queue) <= 0:
            return
        self._state.emit(Seek(shape))
        self._seek_later(shape, 2 * delay, now)

    def died(self, worker: Worker) -> None:
        """Shapes that had it may have nobody now: they are sought afresh."""
        self.answered(worker.peer)
        for shape in list(self._state.seeks):
            if obstacle(shape, worker.capabilities) is None:
                del self._state.seeks[shape]
                self._state.timers.cancel(("seek", shape))
                self._look_again(shape)

    def work_comes(self, now: float) -> None:
        """Before tasks are added: has there been nothing to do for a while?"""
        state = self._state
        if (
            now - state.busy_at >= state.settings.announce_idle_seconds
            and not state.attempts
            and not state.queued
        ):
            state.emit(Announce())

    # Parting

    def registered(self, worker: Worker, register: Register, now: float) -> None:
        """It has a link: it is known by its own word now, and may be one too many."""
        state = self._state
        known = state.known.get(worker.peer)
        if known is not None:
            self._hand_over(worker.peer)
        found_by = register.heard_by or (known.source if known is not None else "")
        if found_by:
            worker.facts["presence"] = (found_by, now)
        state.known.unbury(worker.peer)
        self.answered(worker.peer)
        state.linked.pop(worker.peer, None)
        state.linked[worker.peer] = worker
        self.has_new_links = True

    def part_from_idle(self, now: float) -> None:
        """Until there are no more links than there should be: those in use get another turn,
        the others go, the longest unused first.

        After the new ones have been asked for what waits, or they would seem unused."""
        state = self._state
        self.has_new_links = False
        self._part_from_crowd(now)
        for _ in range(len(state.linked)):
            if len(state.linked) <= state.settings.linked_workers_max:
                return
            peer, worker = next(iter(state.linked.items()))
            del state.linked[peer]
            if worker.is_idle:
                self._part(worker, now)
            else:
                state.linked[peer] = worker
        state.timers.set(("part", None), now + PART_SECONDS)

    def _part_from_crowd(self, now: float) -> None:
        """Those first who joined by one invite and have more than half of the links."""
        state, most = self._state, self._state.settings.linked_workers_max
        if len(state.linked) <= most:
            return
        families = {peer: state.principal_of(peer).family for peer in state.linked}
        links = Counter(family.serial for family in families.values() if family is not None)
        for peer, family in families.items():
            if len(state.linked) <= most:
                return
            if family is not None and links[family.serial] > most // 2:
                worker = state.linked[peer]
                if worker.is_idle:
                    del state.linked[peer]
                    links[family.serial] -= 1
                    self._part(worker, now)

    def part_due(self, key: object, now: float) -> None:
        """All links were in use when there were too many of them."""
        self.has_new_links = True

    def _part(self, worker: Worker, now: float) -> None:
        state = self._state
        worker.step(WorkerStep.PART)
        self._registrations.end(worker, LeaseStep.END, "it was not needed")
        self._measuring.gone(worker)
        self._roster.gone(worker)
        del state.workers[worker.peer]
        seconds = state.settings.known_seconds
        sighting = Sighting(
            peer=worker.peer,
            boot=worker.boot,
            sequence=0,
            published_at=state.unix(now),
            valid_seconds=2.0 * seconds,
            source="registered",
            capabilities=worker.capabilities,
            addresses=worker.addresses,
            name=worker.name,
            software_version=worker.software_version,
        )
        if state.known.see(sighting, now):
            state.timers.set(("forget", worker.peer), now + sighting.valid_seconds)
            self._checking.known(worker.peer, now)
        # Spread, so that those who were sent away together do not come back together.
        state.emit(Part(worker.peer, seconds * (0.75 + 0.5 * state.random())))
        state.note("worker_parted", peer=worker.peer, name=worker.name)
