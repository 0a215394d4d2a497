"""Why a task waits: for each known worker the first requirement it fails, or what else is in the
way; where it stands in its queue, and when it may start.

All of it is worked out per shape and by arithmetic over blocks, when somebody asks: masks of
workers instead of a look at each, so that it answers at once for 100,000 of both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from mycel.core.identifiers import PeerId
from mycel.core.matching import all_obstacles, has_room
from mycel.core.matching.worker_sets import slots_of, without
from mycel.core.model.jobs import Block, TaskKey, task_key
from mycel.core.model.work import Shape, reserved
from mycel.core.scheduler.records import Worker
from mycel.core.scheduler.state import State
from mycel.core.scheduler.tasks.shape_queue import ShapeQueue
from mycel.core.scheduler.trust.guard import Guard
from mycel.core.scheduler.workers.slot_books import room_of
from mycel.core.states import StageState, TaskState, WorkerState
from mycel.core.views import ENDED, Explanation, Obstacle, RankedWorker, TaskView

from .worker_ranking import Ranking

NAMES_SHOWN: Final = 5
NO_ROOM: Final = "it fits, and has no room now"

_WAITING: Final = {
    WorkerState.EXPECTED: "it has not come back since the scheduler restarted",
    WorkerState.CALLED: "it fits, and is being called",
    WorkerState.SUSPECT: "it has been silent and gets no new work",
    WorkerState.AWAY: "its connection is lost",
}


class Explaining:
    def __init__(self, state: State, guard: Guard) -> None:
        self._state = state
        self._guard = guard
        self._ranking = Ranking(state)

    def reason(self, block: Block, key: TaskKey) -> str:
        """In a word why a task waits."""
        state = self._state
        if block.is_held_back:
            return "dependency"
        if key in state.backoff:
            return "backoff"
        limit = state.settings.max_concurrent_tasks
        if limit is not None and len(state.attempts) >= limit:
            return "concurrency"
        return "capacity" if state.pool.eligible(block.group.shape) else "no_match"

    def ended(self, block: Block, index: int) -> Explanation:
        return self._explanation(block, index, ENDED, "", "it has ended")

    def explain(self, view: TaskView, block: Block, now: float) -> Explanation:
        if view.state != TaskState.QUEUED:
            summary = f"it is {view.state} on {view.worker_name or view.worker}"
            return self._explanation(block, view.index, view.state, "", summary)
        if block.is_held_back:
            summary = _awaited(block)
            return self._explanation(block, view.index, view.state, view.reason, summary)
        shape, index = block.group.shape, view.index
        due_at = self._state.backoff.due_at(task_key(block.job.number, index))
        wait = None if due_at is None else max(0.0, due_at - now)
        queue = self._state.queues.get(shape)
        position = estimate = None
        if wait is None and queue is not None:
            position = queue.position(block, index)
            estimate = _seconds_until(queue, position)
        ranking = self._ranking.first(block, index, now)
        if estimate is None and wait is None and not position:
            estimate = min(
                (one.eta_seconds for one in ranking if one.eta_seconds is not None), default=None
            )
        obstacles = self.obstacles(shape)
        is_busy = any(row.reason == NO_ROOM for row in obstacles)
        summary = self._summary(queue, view.reason, wait, position, estimate, is_busy)
        return self._explanation(
            block,
            index,
            view.state,
            view.reason,
            summary,
            obstacles=obstacles,
            position=position,
            wait=wait,
            estimate=estimate,
            ranking=ranking,
        )

    def _explanation(
        self,
        block: Block,
        index: int,
        state: str,
        reason: str,
        summary: str,
        *,
        obstacles: list[Obstacle] | None = None,
        position: int | None = None,
        wait: float | None = None,
        estimate: float | None = None,
        ranking: list[RankedWorker] | None = None,
    ) -> Explanation:
        pool = self._state.pool
        return Explanation(
            job_id=block.job.id,
            index=index,
            state=state,
            reason=reason,
            summary=summary,
            obstacles=obstacles or [],
            position=position,
            workers_known=len(pool),
            next_try_seconds=wait,
            workers_fitting=pool.eligible(block.group.shape).bit_count(),
            estimated_start_seconds=estimate,
            ranking=ranking or [],
        )

    def _summary(
        self,
        queue: ShapeQueue | None,
        reason: str,
        wait: float | None,
        position: int | None,
        estimate: float | None,
        is_busy: bool,
    ) -> str:
        if wait is not None:
            return f"its last attempt failed; the next one starts in {wait:.1f} s"
        if queue is not None and queue.recovering:
            return "the scheduler has restarted and waits for the workers that may run it already"
        verb = "is" if position == 1 or not position else "are"
        ahead = f"{position or 'nothing'} of its kind {verb} ahead of it"
        if reason == "concurrency":
            return f"max_concurrent_tasks of this scheduler are out; {ahead}"
        if reason == "no_match":
            known = len(self._state.pool)
            if not known:
                return "no worker has joined yet"
            return f"no known worker can run it ({known} known); it waits for one that can"
        start = "" if estimate is None else f"; it may start in about {_about(estimate)}"
        why = "are busy" if is_busy else "have not taken it"
        return f"workers that can run it {why}; {ahead}{start}"

    # Workers

    def obstacles(self, shape: Shape) -> list[Obstacle]:
        """The same reasons together; what is temporary first."""
        grouped: dict[tuple[str, bool], tuple[list[str], int]] = {}

        def add(reason: str, temporary: bool, names: Iterable[str], count: int) -> None:
            shown, before = grouped.get((reason, temporary), ([], 0))
            grouped[reason, temporary] = ([*shown, *names], before + count)

        for worker in self._state.workers.values():
            if worker.state is WorkerState.EXPECTED:
                add(_WAITING[worker.state], True, [worker.name or worker.peer], 1)
        fitting = self._state.pool.eligibility.known
        for failing, reason in self._failing(shape):
            fitting ^= failing
            names, count = self._names(failing), failing.bit_count()
            if count > NAMES_SHOWN:
                add(reason, False, names, count)
                continue
            for slot, name in zip(slots_of(failing), names, strict=True):
                missing = all_obstacles(shape, self._state.pool.at(slot).capabilities)
                add("; ".join(missing), False, [name], 1)
        for part, reason in self._fitting(shape, fitting):
            add(reason, True, self._names(part), part.bit_count())
        rows = [
            Obstacle(reason, temporary, sorted(names)[:NAMES_SHOWN], count)
            for (reason, temporary), (names, count) in grouped.items()
        ]
        return sorted(rows, key=lambda row: (not row.temporary, -row.count, row.reason))

    def _failing(self, shape: Shape) -> Iterator[tuple[int, str]]:
        """Everybody who fails something, by the first thing they fail."""
        eligibility = self._state.pool.eligibility
        left = eligibility.known
        for hurdle in eligibility.hurdles(shape):
            failing = without(left, hurdle.passing)
            if failing:
                left ^= failing
                yield failing, hurdle.reason(failing)

    def _fitting(self, shape: Shape, fitting: int) -> Iterator[tuple[int, str]]:
        """Those that could run it, by what keeps them."""
        pool = self._state.pool
        linked = fitting & pool.linked
        if fitting != linked:
            yield fitting ^ linked, "it fits, and is called if it is needed"
        far = without(linked & pool.far & pool.available, pool.filtered(shape))
        if far:
            yield far, "it is farther than max_network_latency, and a closer one could run it"
            linked ^= far
        parts: dict[str, int] = {}
        for slot in slots_of(linked):
            worker = self._state.workers[PeerId(pool.at(slot).key)]
            reason = self._keeps(shape, worker)
            parts[reason] = parts.get(reason, 0) | 1 << slot
        for reason, part in parts.items():
            yield part, reason

    def _keeps(self, shape: Shape, worker: Worker) -> str:
        if worker.state in _WAITING:
            return _WAITING[worker.state]
        if not worker.accepting:
            why = f": {worker.closed_for}" if worker.closed_for else ""
            return f"it takes no new work{why}"
        withheld = self._guard.reason(worker, self._state.pool.candidates(shape))
        if withheld:
            return withheld
        if worker.registration is None:
            return "it fits, and is about to register again"
        if not has_room(reserved(shape), worker.capabilities, room_of(worker)):
            return NO_ROOM
        reason = worker.excluded.get(shape) or worker.excluded.get(shape.user)
        if reason is None:
            return "it fits, and is next"
        if shape in worker.lacks_room:
            return NO_ROOM
        return f"it fits, and is left out for a moment: {reason}"

    def _names(self, mask: int) -> list[str]:
        names = []
        for slot in slots_of(mask):
            peer = PeerId(self._state.pool.at(slot).key)
            known = self._state.workers.get(peer) or self._state.known.get(peer)
            names.append((known.name if known is not None else "") or peer)
            if len(names) == NAMES_SHOWN:
                break
        return names


def _awaited(block: Block) -> str:
    """What a task of a stage that has not started waits for."""
    run = block.stage
    assert run is not None
    waiting = [need for need in run.needs if need.state is not StageState.ENDED]
    if run.state is StageState.SKIPPED or not waiting:
        return f"it is about to be cancelled: {run.skip_reason}"
    parts = [
        f"{need.name!r} ({need.succeeded + need.failed + need.cancelled} of {need.count} ended)"
        for need in waiting
    ]
    open_job = "" if block.job.closed else "; its job still takes batches"
    return f"stage {run.name!r} waits for {', '.join(parts)}{open_job}"


def _seconds_until(queue: ShapeQueue, position: int) -> float | None:
    """As long as the tasks ahead of it usually take in the slots that the shape holds; None if
    it holds none, or none of its tasks has ended yet."""
    usual = queue.usual.seconds
    if usual is None or not queue.held_slots:
        return None
    rounds = (position + queue.live) // queue.held_slots
    return rounds * usual


def _about(seconds: float) -> str:
    if seconds < 1.0:
        return "a second"
    if seconds < 120.0:
        return f"{seconds:.0f} s"
    return f"{seconds / 60.0:.0f} min" if seconds < 7200.0 else f"{seconds / 3600.0:.1f} h"
