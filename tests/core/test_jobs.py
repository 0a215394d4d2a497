"""A waiting task is arithmetic over its block: every task is handed out exactly once."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from mycel.core.identifiers import JobId, JobNumber, PeerId
from mycel.core.model import bitmaps
from mycel.core.model.jobs import Group, Job, Specification, index_of, job_of, task_key
from mycel.core.model.resources import Requirements
from mycel.core.model.work import Work
from mycel.core.scheduler.tasks.shape_queue import Backoff, ShapeQueue, Usual, Waiting
from mycel.core.states import JobState, TaskState


def job_with(*counts: int, arguments: bool = False) -> Job:
    specification = Specification(Work("process"), Requirements())
    group = Group.of(specification, "owner")
    job = Job(JobNumber(1), JobId("0" * 26), "", "owner", (group,), 0.0)
    for batch, count in enumerate(counts):
        encoded = msgspec.json.encode([[n] for n in range(count)]) if arguments else b""
        job.append(0, batch, count, encoded, 1)
    return job


@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=4),
    st.lists(st.integers(0, 80), max_size=20),
    st.lists(st.integers(1, 9), max_size=40),
)
def test_each_task_leaves_its_queue_once(
    counts: list[int], out_of_order: list[int], takes: list[int]
) -> None:
    job = job_with(*counts)
    queue = ShapeQueue(job.groups[0].shape, Usual())
    for block in job.blocks:
        queue.add_block(block)
    left: list[int] = []
    for index in out_of_order:
        block_of_it = job.block_of(index)
        if block_of_it is not None and queue.take_one(block_of_it, index):
            left.append(index)
    for limit in takes:
        left += [index for _, index in queue.take(limit)]
    assert len(left) == len(set(left))
    assert queue.waiting == job.count - len(left)
    left += [index for _, index in queue.take(10_000)]
    assert sorted(left) == list(range(job.count))


def test_what_was_cancelled_is_not_ahead_of_anything() -> None:
    job = job_with(200, 10)
    queue = ShapeQueue(job.groups[0].shape, Usual())
    for block in job.blocks:
        queue.add_block(block)
    first, second = job.blocks
    queue.take(3)
    for index in (2, 5, 6, 90, 150):  # the first of them was handed out before
        queue.take_one(first, index)
    assert queue.position(first, 3) == 0
    assert queue.position(first, 100) == 97 - 3
    assert queue.position(first, 199) == 196 - 4
    assert queue.position(second, 204) == 197 - 4 + 4


def test_what_comes_back_goes_first() -> None:
    job = job_with(5)
    queue = ShapeQueue(job.groups[0].shape, Usual())
    [block] = job.blocks
    queue.add_block(block)
    [(_, first)] = queue.take(1)
    queue.give_back(Waiting(task_key(job.number, first), block, first))
    assert queue.position(block, first) == 0
    assert queue.position(block, 3) == 3
    assert [index for _, index in queue.take(3)] == [0, 1, 2]


def test_old_tasks_wait_for_the_recovery_and_new_ones_do_not() -> None:
    old, new = job_with(3), job_with(2)
    old.blocks[0].old = True
    recovering = {PeerId("worker")}
    queue = ShapeQueue(old.groups[0].shape, Usual(), recovering)
    queue.add_block(old.blocks[0])
    queue.add_block(new.blocks[0])
    assert [block.job for block, _ in queue.take(9)] == [new, new]
    recovering.clear()
    assert [block.job for block, _ in queue.take(9)] == [old, old, old]


def test_arguments_are_found_by_index() -> None:
    job = job_with(3, 4, arguments=True)
    block = job.block_of(5)
    assert block is job.blocks[1]
    argument = block.argument(5)
    assert argument is not None
    assert bytes(argument) == b"[2]"
    assert job.block_of(7) is None


def test_a_job_ends_as_its_tasks_did() -> None:
    job = job_with(3)
    [block] = job.blocks
    for index, state in enumerate((TaskState.SUCCEEDED, TaskState.FAILED, TaskState.CANCELLED)):
        assert not job.is_through
        job.end_task(block, index, state)
    job.closed = True
    assert job.is_through
    assert job.final_state() is JobState.FAILED
    assert bitmaps.count(block.ended) == 3


@given(st.integers(1, 2**31 - 1), st.integers(0, 2**32 - 1))
def test_a_task_key_holds_job_and_index(job: int, index: int) -> None:
    key = task_key(JobNumber(job), index)
    assert (job_of(key), index_of(key)) == (job, index)


def test_backing_off_can_be_called_off() -> None:
    job = job_with(2)
    [block] = job.blocks
    backoff = Backoff()
    for index in (0, 1):
        backoff.add(Waiting(task_key(job.number, index), block, index), 10.0 + index)
    assert backoff.next_due == 10.0
    assert backoff.remove(task_key(job.number, 0), block)
    assert backoff.next_due == 11.0
    assert backoff.has_any_of(block.group.shape)
    assert [waiting.index for waiting in backoff.take_due(20.0)] == [1]
    assert len(backoff) == 0
    assert not backoff.has_any_of(block.group.shape)
