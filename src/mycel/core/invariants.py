"""What is always true of the machines. Tests check it after every event."""

from __future__ import annotations

from mycel.core.model.jobs import Job
from mycel.core.scheduler.state import State

from .model import bitmaps
from .scheduler import Scheduler
from .states import AttemptState, LeaseState, StageState, TaskState, WorkerState
from .worker import WorkerMachine


def check_scheduler(scheduler: Scheduler) -> None:
    state = scheduler.state
    _check_attempts(state)
    _check_workers(state)
    _check_pool(state)
    _check_queues(state)
    _check_jobs(state)


def _check_attempts(state: State) -> None:
    assert len(state.current) == len(state.attempts), "a task has two attempts, or none is current"
    for attempt_id, attempt in state.attempts.items():
        assert state.current.get(attempt.key) is attempt, "an attempt that is not current is kept"
        assert attempt.worker.attempts.get(attempt_id) is attempt
        assert state.workers.get(attempt.worker.peer) is attempt.worker, "its worker is forgotten"
        assert attempt.state in (AttemptState.ASSIGNED, AttemptState.RUNNING)
        assert attempt.task_state in (TaskState.LEASED, TaskState.RUNNING)
        assert not attempt.job.is_ended(attempt.block, attempt.index), "an ended task is out"
        assert attempt_id > state.highest_ended(attempt.key), "an attempt below an ended one"
        assert attempt.key not in state.backoff, "a task is out and backs off"
        assert not attempt.block.is_fresh(attempt.index), "a task is out and fresh"


def _check_workers(state: State) -> None:
    for worker in state.workers.values():
        assert worker.state is not WorkerState.DEAD, "a dead worker is kept"
        registration = worker.registration
        assert registration is None or registration.state is not LeaseState.OVER
        assert worker.book.out == len(worker.attempts), "a book miscounts what is out"
        for shape, slots in worker.book.shapes.items():
            assert slots.shape == shape
            out = sum(attempt.slots is slots for attempt in worker.attempts.values())
            assert slots.out == out, "a shape's slots miscount what is out"
            assert len(slots.bookings) <= slots.out, "a slot is booked for nothing"
        for key in worker.lacks_room:
            assert key in worker.excluded, "somebody is left out for ever"


def _check_pool(state: State) -> None:
    pool = state.pool
    described = [one for one in state.workers.values() if one.member is not None]
    assert len(pool) == len(described) + len(state.known), "the pool miscounts its workers"
    for worker in described:
        member = worker.member
        assert member is not None
        assert pool.get(worker.peer) is member, "a worker's place in the pool is another's"
        assert member.linked
        assert member.available == worker.may_be_booked
        assert member.capabilities == worker.capabilities


def _check_queues(state: State) -> None:
    held: dict[int, int] = {}
    live: dict[int, int] = {}
    for attempt in state.attempts.values():
        queue = attempt.slots.queue
        assert state.queues.get(queue.shape) is queue, "a shape is forgotten that has tasks out"
        live[id(queue)] = live.get(id(queue), 0) + 1
    for worker in state.workers.values():
        for slots in worker.book.shapes.values():
            if slots.out:
                held[id(slots.queue)] = held.get(id(slots.queue), 0) + len(slots.bookings)
    waiting = 0
    for queue in state.queues.values():
        assert queue.held_slots == held.get(id(queue), 0), "a shape miscounts its slots"
        assert queue.live == live.get(id(queue), 0), "a shape miscounts what is out"
        fresh = sum(block.fresh for block in queue.blocks)
        assert queue.fresh_old + queue.fresh_new == fresh, "a shape miscounts what waits"
        waiting += queue.all_waiting
        for one in queue.came_back:
            assert one.key not in state.current, "a task waits and is out"
    assert state.tally.waiting == waiting, "what waits in all is miscounted"


def _check_jobs(state: State) -> None:
    held_back = 0
    for job in state.jobs.values():
        if job.state is None:
            held_back += _check_stages(job)
        ended = sum(bitmaps.count(block.ended) for block in job.blocks)
        assert job.ended == ended, "a job miscounts what has ended"
        out = sum(attempt.job is job for attempt in state.attempts.values())
        assert job.live == out, "a job miscounts what is out"
        assert (job.state is None) or job.is_through, "a job ended before its tasks"

    assert state.held_back == held_back, "what waits for its stage is miscounted"


def _check_stages(job: Job) -> int:
    """How many of its tasks are held back."""
    held_back = 0
    for run in job.stages:
        blocks = [block for block in job.blocks if block.stage is run]
        assert run.blocks == blocks, "a stage has lost a block"
        assert run.count == sum(block.count for block in blocks), "a stage miscounts its tasks"
        ended = sum(bitmaps.count(block.ended) for block in blocks)
        assert run.succeeded + run.failed + run.cancelled == ended, "a stage miscounts its ends"
        if run.state in (StageState.STARTED, StageState.ENDED):
            assert all(need.state is StageState.ENDED for need in run.needs), "a stage came early"
        else:
            assert not run.succeeded, "a task ran before its stage started"
            held_back += sum(block.fresh for block in blocks)
    return held_back


def check_worker(worker: WorkerMachine) -> None:
    worker.ledger.assert_sound()
    in_lanes: dict[int, int] = {}
    for run, held in worker.held.items():
        assert held.run == run
        assert worker.lanes.get(held.lanes.key) is held.lanes, "an attempt outlived its slice"
        assert worker.schedulers[held.scheduler].held.get(held.id) is held
        if held.lane is not None:
            assert held.lane in held.lanes.lanes, "an attempt runs in a lane that was closed"
            in_lanes[held.lane.id] = in_lanes.get(held.lane.id, 0) + 1
        else:
            assert held in held.lanes.waiting, "an attempt is nowhere"
    for lanes in worker.lanes.values():
        may_begin = worker.schedulers[lanes.scheduler].lease and not lanes.objection
        assert not (lanes.waiting and worker.closing.reason), "one waits at a closed worker"
        assert not (lanes.waiting and not may_begin), "one waits that may not begin"
        assert not (lanes.waiting and lanes.is_long), "one waits behind long ones"
        for lane in lanes.lanes:
            assert lane.held == in_lanes.get(lane.id, 0), "a lane miscounts what it holds"
            assert lane.held or not worker.closing.reason, "a closed worker keeps a lane warm"
    booked = sum(lane.booking.cpu_millis for one in worker.lanes.values() for lane in one.lanes)
    free = worker.ledger.free.cpu_millis
    assert free + booked == worker.ledger.total.cpu_millis, "cores are booked for nobody"
