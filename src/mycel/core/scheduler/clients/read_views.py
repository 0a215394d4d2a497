"""Answers to reads: cut out of the tables, never stored per task."""

from __future__ import annotations

from typing import Final

from mycel.core.errors import NotFound
from mycel.core.events import (
    ExplainTask,
    ReadFigures,
    ReadJob,
    ReadLiveTasks,
    ReadServices,
    ReadTask,
    ReadWorkers,
)
from mycel.core.identifiers import JobId, task_id
from mycel.core.journal import TaskEnded
from mycel.core.model.jobs import Block, Job, task_key
from mycel.core.model.stages import StageRun
from mycel.core.model.work import SERVICE
from mycel.core.scheduler.records import Worker
from mycel.core.scheduler.state import State
from mycel.core.scheduler.trust.breaker import BreakerState
from mycel.core.scheduler.trust.guard import Guard
from mycel.core.scheduler.workers.known_workers import KnownWorker
from mycel.core.scheduler.workers.slot_books import room_of
from mycel.core.states import StageState, TaskState, WorkerState
from mycel.core.views import (
    Explanation,
    Fact,
    Figures,
    JobView,
    LiveTasks,
    ServiceView,
    Span,
    StageView,
    TaskIsOver,
    TaskView,
    WorkerView,
)

from .explanation import Explaining

NAMES_SHOWN: Final = 5
LIVE_TASKS_MAX: Final = 1000
KNOWN_EXPLAINED_MAX: Final = 1000
"""So many workers without a link are held against a task for an explanation."""


def job_view(job: Job) -> JobView:
    return JobView(
        job_id=job.id,
        name=job.name,
        user=job.user,
        state=job.shown_state.value,
        closed=job.closed,
        batches=len(job.blocks),
        tasks=job.count,
        queued=job.count - job.live - job.ended,
        live=job.live,
        succeeded=job.succeeded,
        failed=job.failed,
        cancelled=job.cancelled,
        created_at=job.created_at,
        ended_at=job.ended_at,
        stages=[_stage_view(run) for run in job.stages],
    )


def _stage_view(run: StageRun) -> StageView:
    state = run.state.value
    if run.count and run.all_ended:
        state = "failed" if run.failed else "cancelled" if run.cancelled else "succeeded"
    elif run.state is StageState.STARTED:
        state = "running"
    elif run.state is StageState.ENDED:
        state = "succeeded"
    elif run.state is StageState.SKIPPED:
        state = "cancelled"
    return StageView(
        name=run.name,
        needs=[need.name for need in run.needs],
        on_failure=run.stage.policy.value,
        state=state,
        tasks=run.count,
        succeeded=run.succeeded,
        failed=run.failed,
        cancelled=run.cancelled,
    )


def stage_name(block: Block) -> str:
    return "" if block.stage is None else block.stage.name


def over(job: Job, block: Block, index: int, ended: TaskEnded | None = None) -> TaskIsOver:
    specification, stage = block.group.specification, stage_name(block)
    return TaskIsOver(job.id, index, job.name, specification, job.created_at, stage, ended)


class Views:
    def __init__(self, state: State, guard: Guard) -> None:
        self._state = state
        self._guard = guard
        self._explaining = Explaining(state, guard)

    def read_task(self, event: ReadTask, now: float) -> None:
        self._state.reply(event.request, self._task(event, now))

    def read_live_tasks(self, event: ReadLiveTasks, now: float) -> None:
        self._state.reply(event.request, self._live_tasks(event, now))

    def explain_task(self, event: ExplainTask, now: float) -> None:
        self._state.reply(event.request, self._explain(event, now))

    def read_job(self, event: ReadJob, now: float) -> None:
        job = self._state.job_ids.get(event.job_id)
        missing = NotFound(f"there is no job {event.job_id}")
        self._state.reply(event.request, missing if job is None else job_view(job))

    def read_workers(self, event: ReadWorkers, now: float) -> None:
        known = self._state.workers.values()
        views = [self.worker(one) for one in known if one.state is not WorkerState.EXPECTED]
        views += [self._known_view(one) for one in self._state.known]
        self._state.reply(event.request, views)

    def read_services(self, event: ReadServices, now: float) -> None:
        found = [job for job in self._state.jobs.values() if job.state is None and job.blocks]
        views = []
        for job in found:
            work = job.blocks[0].work
            if work.driver == SERVICE:
                replicas = sum(block.count for block in job.blocks) - job.ended
                views.append(ServiceView(job.id, job.user, work.model, replicas, work.parameters))
        self._state.reply(event.request, views)

    def read_figures(self, event: ReadFigures, now: float) -> None:
        self._state.reply(event.request, self.figures())

    def _task(self, event: ReadTask, now: float) -> TaskView | TaskIsOver | NotFound:
        found = self._find(event.job_id, event.index)
        if found is None:
            return NotFound(f"there is no task {task_id(event.job_id, event.index)}")
        job, block = found
        if job.is_ended(block, event.index):
            return over(job, block, event.index)
        return self._task_view(job, block, event.index, now)

    def _live_tasks(self, event: ReadLiveTasks, now: float) -> LiveTasks | NotFound:
        job = self._state.job_ids.get(event.job_id)
        if job is None:
            return NotFound(f"there is no job {event.job_id}")
        first = max(0, event.first)
        last = min(first + min(event.limit, LIVE_TASKS_MAX), job.count)
        found = LiveTasks([], [])
        while first < last:
            block = job.block_of(first)
            assert block is not None, "the blocks of a job have no gaps"
            end = min(last, block.first + block.count)
            found.spans.append(
                Span(first, end - first, block.group.specification, stage_name(block))
            )
            found.tasks.extend(
                self._task_view(job, block, index, now)
                for index in range(first, end)
                if not job.is_ended(block, index)
            )
            first = end
        return found

    def _find(self, job_id: JobId, index: int) -> tuple[Job, Block] | None:
        job = self._state.job_ids.get(job_id)
        block = job.block_of(index) if job is not None else None
        return None if job is None or block is None else (job, block)

    def _task_view(self, job: Job, block: Block, index: int, now: float) -> TaskView:
        state = self._state
        key = task_key(job.number, index)
        attempt = state.current.get(key)
        due_at = state.backoff.due_at(key)
        started_at = attempt.started_at if attempt is not None else None
        return TaskView(
            job_id=job.id,
            index=index,
            name=job.name,
            user=job.user,
            specification=block.group.specification,
            state=TaskState.QUEUED.value if attempt is None else attempt.task_state.value,
            reason="" if attempt is not None else self._explaining.reason(block, key),
            number=1 + state.counted(key) if attempt is None else attempt.number,
            worker=None if attempt is None else attempt.worker.peer,
            worker_name="" if attempt is None else attempt.worker.name,
            created_at=job.created_at,
            started_at=None if started_at is None else state.unix(started_at),
            ended_attempts=list(state.histories.get(key, ())),
            next_try_at=None if due_at is None else state.unix(due_at),
            stage=stage_name(block),
            progress=b"" if attempt is None else attempt.progress,
        )

    def _explain(self, event: ExplainTask, now: float) -> Explanation | NotFound:
        found = self._find(event.job_id, event.index)
        if found is None:
            return NotFound(f"there is no task {task_id(event.job_id, event.index)}")
        job, block = found
        if job.is_ended(block, event.index):
            return self._explaining.ended(block, event.index)
        view = self._task_view(job, block, event.index, now)
        return self._explaining.explain(view, block, now)

    # Workers and figures

    def _shown_state(self, worker: Worker) -> str:
        """Of a healthy one that gets no work, or a single task that tries it, that."""
        if worker.is_healthy and self._guard.is_quarantined(worker):
            return BreakerState.QUARANTINED.value
        return worker.state.value

    def worker(self, worker: Worker) -> WorkerView:
        heard = worker.last_heard
        has_said = "load" in worker.facts  # not if it was called and has not come yet
        return WorkerView(
            peer=worker.peer,
            name=worker.name,
            state=self._shown_state(worker),
            accepting=worker.accepting,
            capabilities=worker.capabilities,
            free=room_of(worker) if has_said else None,
            running=len(worker.attempts),
            leases=int(worker.registration is not None),
            slots=worker.book.booked,
            success_rate=worker.health.success_rate,
            avg_completion_seconds=worker.health.avg_completion_seconds,
            last_seen_at=worker.health.last_seen_at if heard is None else self._state.unix(heard),
            consecutive_failures=worker.missed + worker.health.consecutive_failures,
            rtt_seconds=worker.rtt_seconds,
            addresses=worker.addresses,
            software_version=worker.software_version,
            facts=tuple(
                Fact(fact, source, self._state.unix(at))
                for fact, (source, at) in worker.facts.items()
            ),
            closed_for=worker.closed_for,
            usage=worker.usage,
            tasks=worker.running if has_said else None,
        )

    def _known_view(self, known: KnownWorker) -> WorkerView:
        """As it was last heard of; what is free of it nobody knows."""
        health = self._state.healths.get(known.peer)
        seen_at = self._state.unix(known.seen_at)
        heard_at = seen_at if known.heard_at is None else self._state.unix(known.heard_at)
        failures = 0 if health is None else health.consecutive_failures
        presence = known.source if known.heard_at is None else "check"
        return WorkerView(
            peer=known.peer,
            name=known.name,
            state="suspect" if known.missed else "known",
            accepting=True,
            capabilities=known.capabilities,
            free=None,
            running=0,
            leases=0,
            slots=0,
            success_rate=None if health is None else health.success_rate,
            avg_completion_seconds=None if health is None else health.avg_completion_seconds,
            last_seen_at=heard_at,
            consecutive_failures=known.missed + failures,
            rtt_seconds=known.rtt_seconds,
            addresses=known.addresses,
            software_version=known.software_version,
            facts=(
                Fact("presence", presence, heard_at),
                Fact("capabilities", known.source, seen_at),
            ),
            tasks=None,
        )

    def figures(self) -> Figures:
        state = self._state
        workers = state.workers.values()
        return Figures(
            tasks_queued=state.queued,
            tasks_live=len(state.attempts),
            tasks_succeeded=state.succeeded,
            tasks_failed=state.failed,
            tasks_cancelled=state.cancelled,
            attempts_ended_unsuccessfully=state.unsuccessful_attempts,
            workers_known=len(workers) + len(state.known),
            workers_available=sum(
                one.is_healthy and one.accepting and not self._guard.is_quarantined(one)
                for one in workers
            ),
            workers_quarantined=sum(map(self._guard.is_quarantined, workers)),
            workers_busy=sum(bool(one.attempts) for one in workers),
            jobs_open=sum(job.state is None for job in state.jobs.values()),
            results_damaged=state.results_damaged,
            results_refused=state.results_refused,
            forgeries_refused=state.forgeries_refused,
            workers_refused=state.workers_refused,
            checks_late=state.checks_late,
            workers_linked=len(state.linked),
            leases_held=sum(one.registration is not None for one in workers),
        )
