"""Entries that the journal did not take: what the tables and clients believe is made to agree with
it.

The store has committed the rest, and has ended the tasks that it concerns as failed, with the
reason `store_fault`. This happens before anything that stands on those entries leaves.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from mycel.core.effects import Effect, Reply
from mycel.core.errors import Conflict
from mycel.core.events import CancelJob
from mycel.core.identifiers import JobId, JobNumber, RequestId
from mycel.core.journal import (
    BlockAppended,
    EntryRefused,
    GroupAdded,
    JobOpened,
    TaskEnded,
)
from mycel.core.model.jobs import Job
from mycel.core.model.stages import StageRun
from mycel.core.scheduler.clients.client_requests import Clients
from mycel.core.scheduler.clients.read_views import job_view
from mycel.core.states import JobState
from mycel.core.views import BatchView, JobView, SubmittedView, TaskIsOver

from .state import State

NOBODY = RequestId(0)


class Faults:
    def __init__(self, state: State, clients: Clients) -> None:
        self._state = state
        self._clients = clients

    def amended(
        self, refused: Iterable[EntryRefused], effects: list[Effect], now: float
    ) -> list[Effect]:
        """The effects that waited for the group, as they may leave now."""
        instead: dict[tuple[JobNumber, int], TaskEnded] = {}
        lost: dict[JobId, str] = {}
        for one in refused:
            entry = one.entry
            job = self._job_of(one)
            if job is None:
                continue
            if isinstance(entry, TaskEnded) and one.instead is not None:
                instead[entry.job, entry.index] = one.instead
                self._correct(job, entry)
            elif isinstance(entry, JobOpened | GroupAdded | BlockAppended):
                lost.setdefault(job.id, one.error)
        for job_id in lost:
            self._clients.cancel_job(CancelJob(NOBODY, job_id), now)
        amended = [
            self._reply(effect, instead, lost) if isinstance(effect, Reply) else effect
            for effect in effects
        ]
        return amended + self._state.take_effects()

    def _job_of(self, refused: EntryRefused) -> Job | None:
        entry = refused.entry
        if isinstance(entry, TaskEnded | JobOpened | GroupAdded | BlockAppended):
            return self._state.jobs.get(entry.job)
        return None

    def _correct(self, job: Job, ended: TaskEnded) -> None:
        """It was counted as it ended, and has failed."""
        block = job.block_of(ended.index)
        if block is None or ended.state == "failed":
            return
        counted: list[Job | StageRun | State] = [job, self._state]
        if block.stage is not None:
            counted.append(block.stage)
        for counts in counted:
            if ended.state == "succeeded":
                counts.succeeded -= 1
            else:
                counts.cancelled -= 1
            counts.failed += 1
        job.file_bytes -= ended.value_size
        if job.state is JobState.SUCCEEDED:
            job.state = JobState.FAILED
        if job.stages:
            self._state.staged[job.number] = job

    def _reply(
        self,
        reply: Reply,
        instead: dict[tuple[JobNumber, int], TaskEnded],
        lost: dict[JobId, str],
    ) -> Reply:
        match reply.answer:
            case TaskIsOver(ended=TaskEnded() as ended) as answer:
                found = instead.get((ended.job, ended.index))
                if found is not None:
                    return Reply(reply.request, msgspec.structs.replace(answer, ended=found))
                job_id = answer.job_id
            case SubmittedView(job=JobView(job_id=job_id)) | BatchView(job_id=job_id):
                pass
            case JobView(job_id=job_id):
                job = self._state.job_ids.get(job_id)
                if job is not None and any(number == job.number for number, _ in instead):
                    return Reply(reply.request, job_view(job))
            case _:
                return reply
        if job_id in lost:
            detail = f"job {job_id} cannot be stored, and is cancelled: {lost[job_id]}"
            return Reply(reply.request, Conflict(detail))
        return reply
