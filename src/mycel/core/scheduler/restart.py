"""A scheduler that starts: what its journal says becomes its tables.

Tasks that had not ended may be running at any worker whose registration is journalled. Those
workers are dialled; until each has reported, is dead, or one lease length has passed, the old tasks
wait. New tasks do not.
"""

from __future__ import annotations

from mycel.core.events import Restart
from mycel.core.identifiers import JobNumber, first_of_boot
from mycel.core.journal import GroupAdded, HandedResult, Restored, StoredBlock, StoredJob
from mycel.core.journal_codec import UNREADABLE, decode_specification, decode_stages
from mycel.core.model import bitmaps
from mycel.core.model.jobs import Group, Job, task_key
from mycel.core.model.stages import StageRun, handed_value, runs_of
from mycel.core.scheduler.clients.client_requests import Clients
from mycel.core.scheduler.tasks.deadlines import Deadlines
from mycel.core.scheduler.tasks.stage_progress import Staging
from mycel.core.scheduler.workers.registrations import Registrations
from mycel.core.scheduler.workers.worker_health import Measuring
from mycel.core.scheduler.workers.worker_lifecycle import Presence
from mycel.core.states import JobState, WorkerState

from .state import State


class Restoring:
    def __init__(
        self,
        state: State,
        clients: Clients,
        staging: Staging,
        registrations: Registrations,
        presence: Presence,
        measuring: Measuring,
        deadlines: Deadlines,
    ) -> None:
        self._state = state
        self._measuring = measuring
        self._deadlines = deadlines
        self._clients = clients
        self._staging = staging
        self._registrations = registrations
        self._presence = presence

    def restart(self, event: Restart, now: float) -> None:
        state = self._state
        assert state.boot == 0, "a scheduler starts once"
        state.boot = event.boot
        state.secret = event.secret
        self._measuring.restore(event.restored.health)
        self._restore_jobs(event.restored)
        for job in state.jobs.values():
            self._deadlines.watch(job, now)
        for grant in event.restored.leases:
            worker = state.workers.get(grant.worker)
            if worker is None:
                worker = state.add_worker(grant.worker, WorkerState.EXPECTED)
                worker.addresses = grant.addresses
                self._presence.dial(worker)
                away = now + state.settings.lease_seconds
                state.timers.set(("away", worker.peer), away)
            self._registrations.restore(worker, grant.lease, now)
        state.note("scheduler_started", boot=event.boot, jobs=len(state.jobs))

    def _restore_jobs(self, restored: Restored) -> None:
        state = self._state
        further: dict[JobNumber, list[GroupAdded]] = {}
        for added in restored.groups:
            further.setdefault(added.job, []).append(added)
        for stored in restored.jobs:
            try:
                groups = self._groups(stored, further.get(stored.opened.job, []))
                job = _job_from(stored, groups)
            except UNREADABLE as error:
                # It stays in the journal, where `mycel store check` tells of it.
                state.note("job_unreadable", job=stored.opened.id, error=str(error))
                continue
            self._clients.remember(job)
        for stored_block in restored.blocks:
            if stored_block.appended.job in state.jobs:
                _restore_block(state.jobs[stored_block.appended.job], stored_block)
        for handed in restored.handed:
            if handed.job in state.jobs:
                _restore_result(state.jobs[handed.job], handed)
        for number, size in restored.file_bytes.items():
            if number in state.jobs:
                state.jobs[number].file_bytes = size
        for job in state.jobs.values():
            if job.state is not None:
                state.has_ended(job)
                continue
            for block in job.blocks:
                block.old = True
                self._staging.take_in(block)
        for ended in restored.ended_attempts:
            if ended.job not in state.jobs:
                continue
            key = task_key(ended.job, ended.index)
            state.histories.setdefault(key, []).append(ended)
        state.profiles.restore(restored.profiles)
        # Above those of jobs that an earlier boot sent out and did not live to record.
        state.last_job = max(restored.last_job, first_of_boot(state.boot))
        state.succeeded = restored.tasks_succeeded
        state.failed = restored.tasks_failed
        state.cancelled = restored.tasks_cancelled
        state.timers.set(("prune", None), 0.0)

    def _groups(self, stored: StoredJob, further: list[GroupAdded]) -> tuple[Group, ...]:
        opened = stored.opened
        found = [(opened.specification, 0)]
        for added in further:
            assert added.group == len(found), "the groups of a job have no gaps"
            found.append((added.specification, added.stage))
        return tuple(
            self._state.group_of(decode_specification(encoded), opened.user, stage)
            for encoded, stage in found
        )


def _job_from(stored: StoredJob, groups: tuple[Group, ...]) -> Job:
    opened = stored.opened
    job = Job(opened.job, opened.id, opened.name, opened.user, groups, opened.created_at)
    job.idempotency_key = opened.idempotency_key
    job.body_digest = opened.body_digest
    job.stages = runs_of(decode_stages(opened.stages))
    job.closed = stored.closed
    job.state = JobState(stored.state) if stored.state else None
    job.ended_at = stored.ended_at
    return job


def _restore_block(job: Job, stored: StoredBlock) -> None:
    appended = stored.appended
    block = job.append(
        appended.group,
        appended.batch,
        appended.count,
        appended.arguments,
        appended.owner_epoch,
    )
    assert block.first == appended.first, "the blocks of a job have no gaps"
    block.restore_ended(bitmaps.union(stored.succeeded, stored.failed, stored.cancelled))
    block.digest = appended.digest
    counted: list[Job | StageRun] = [job] if block.stage is None else [job, block.stage]
    for counts in counted:
        counts.succeeded += bitmaps.count(stored.succeeded)
        counts.failed += bitmaps.count(stored.failed)
        counts.cancelled += bitmaps.count(stored.cancelled)


def _restore_result(job: Job, handed: HandedResult) -> None:
    block = job.block_of(handed.index)
    assert block is not None
    assert block.stage is not None
    block.stage.keep(handed.index, handed_value(handed.value, handed.stdout))
