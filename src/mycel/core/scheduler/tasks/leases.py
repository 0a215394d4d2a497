"""Leases: asking for them, keeping them alive, giving them up.

A shape that has more to run than its leases hold asks the workers that fit, the best first.
A worker's yes carries the lease, which is journalled before its first use. A lease that
another shape wants goes back at once where it is idle, and at the end of a task where the
other ranks higher.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from mycel.core.effects import SendAhead
from mycel.core.identifiers import AttemptId, LeaseId, PeerId, RequestId
from mycel.core.journal import LeaseEnded, LeaseGranted
from mycel.core.journal_codec import encode_shape
from mycel.core.matching import Member, has_room, left_after, slots_that_fit, total_of
from mycel.core.messages import Offer, Release, Renew, Request, Wanted, Withdraw
from mycel.core.model.work import Shape, reserved
from mycel.core.scheduler.records import Asked, Attempt, Lease, Worker
from mycel.core.scheduler.state import State
from mycel.core.scheduler.tasks.shape_queue import ShapeQueue
from mycel.core.states import LeaseState, LeaseStep

from .attempts import Attempts

SPREAD_MAX: Final = 16
"""Waiting tasks are spread over so many workers before one is asked for all that it can hold."""
BUSY_ASKED_MAX: Final = 8
"""So many workers without room are asked at once: who holds their leases learns of it."""
ASKED_IN_VAIN_PER_SECOND: Final = 25.0
"""So often a worker without room is asked again in all, however many shapes it has refused. Each
time it sends two messages, and who sends too many is cut off."""
NEWS_LOOKED_AT: Final = 64
"""So many shapes are considered when a worker has more room than before."""


class Leasing:
    def __init__(self, state: State, attempts: Attempts) -> None:
        self._state = state
        self._attempts = attempts

    # Asking

    def negotiate(self, queue: ShapeQueue, now: float) -> None:
        want = queue.waiting + queue.live - queue.held_slots - queue.asked_slots
        if queue.waiting == 0 or want <= 0:
            return
        began = self._state.stopwatch()
        chosen = self._choose(queue, want)
        self._state.selection_seconds.append(self._state.stopwatch() - began)
        for member, slots in chosen:
            self._ask(self._state.workers[PeerId(member.key)], member, queue, slots, now)

    def _choose(self, queue: ShapeQueue, want: int) -> list[tuple[Member, int]]:
        """Whom to ask, and for how many slots each: as few as can hold what waits, but enough
        that a handful of tasks does not crowd onto one machine while others idle."""
        need = reserved(queue.shape)
        fitting: list[tuple[Member, int]] = []
        busy: list[tuple[Member, int]] = []
        room_in_all = 0
        pool = self._state.pool
        excluded = queue.asked | queue.refused
        for member, room in pool.ranked(
            queue.shape,
            self._state.random,
            among=pool.linked,
            excluded=excluded,
            having_data=self._state.having_next_files(queue),
        ):
            enough = room_in_all >= want
            if room:
                if enough and len(fitting) >= min(want, SPREAD_MAX):
                    break
                slots = slots_that_fit(need, member.capabilities, member.expected)
                fitting.append((member, slots))
                room_in_all += slots
            elif enough or len(busy) >= BUSY_ASKED_MAX:
                break
            else:
                total = total_of(member.capabilities)
                slots = slots_that_fit(need, member.capabilities, total, want - room_in_all)
                busy.append((member, max(1, slots)))
                room_in_all += max(1, slots)
        return _shared_out(fitting, want) + busy

    def _ask(
        self, worker: Worker, member: Member, queue: ShapeQueue, slots: int, now: float
    ) -> None:
        state = self._state
        request = state.next_request()
        asked = Asked(request, worker, queue, slots)
        state.asked[request] = worker.asked[queue.shape] = asked
        queue.asked_slots += slots
        queue.asked |= 1 << member.slot
        state.pool.ask(member, request, queue.shape, slots)
        state.timers.set(("request", request), now + state.settings.request_seconds)
        usual = queue.usual.seconds or 0.0
        state.send(worker.peer, Request(request, queue.shape, slots, expected_seconds=usual))

    def forget_request(self, request: RequestId) -> Asked | None:
        asked = self._state.asked.pop(request, None)
        if asked is not None:
            queue, member = asked.queue, asked.worker.member
            assert member is not None, "a worker was asked that is not in the pool"
            asked.worker.asked.pop(queue.shape, None)
            queue.asked_slots -= asked.slots
            queue.asked &= ~(1 << member.slot)
            self._state.pool.answered(member, request)
            self._state.timers.cancel(("request", request))
            self._state.touch(queue)
        return asked

    # Answers

    def offered(self, worker: Worker, offer: Offer, arrived_at: float, now: float) -> None:
        state = self._state
        asked = state.asked.get(offer.request)
        if asked is None or asked.worker is not worker:
            if offer.lease is not None:
                state.send(worker.peer, Release(offer.lease, offer.slots))
            return
        self.forget_request(offer.request)
        if not offer.yes or offer.lease is None or offer.slots < 1:
            self._ask_later(worker, asked.queue, offer.reason, offer.eta_seconds, now)
            return
        unwanted = self._unwanted(asked.queue, offer, now)
        if unwanted:
            state.note("offer_declined", worker=worker.peer, reason=unwanted)
            state.send(worker.peer, Release(offer.lease, offer.slots))
            self._ask_later(worker, asked.queue, unwanted, offer.eta_seconds, now)
            return
        if offer.lease in worker.leases:
            return  # a repeated answer
        lease = Lease(
            worker,
            offer.lease,
            asked.queue,
            offer.slots,
            max(offer.window, offer.slots),
            now,
            arrived_at + state.settings.lease_seconds,
        )
        lease.floor, lease.rate = offer.floor, offer.rate
        worker.leases[lease.id] = asked.queue.leases[lease.key] = lease
        asked.queue.held_slots += lease.slots
        assert worker.member is not None
        state.pool.has_run(worker.member, asked.queue.shape)
        self._watch(lease)
        state.timers.set(("idle", lease.key), now + state.settings.idle_lease_seconds)
        shape = encode_shape(asked.queue.shape)
        state.record(LeaseGranted(worker.peer, lease.id, shape, lease.slots, worker.addresses))

    def _unwanted(self, queue: ShapeQueue, offer: Offer, now: float) -> str:
        """Why an offer is not taken; empty if it is."""
        most = queue.shape.max_cost
        if most is not None and offer.cost > most:
            return f"it asks {offer.cost:g} for a task that may cost {most:g}"
        if offer.eta_seconds > 0.0 and queue.waiting:
            starts_at = self._state.unix(now + offer.eta_seconds)
            if not any(
                one.deadline_at is None or one.deadline_at > starts_at
                for one in queue.specifications()
            ):
                return f"its tasks would start in {offer.eta_seconds:.0f} s, after their deadline"
        return ""

    def _ask_later(
        self, worker: Worker, queue: ShapeQueue, reason: str, eta_seconds: float, now: float
    ) -> None:
        """A worker that says when it may have room is believed, within limits. The more shapes
        it has refused, the longer each of them waits."""
        assert worker.member is not None
        settings = self._state.settings
        wait = min(max(eta_seconds, settings.ask_again_seconds), settings.ask_again_seconds_max)
        rivals = sum(shape.priority >= queue.shape.priority for shape in worker.refused)
        again = now + max(wait, rivals / ASKED_IN_VAIN_PER_SECOND)
        worker.refused[queue.shape] = reason
        queue.refused |= 1 << worker.member.slot
        self._state.timers.set(("ask", (worker.peer, queue.shape)), again)

    def shun(self, worker: Worker, queue: ShapeQueue, now: float) -> None:
        """Its driver has failed such a task: a server that is down would fail them all, and the
        quicker the more it gets. Others have them for a while, if there are any."""
        pool, member = self._state.pool, worker.member
        if member is None or queue.shape in worker.asked:
            return
        others = pool.eligible(queue.shape) & pool.available & ~(1 << member.slot)
        if not others:
            return
        for lease in [one for one in worker.leases.values() if one.queue is queue]:
            held = lease.state in (LeaseState.HELD, LeaseState.YIELDING)
            if held and lease.outstanding < lease.slots:
                self._shrink(lease, lease.outstanding, "its worker failed such a task")
        wait = self._state.settings.ask_again_seconds_max
        self._ask_later(worker, queue, "it has just failed such a task", wait, now)
        worker.shunned.add(queue.shape)

    def may_ask_again(self, worker: Worker, shape: Shape) -> None:
        worker.refused.pop(shape, None)
        worker.shunned.discard(shape)
        queue = self._state.queues.get(shape)
        if queue is not None and worker.member is not None:
            queue.refused &= ~(1 << worker.member.slot)
            self._state.touch(queue)

    def news(self, worker: Worker) -> None:
        """There is more room than before: whoever waits for such a worker may ask it."""
        if worker.refused and worker.member is not None:
            self._forget_refusals(worker, worker.member)
        for queue in self._state.queues.values():
            if queue.waiting and self._can_run(worker, queue.shape):
                self._state.touch(queue)

    def _forget_refusals(self, worker: Worker, member: Member) -> None:
        """Of as many shapes as it has room for, the longest refused first among equals: if all
        asked again whenever one lane is free, most of them would do so in vain."""
        has, room = member.capabilities, member.expected
        looked_at = list(islice(worker.refused, NEWS_LOOKED_AT))
        for shape in sorted(looked_at, key=lambda one: -one.priority):
            need = reserved(shape)
            if shape in worker.shunned or not has_room(need, has, member.expected):
                worker.refused[shape] = worker.refused.pop(shape)  # next time others are seen
            elif has_room(need, has, room):
                room = left_after(need, has, room, 1)
                self._state.timers.cancel(("ask", (worker.peer, shape)))
                self.may_ask_again(worker, shape)

    def _can_run(self, worker: Worker, shape: Shape) -> bool:
        return worker.member is not None and self._state.pool.can_run(worker.member, shape)

    def touch_waiting(self) -> None:
        for queue in self._state.queues.values():
            if queue.waiting:
                self._state.touch(queue)

    # Keeping alive

    def renew(self, worker: Worker, peer_clock: float, arrived_at: float) -> None:
        renewed: list[LeaseId] = []
        for lease in worker.leases.values():
            if lease.state is LeaseState.RESTORED:
                continue
            lease.step(LeaseStep.RENEW)
            lease.ends_at = max(lease.ends_at, arrived_at + self._state.settings.lease_seconds)
            self._watch(lease)
            renewed.append(lease.id)
        if renewed:
            self._state.emit(SendAhead(worker.peer, Renew(peer_clock, renewed)))

    def _watch(self, lease: Lease) -> None:
        self._state.timers.set(("lease", lease.key), lease.ends_at)

    def restore(self, lease: Lease) -> None:
        lease.worker.leases[lease.id] = lease.queue.leases[lease.key] = lease
        lease.queue.held_slots += lease.slots
        lease.queue.recovering.add(lease.key)
        self._watch(lease)

    def confirm(self, lease: Lease, slots: int, window: int, arrived_at: float) -> None:
        """The worker has come back and still knows it."""
        lease.step(LeaseStep.CONFIRM)
        lease.queue.held_slots += slots - lease.slots
        lease.slots = slots
        lease.target_slots = min(lease.target_slots, slots)
        lease.window = max(window, slots)
        lease.unaccepted.clear()
        lease.ends_at = max(lease.ends_at, arrived_at + self._state.settings.lease_seconds)
        self._watch(lease)
        self._state.timers.set(
            ("idle", lease.key), arrived_at + self._state.settings.idle_lease_seconds
        )
        self._has_reported(lease)

    # Ending

    def expired(self, lease: Lease, now: float) -> None:
        """No reading of the worker's clock has come for a whole lease: the worker's own lease
        ended before this one."""
        self.end(lease, LeaseStep.EXPIRE, "it was not renewed")
        lost = [attempt for attempt in lease.worker.attempts.values() if attempt.lease is lease]
        self.lose_all(lost, lease.slots, "its worker was silent until the lease ended", now)

    def lose_all(self, lost: list[Attempt], heads: int, reason: str, now: float) -> None:
        """The first of them may have started, those behind them have not."""
        for place, attempt in enumerate(lost):
            counts = attempt.started_at is not None or place < heads
            self._attempts.lose(attempt, counts, reason, now)

    def end(self, lease: Lease, step: LeaseStep, reason: str) -> None:
        """Attempts under it are the caller's business."""
        state = self._state
        lease.step(step)
        del lease.worker.leases[lease.id], lease.queue.leases[lease.key]
        lease.queue.held_slots -= lease.slots
        for kind in ("lease", "idle", "accept", "yield"):
            state.timers.cancel((kind, lease.key))
        self._has_reported(lease)
        state.touch(lease.queue)
        state.record(LeaseEnded(lease.worker.peer, lease.id, reason))

    def _has_reported(self, lease: Lease) -> None:
        lease.queue.recovering.discard(lease.key)
        self._state.touch(lease.queue)

    def over(self, lease: Lease, reason: str) -> None:
        """The worker ended it; what runs under it runs on without a lease."""
        self.end(lease, LeaseStep.END, reason)
        self.cut_loose(lease)

    def cut_loose(self, lease: Lease) -> None:
        for attempt in lease.worker.attempts.values():
            if attempt.lease is lease:
                attempt.lease = None
                lease.queue.live -= 1
                lease.outstanding -= 1

    # Giving up

    def wanted(self, lease: Lease, wanted: Wanted, now: float) -> None:
        lease.wanted = wanted
        self.consider_yielding(lease, now)

    def consider_yielding(self, lease: Lease, now: float) -> None:
        """Called when somebody wants it and at the end of every task under it."""
        wanted = lease.wanted
        if wanted is None or lease.state not in (LeaseState.HELD, LeaseState.YIELDING):
            return
        if lease.queue.waiting == 0 and lease.outstanding < lease.slots:
            self._shrink(lease, lease.outstanding, "it was idle and wanted")
            return
        if lease.state is LeaseState.YIELDING:
            if lease.outstanding <= lease.target_slots:
                self._shrink(lease, lease.target_slots, "another shape ranks higher")
            return
        if not self._outranked(lease, wanted):
            lease.wanted = None
            return
        due = lease.held_since + self._state.settings.lease_hold_seconds
        if now < due:
            self._state.timers.set(("yield", lease.key), due)
            return
        higher = wanted.priority > lease.queue.shape.priority
        give = min(wanted.slots, lease.slots if higher else max(1, lease.slots // 2))
        lease.target_slots = lease.slots - give
        lease.step(LeaseStep.YIELD)
        if lease.outstanding <= lease.target_slots:
            self._shrink(lease, lease.target_slots, "another shape ranks higher")

    def _outranked(self, lease: Lease, wanted: Wanted) -> bool:
        mine = lease.queue
        if wanted.priority != mine.shape.priority:
            return wanted.priority > mine.shape.priority
        if not wanted.ours:
            return True
        return any(
            other is not mine
            and other.waiting
            and other.shape.priority == mine.shape.priority
            and (other.held_slots == 0 or mine.held_slots >= other.held_slots + 2)
            and self._can_run(lease.worker, other.shape)
            for other in self._state.queues.values()
        )

    def _shrink(self, lease: Lease, slots: int, reason: str) -> None:
        """Gives back all but `slots`; no more than that many attempts are out."""
        if slots >= lease.slots:  # its worker has taken back so much itself
            lease.wanted = None
            if lease.state is LeaseState.YIELDING:
                lease.step(LeaseStep.KEEP)
            return
        assert lease.outstanding <= slots
        self._state.send(lease.worker.peer, Release(lease.id, lease.slots - slots))
        if slots == 0:
            self.end(lease, LeaseStep.RELEASE, reason)
            return
        lease.queue.held_slots -= lease.slots - slots
        lease.slots = slots
        lease.window = max(slots, min(lease.window, slots * 2))
        lease.wanted = None
        if lease.state is LeaseState.YIELDING:
            lease.step(LeaseStep.KEEP)
        lease.target_slots = slots
        self._state.touch(lease.queue)

    def idle(self, lease: Lease, now: float) -> None:
        limit = self._state.settings.idle_lease_seconds
        if lease.state is LeaseState.RESTORED:
            return
        if lease.outstanding == 0 and now - lease.idle_since >= limit:
            self._state.send(lease.worker.peer, Release(lease.id, lease.slots))
            self.end(lease, LeaseStep.RELEASE, "it was idle")
            return
        since = lease.idle_since if lease.outstanding == 0 else now
        self._state.timers.set(("idle", lease.key), since + limit)

    # Assignments that nobody confirms

    def accepted(self, lease: Lease, first: AttemptId) -> None:
        while lease.unaccepted and lease.unaccepted[0][0] <= first:
            lease.unaccepted.popleft()
        if not lease.unaccepted:
            self._state.timers.cancel(("accept", lease.key))

    def unconfirmed(self, lease: Lease, now: float) -> None:
        """Withdraws assignments that were not acknowledged in time."""
        patience = self._state.settings.health_check_timeout
        overdue: list[AttemptId] = []
        while lease.unaccepted and lease.unaccepted[0][2] + patience <= now:
            first, count, _ = lease.unaccepted.popleft()
            numbers = map(AttemptId, range(first, first + count))
            overdue.extend(number for number in numbers if number in lease.worker.attempts)
        if overdue and lease.worker.is_healthy:
            self._state.send(lease.worker.peer, Withdraw(overdue))
        if lease.unaccepted:
            self._state.timers.set(("accept", lease.key), lease.unaccepted[0][2] + patience)


def _shared_out(fitting: list[tuple[Member, int]], want: int) -> list[tuple[Member, int]]:
    """In even parts, as far as there is room: the smallest first, so that the larger ones
    take what those cannot."""
    parts = []
    left = want
    for place, (member, slots) in enumerate(sorted(fitting, key=lambda one: one[1])):
        part = min(slots, -(-left // (len(fitting) - place)))
        if part > 0:
            parts.append((member, part))
            left -= part
    return parts
