"""What clients ask: jobs opened, filled, closed, cancelled and waited for."""

from __future__ import annotations

from collections import deque
from typing import TypeVar

from mycel.core.errors import Conflict, NotFound, Refusal, TooMany, Unprocessable
from mycel.core.events import (
    Append,
    CancelJob,
    CancelTask,
    CloseJob,
    Forget,
    Submit,
    WaitJob,
    WaitTask,
)
from mycel.core.identifiers import JobId, JobNumber, RequestId, task_id
from mycel.core.journal import BlockAppended, GroupAdded, JobClosed, JobOpened
from mycel.core.journal_codec import encode_specification, encode_stages
from mycel.core.model.jobs import Block, Group, Job, Specification, TaskKey, task_key
from mycel.core.model.stages import runs_of
from mycel.core.scheduler.state import State
from mycel.core.scheduler.tasks.attempts import Attempts
from mycel.core.scheduler.tasks.completion import Ending
from mycel.core.scheduler.tasks.deadlines import Deadlines
from mycel.core.scheduler.tasks.stage_progress import Staging
from mycel.core.scheduler.workers.dialling import Calling
from mycel.core.states import JobState
from mycel.core.views import BatchView, SubmittedView

from .dry_run import Previewing
from .read_views import job_view, over

Key = TypeVar("Key")

KEY_SECONDS = 86_400.0
"""So long an idempotency key stands for the job that it came with."""
CANCEL_CHUNK = 500
"""So many tasks of a cancelled job end in one event."""


class Clients:
    def __init__(
        self,
        state: State,
        attempts: Attempts,
        ending: Ending,
        deadlines: Deadlines,
        calling: Calling,
        staging: Staging,
        previewing: Previewing,
    ) -> None:
        self._state = state
        self._attempts = attempts
        self._ending = ending
        self._deadlines = deadlines
        self._calling = calling
        self._staging = staging
        self._previewing = previewing
        self._cancelling: deque[tuple[Job, int, RequestId]] = deque()

    # Jobs

    def submit(self, event: Submit, now: float) -> None:
        state = self._state
        before = state.job_ids.get(event.job_id)
        keyed = self._keyed(event.idempotency_key, now) if event.idempotency_key else None
        if before is None and keyed is not None:
            before = keyed
        if before is not None:
            self._submitted_again(event, before, keyed is not None)
            return
        refusal = self._refusal(event, now)
        if refusal is not None:
            state.reply(event.request, refusal)
            return
        if event.dry_run:
            state.reply(event.request, self._previewing.preview(event))
            return
        job = self._open(event, now)
        if event.derived is not None:
            for part in event.derived.parts:
                self._append(job, part.group, part.count, part.arguments, now)
        elif event.count:
            self._append(job, 0, event.count, event.arguments, now)
        if event.close:
            self._close(job, now)
        if event.wait and job.count == 1:
            state.task_waiters.setdefault(task_key(job.number, 0), []).append(event.request)
        else:
            state.reply(event.request, SubmittedView(job_view(job), again=False))

    def _keyed(self, key: str, now: float) -> Job | None:
        """The job that this key stands for, as long as it does."""
        job = self._state.idempotency_keys.get(key)
        if job is None or self._state.unix(now) - job.created_at > KEY_SECONDS:
            return None
        return job

    def _submitted_again(self, event: Submit, before: Job, by_key: bool) -> None:
        state = self._state
        if before.user != event.user:
            state.reply(event.request, Conflict(f"the job id {event.job_id} is taken"))
        elif before.body_digest != event.body_digest:
            detail = f"job {before.id} was submitted before with another body"
            refusal = Unprocessable(f"the key was used: {detail}") if by_key else Conflict(detail)
            state.reply(event.request, refusal)
        elif event.wait and before.count == 1:
            self._wait_for(event.request, before, 0)
        else:
            state.reply(event.request, SubmittedView(job_view(before), again=True))

    def _refusal(self, event: Submit, now: float) -> Refusal | None:
        if event.require_satisfiable:
            pool = self._state.pool
            for specification, _ in _groups_in(event):
                if not pool.eligible(Group.of(specification, event.user).shape):
                    return Unprocessable(
                        f"none of the {len(pool)} known workers can run it; without "
                        "require_satisfiable it would wait for one that can"
                    )
        for specification, _ in _groups_in(event):
            if self._state.is_past_deadline(specification, now):
                return Unprocessable("its deadline has passed already")
        if event.derived is not None:
            return self._too_long_a_queue(event.derived.count)
        return self._too_many(event.count)

    def _too_many(self, count: int) -> Refusal | None:
        settings = self._state.settings
        if count > settings.max_batch_tasks:
            return Unprocessable(
                f"a batch of {count} tasks is over the limit of {settings.max_batch_tasks}; "
                "open the job, append batches, close it"
            )
        return self._too_long_a_queue(count)

    def _too_long_a_queue(self, count: int) -> Refusal | None:
        settings = self._state.settings
        if self._state.queued + count > settings.max_queued_tasks:
            return TooMany(f"the queue is full ({settings.max_queued_tasks} tasks)", 5)
        return None

    def _open(self, event: Submit, now: float) -> Job:
        state = self._state
        state.last_job += 1
        number = JobNumber(state.last_job)
        groups = tuple(
            state.group_of(self._previewing.prepared(specification), event.user, stage)
            for specification, stage in _groups_in(event)
        )
        created_at = state.unix(now)
        job = Job(number, event.job_id, event.name, event.user, groups, created_at)
        stages = () if event.derived is None else event.derived.stages
        job.stages = runs_of(stages)
        job.idempotency_key = event.idempotency_key
        job.body_digest = event.body_digest
        self.remember(job)
        opened = JobOpened(
            number,
            event.job_id,
            event.name,
            event.user,
            encode_specification(groups[0].specification),
            created_at,
            event.idempotency_key,
            event.body_digest,
            encode_stages(stages),
        )
        state.record(opened)
        self._deadlines.watch(job, now)
        state.tell("job.submitted", now, job, name=job.name)
        for place, group in enumerate(groups[1:], 1):
            encoded = encode_specification(group.specification)
            state.record(GroupAdded(number, place, group.stage, encoded))
        return job

    def remember(self, job: Job) -> None:
        state = self._state
        state.jobs[job.number] = state.job_ids[job.id] = job
        state.last_job = max(state.last_job, job.number)
        if job.idempotency_key:
            state.idempotency_keys[job.idempotency_key] = job

    def _append(
        self,
        job: Job,
        group: int,
        count: int,
        arguments: bytes,
        now: float,
        digest: bytes = b"",
    ) -> Block:
        state = self._state
        block = job.append(group, len(job.blocks), count, arguments, state.owner_epoch)
        block.digest = digest
        appended_at = state.unix(now)
        state.record(
            BlockAppended(
                job.number,
                block.batch,
                block.first,
                count,
                arguments,
                block.owner_epoch,
                appended_at,
                group,
                digest,
            )
        )
        self._calling.work_comes(now)
        state.tell("task.queued", now, job, first=block.first, count=count)
        self._staging.take_in(block)
        return block

    def _close(self, job: Job, now: float) -> None:
        job.closed = True
        self._state.record(JobClosed(job.number))
        if job.stages:
            self._state.staged[job.number] = job
        if job.is_through:
            # With no task's end to ride on, whoever listens would not hear of it.
            self._ending.job(job, now)
            self._state.tell(f"job.{job.shown_state.value}", now, job, name=job.name)

    def append(self, event: Append, now: float) -> None:
        state = self._state
        job = self._job(event.request, event.job_id)
        if job is None:
            return
        digest = state.digest(b"%d %s " % (event.count, event.stage.encode()) + event.arguments)
        answer = self._append_answer(job, event, digest, now)
        if answer is None:
            group = _group_of_stage(job, event.stage)
            assert group is not None, "the answer to an unknown stage is a refusal"
            block = self._append(job, group, event.count, event.arguments, now, digest)
            answer = BatchView(job.id, block.batch, block.first, block.count, again=False)
        state.reply(event.request, answer)

    def _append_answer(self, job: Job, event: Append, digest: bytes, now: float) -> object | None:
        """What to answer without taking the batch in; None if it is to be taken in."""
        if 0 <= event.batch < len(job.blocks):
            block = job.blocks[event.batch]
            if block.digest == digest:
                return BatchView(job.id, block.batch, block.first, block.count, again=True)
            return Conflict(f"batch {event.batch} of job {job.id} came before with other tasks")
        if event.batch != len(job.blocks):
            return Conflict(f"job {job.id} expects batch {len(job.blocks)}, not {event.batch}")
        if job.closed:
            return Conflict(f"job {job.id} is closed: it takes no further batches")
        if self._state.is_past_deadline(job.groups[0].specification, now):
            return Conflict(f"the deadline of job {job.id} has passed: it takes no further batches")
        if event.count < 1:
            return Unprocessable("a batch needs at least one task")
        if _group_of_stage(job, event.stage) is None:
            known = ", ".join(repr(run.name) for run in job.stages) or "none"
            return Unprocessable(f"the job has no stage {event.stage!r}; its stages: {known}")
        return self._too_many(event.count)

    def close(self, event: CloseJob, now: float) -> None:
        job = self._job(event.request, event.job_id)
        if job is None:
            return
        if not job.closed:
            self._close(job, now)
        self._state.reply(event.request, job_view(job))

    # Cancelling

    def cancel_task(self, event: CancelTask, now: float) -> None:
        found = self._task(event.request, event.job_id, event.index)
        if found is None:
            return
        job, block, key = found
        if not job.is_ended(block, event.index):
            self._attempts.cancel(key, block, event.index, "cancelled by its user", now)
        self._state.reply(event.request, over(job, block, event.index))

    def cancel_job(self, event: CancelJob, now: float) -> None:
        """Large jobs are cancelled piece by piece; the answer comes with the last piece."""
        job = self._job(event.request, event.job_id)
        if job is None:
            return
        if job.state is not None:
            late = Conflict(f"job {job.id} has {job.state}: there is nothing left to cancel")
            cancelled = job.state is JobState.CANCELLED
            self._state.reply(event.request, job_view(job) if cancelled else late)
            return
        if not job.closed:
            self._close(job, now)
        job.cancelling = True
        self._cancelling.append((job, 0, event.request))
        self.go_on(now)

    @property
    def has_more(self) -> bool:
        return bool(self._cancelling)

    def go_on(self, now: float) -> None:
        """The next piece of what is too long for one event."""
        if not self._cancelling:
            return
        job, index, request = self._cancelling.popleft()
        left = CANCEL_CHUNK
        while index < job.count and left:
            block = job.block_of(index)
            assert block is not None
            if not job.is_ended(block, index):
                key = task_key(job.number, index)
                self._attempts.cancel(key, block, index, "its job was cancelled", now)
                left -= 1
            index += 1
        if index < job.count:
            self._cancelling.appendleft((job, index, request))
        else:
            self._state.reply(request, job_view(job))

    # Waiting

    def wait_task(self, event: WaitTask, now: float) -> None:
        found = self._task(event.request, event.job_id, event.index)
        if found is not None:
            self._wait_for(event.request, found[0], event.index)

    def _wait_for(self, request: RequestId, job: Job, index: int) -> None:
        block = job.block_of(index)
        assert block is not None
        if job.is_ended(block, index):
            self._state.reply(request, over(job, block, index))
        else:
            key = task_key(job.number, index)
            self._state.task_waiters.setdefault(key, []).append(request)

    def wait_job(self, event: WaitJob, now: float) -> None:
        job = self._job(event.request, event.job_id)
        if job is None:
            return
        if job.state is not None:
            self._state.reply(event.request, job_view(job))
        else:
            self._state.job_waiters.setdefault(job.number, []).append(event.request)

    def forget(self, event: Forget, now: float) -> None:
        _drop_waiter(self._state.task_waiters, event.request)
        _drop_waiter(self._state.job_waiters, event.request)

    # Look-ups that answer by themselves when nothing is found

    def _job(self, request: RequestId, job_id: JobId) -> Job | None:
        job = self._state.job_ids.get(job_id)
        if job is None:
            self._state.reply(request, NotFound(f"there is no job {job_id}"))
        return job

    def _task(
        self, request: RequestId, job_id: JobId, index: int
    ) -> tuple[Job, Block, TaskKey] | None:
        job = self._state.job_ids.get(job_id)
        block = job.block_of(index) if job is not None else None
        if job is None or block is None:
            self._state.reply(request, NotFound(f"there is no task {task_id(job_id, index)}"))
            return None
        return job, block, task_key(job.number, index)


def _groups_in(event: Submit) -> tuple[tuple[Specification, int], ...]:
    """The specification of each group, and its stage."""
    return ((event.specification, 0),) if event.derived is None else event.derived.groups


def _group_of_stage(job: Job, stage: str) -> int | None:
    """The first group of the stage of this name, or of the first stage."""
    if not stage:
        return 0
    for place, group in enumerate(job.groups):
        if job.stages and job.stages[group.stage].name == stage:
            return place
    return None


def _drop_waiter(waiters: dict[Key, list[RequestId]], request: RequestId) -> None:
    for key, requests in list(waiters.items()):
        if request in requests:
            requests.remove(request)
            if not requests:
                del waiters[key]
