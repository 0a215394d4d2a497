"""Leases: asking for them, keeping them alive, giving them up.

A shape that has more to run than its leases hold asks the workers that fit, the best first.
A worker's yes carries the lease, which is journalled before its first use. A lease that
another shape wants goes back at once where it is idle, and at the end of a task where the
other ranks higher.
"""

from __future__ import annotations

from mycel.core.codec import encode_shape
from mycel.core.effects import SendRenewal
from mycel.core.identifiers import AttemptId, LeaseId, PeerId, RequestId
from mycel.core.journal import LeaseEnded, LeaseGranted
from mycel.core.matching import Candidate, has_room, in_order, obstacle, slots_of
from mycel.core.messages import Offer, Release, Renew, Request, Wanted, Withdraw
from mycel.core.queue import ShapeQueue
from mycel.core.resources import SLOTS_MAX
from mycel.core.states import LeaseState, LeaseStep
from mycel.core.work import Shape

from .attempts import Attempts
from .state import State
from .tables import Asked, Attempt, Lease, Worker


class Leasing:
    def __init__(self, state: State, attempts: Attempts) -> None:
        self._state = state
        self._attempts = attempts

    # Asking

    def negotiate(self, queue: ShapeQueue, now: float) -> None:
        asked = sum(one.slots for one in self._state.asked.values() if one.queue is queue)
        want = queue.waiting + queue.live - queue.held_slots - asked
        if queue.waiting == 0 or want <= 0:
            return
        began = self._state.stopwatch()
        candidates = in_order(self._candidates(queue, now))
        self._state.selection_seconds.append(self._state.stopwatch() - began)
        for candidate in candidates:
            if want <= 0:
                return
            slots = min(want, candidate.slots)
            self._ask(self._state.workers[PeerId(candidate.key)], queue, slots, now)
            want -= slots

    def _candidates(self, queue: ShapeQueue, now: float) -> list[Candidate]:
        shape = queue.shape
        found = []
        for worker in self._state.workers.values():
            if (
                not worker.is_healthy
                or not worker.accepting
                or shape in worker.asked
                or worker.ask_after.get(shape, 0.0) > now
                or self.obstacle(worker, shape) is not None
            ):
                continue
            slots = worker.slots_by_shape.get(shape)
            if slots is None:
                slots = slots_of(shape, worker.capabilities, SLOTS_MAX)
                worker.slots_by_shape[shape] = slots
            room = has_room(shape.requirements, worker.capabilities, worker.free)
            load = len(worker.attempts) / max(1, slots)
            found.append(Candidate(worker.peer, room, max(1, slots), load, worker.rtt_seconds))
        return found

    def obstacle(self, worker: Worker, shape: Shape) -> str | None:
        if shape not in worker.obstacles:
            worker.obstacles[shape] = obstacle(shape, worker.capabilities)
        return worker.obstacles[shape]

    def _ask(self, worker: Worker, queue: ShapeQueue, slots: int, now: float) -> None:
        state = self._state
        request = state.next_request()
        asked = Asked(request, worker, queue, slots)
        state.asked[request] = worker.asked[queue.shape] = asked
        state.timers.set(("request", request), now + state.settings.request_seconds)
        state.send(worker.peer, Request(request, queue.shape, slots))

    def forget_request(self, request: RequestId) -> Asked | None:
        asked = self._state.asked.pop(request, None)
        if asked is not None:
            asked.worker.asked.pop(asked.queue.shape, None)
            self._state.timers.cancel(("request", request))
            self._state.touch(asked.queue)
        return asked

    # Answers

    def offered(self, worker: Worker, offer: Offer, arrived_at: float, now: float) -> None:
        asked = self.forget_request(offer.request)
        state = self._state
        if asked is None or asked.worker is not worker:
            if offer.lease is not None:
                state.send(worker.peer, Release(offer.lease, offer.slots))
            return
        if not offer.yes or offer.lease is None or offer.slots < 1:
            self._ask_later(worker, asked.queue.shape, now)
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
        worker.leases[lease.id] = lease
        asked.queue.held_slots += lease.slots
        self._watch(lease)
        state.timers.set(("idle", lease.key), now + state.settings.idle_lease_seconds)
        shape = encode_shape(asked.queue.shape)
        state.record(LeaseGranted(worker.peer, lease.id, shape, lease.slots, worker.addresses))

    def _ask_later(self, worker: Worker, shape: Shape, now: float) -> None:
        again = now + self._state.settings.ask_again_seconds
        worker.ask_after[shape] = again
        self._state.timers.set(("ask", (worker.peer, shape)), again)

    def news(self, worker: Worker) -> None:
        """The worker's state has changed: whoever waits may ask it again."""
        worker.ask_after.clear()
        self.touch_waiting()

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
            self._state.emit(SendRenewal(worker.peer, Renew(peer_clock, renewed)))

    def _watch(self, lease: Lease) -> None:
        self._state.timers.set(("lease", lease.key), lease.ends_at)

    def restore(self, lease: Lease) -> None:
        lease.worker.leases[lease.id] = lease
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
        del lease.worker.leases[lease.id]
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
            and self.obstacle(lease.worker, other.shape) is None
            for other in self._state.queues.values()
        )

    def _shrink(self, lease: Lease, slots: int, reason: str) -> None:
        """Gives back all but `slots`; no more than that many attempts are out."""
        assert lease.outstanding <= slots < lease.slots
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
