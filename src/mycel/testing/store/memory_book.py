"""What a journal's entries add up to, in memory, under the same rules as in SQLite."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from mycel.core.identifiers import FENCED_MAX, JobId, JobNumber, PeerId
from mycel.core.journal import (
    AttemptEnded,
    BlockAppended,
    Entry,
    GroupAdded,
    JobClosed,
    JobEnded,
    JobOpened,
    JobsPruned,
    LeaseEnded,
    LeaseGranted,
    PartKept,
    ProfileSeen,
    Restored,
    StoredBlock,
    StoredJob,
    TaskEnded,
    WorkerMeasured,
    WorkersForgotten,
)
from mycel.core.model.stages import TOO_MUCH
from mycel.store.errors import (
    AlreadyEnded,
    AttemptOutdated,
    OwnershipLost,
    RuleBroken,
    TaskUnknown,
    ValueIncomplete,
)
from mycel.store.interface import Result
from mycel.store.sqlite.journal_writer import PROFILES_MAX, as_ended
from mycel.store.sqlite.stage_results import handed_results

STATES: Final = ("succeeded", "failed", "cancelled")


class BookBlock:
    def __init__(self, appended: BlockAppended, number: int) -> None:
        self.appended = appended
        self.number = number
        self.ended = 0
        length = -(-appended.count // 8)
        self.bitmaps = {state: bytearray(length) for state in STATES}

    def stored(self) -> StoredBlock:
        appended = self.appended
        if self.ended == appended.count:
            # As in SQLite: nobody needs the arguments of a block that is done.
            appended = msgspec.structs.replace(appended, arguments=b"")
        succeeded, failed, cancelled = (bytes(self.bitmaps[state]) for state in STATES)
        return StoredBlock(appended, succeeded, failed, cancelled)


class BookJob:
    def __init__(self, opened: JobOpened) -> None:
        self.opened = opened
        self.closed = False
        self.state = ""
        self.ended_at: float | None = None
        self.groups: list[GroupAdded] = []
        self.blocks: list[BookBlock] = []
        self.firsts: list[int] = []
        """The first index of each block."""
        self.batches: set[int] = set()
        self.results: list[Result] = []
        self.by_index: dict[int, Result] = {}
        self.attempts: dict[int, list[AttemptEnded]] = {}

    def block_of(self, index: int) -> BookBlock | None:
        place = bisect_right(self.firsts, index) - 1
        if place < 0:
            return None
        block = self.blocks[place]
        return block if index < block.appended.first + block.appended.count else None


class MemoryBook:
    """Committed state. An entry that breaks a rule raises, and has changed nothing."""

    def __init__(self) -> None:
        self.jobs: dict[JobNumber, BookJob] = {}
        self.numbers: dict[JobId, JobNumber] = {}
        self.leases: dict[PeerId, LeaseGranted] = {}
        self.profiles: dict[str, ProfileSeen] = {}
        self.health: dict[PeerId, WorkerMeasured] = {}
        self.values: dict[tuple[int, int, int], bytearray] = {}
        """What stands in files elsewhere, by job, index and attempt."""
        self.last_sequence = 0
        self.pruned_sequence = 0
        self.highest_job = 0
        self.totals = dict.fromkeys(STATES, 0)
        self.faulted: set[int] = set()
        """Jobs of which a task could not be stored as it ended."""
        self._blocks = 0
        self._apply: Final[dict[type[Any], Callable[[Any], None]]] = {
            JobOpened: self._open_job,
            GroupAdded: self._add_group,
            BlockAppended: self._append_block,
            JobClosed: self._close_job,
            JobEnded: self._end_job,
            JobsPruned: self._prune_jobs,
            TaskEnded: self._end_task,
            AttemptEnded: self._end_attempt,
            LeaseGranted: self._grant_lease,
            LeaseEnded: self._end_lease,
            PartKept: self._keep_part,
            ProfileSeen: self._see_profile,
            WorkerMeasured: self._measure_worker,
            WorkersForgotten: self._forget_workers,
        }

    def apply(self, entry: Entry) -> None:
        self._apply[type(entry)](entry)

    def forget_impossible_attempts(self, ended: TaskEnded | AttemptEnded, impossible: int) -> bool:
        """Those of its task from that number on; whether there were any."""
        attempts = self.jobs[ended.job].attempts
        before = attempts.get(ended.index, [])
        after = [one for one in before if one.attempt < impossible]
        attempts[ended.index] = after
        return len(after) < len(before)

    def find(self, job: JobId) -> BookJob | None:
        number = self.numbers.get(job)
        return None if number is None else self.jobs[number]

    def restored(self, impossible: int = FENCED_MAX + 1) -> Restored:
        """Without attempts from that number on, which nobody has given."""
        jobs = [self.jobs[number] for number in sorted(self.jobs)]
        blocks = sorted((block for job in jobs for block in job.blocks), key=lambda b: b.number)
        stored = [StoredJob(job.opened, job.closed, job.state, job.ended_at) for job in jobs]
        groups = [group for job in jobs for group in job.groups]
        stored_blocks = [block.stored() for block in blocks]
        return Restored(
            jobs=stored,
            groups=groups,
            blocks=stored_blocks,
            ended_attempts=[
                attempt
                for job in jobs
                for index in sorted(job.attempts)
                if index not in job.by_index
                for attempt in job.attempts[index]
                if attempt.attempt < impossible
            ],
            leases=[self.leases[key] for key in sorted(self.leases)],
            last_job=self.highest_job,
            tasks_succeeded=self.totals["succeeded"],
            tasks_failed=self.totals["failed"],
            tasks_cancelled=self.totals["cancelled"],
            file_bytes=self._file_bytes(jobs),
            profiles=[self.profiles[kind] for kind in sorted(self.profiles)],
            health=[self.health[worker] for worker in sorted(self.health)],
            handed=handed_results(stored, groups, stored_blocks, self._values),
        )

    def _values(
        self, number: JobNumber, first: int, end: int
    ) -> Iterator[tuple[int, bytes, bytes]]:
        results = self.jobs[number].by_index
        for index in range(first, end):
            if index in results and results[index].ended.state == "succeeded":
                ended = results[index].ended
                yield index, TOO_MUCH if ended.value_size else ended.value, ended.stdout

    def _job(self, number: JobNumber) -> BookJob:
        job = self.jobs.get(number)
        if job is None:
            raise RuleBroken(f"job {number} does not exist")
        return job

    def _open_job(self, opened: JobOpened) -> None:
        if opened.job in self.jobs or opened.id in self.numbers:
            raise RuleBroken(f"job {opened.id} exists already")
        self.jobs[opened.job] = BookJob(opened)
        self.numbers[opened.id] = opened.job
        self.highest_job = max(self.highest_job, opened.job)

    def _add_group(self, added: GroupAdded) -> None:
        job = self._job(added.job)
        if job.closed or job.state or any(one.group == added.group for one in job.groups):
            raise RuleBroken(
                f"group {added.group} of job {added.job} is there already, or its job is closed"
            )
        job.groups.append(added)

    def _append_block(self, appended: BlockAppended) -> None:
        job = self._job(appended.job)
        last = job.blocks[-1].appended if job.blocks else None
        repeated = appended.batch in job.batches
        overlapping = last is not None and appended.first < last.first + last.count
        if repeated or overlapping or job.closed or job.state:
            raise RuleBroken(
                f"batch {appended.batch} of job {appended.job} repeats another, overlaps it, "
                "or its job is closed"
            )
        self._blocks += 1
        job.blocks.append(BookBlock(appended, self._blocks))
        job.firsts.append(appended.first)
        job.batches.add(appended.batch)

    def _close_job(self, closed: JobClosed) -> None:
        self._job(closed.job).closed = True

    def _end_job(self, ended: JobEnded) -> None:
        job = self.jobs.get(ended.job)
        if job is None or job.state:
            raise AlreadyEnded(f"job {ended.job} has ended or does not exist")
        job.state = as_ended(ended, self.faulted).state
        job.ended_at = ended.ended_at

    def _prune_jobs(self, pruned: JobsPruned) -> None:
        for number in pruned.jobs:
            job = self.jobs.pop(number, None)
            if job is not None:
                del self.numbers[job.opened.id]
                self.values = {key: one for key, one in self.values.items() if key[0] != number}
                last = job.results[-1].sequence if job.results else 0
                self.pruned_sequence = max(self.pruned_sequence, last)

    def _end_task(self, ended: TaskEnded) -> None:
        job, block = self._checked(ended)
        if ended.state not in STATES:
            raise RuleBroken(f"a task can end as one of {STATES}, not as {ended.state!r}")
        if ended.value_size and ended.attempt is not None:
            kept = self.values.get((ended.job, ended.index, ended.attempt), b"")
            if len(kept) != ended.value_size:
                raise ValueIncomplete(len(kept), ended.value_size)
        self.last_sequence += 1
        result = Result(self.last_sequence, ended)
        job.results.append(result)
        job.by_index[ended.index] = result
        place = ended.index - block.appended.first
        block.bitmaps[ended.state][place >> 3] |= 1 << (place & 7)
        block.ended += 1
        self.totals[ended.state] += 1

    def _end_attempt(self, ended: AttemptEnded) -> None:
        job, _ = self._checked(ended)
        job.attempts.setdefault(ended.index, []).append(ended)

    def _checked(self, ended: TaskEnded | AttemptEnded) -> tuple[BookJob, BookBlock]:
        task = f"task {ended.index} of job {ended.job}"
        job = self.jobs.get(ended.job)
        block = None if job is None else job.block_of(ended.index)
        if job is None or block is None:
            raise TaskUnknown(f"no block has {task}")
        if ended.index in job.by_index:
            raise AlreadyEnded(f"{task} already has its terminal state")
        if block.appended.owner_epoch != ended.owner_epoch:
            raise OwnershipLost(
                f"{task} belongs to owner epoch {block.appended.owner_epoch}, "
                f"not to {ended.owner_epoch}: another scheduler took it over"
            )
        earlier = job.attempts.get(ended.index)
        if earlier and ended.attempt is not None and ended.attempt <= earlier[-1].attempt:
            raise AttemptOutdated(
                f"attempt {ended.attempt} of {task} is not above its highest ended attempt"
            )
        return job, block

    def _grant_lease(self, granted: LeaseGranted) -> None:
        self.leases[granted.worker] = granted

    def _see_profile(self, seen: ProfileSeen) -> None:
        self.profiles[seen.kind] = seen
        if len(self.profiles) > PROFILES_MAX:
            del self.profiles[min(self.profiles.values(), key=lambda one: one.seen_at).kind]

    def _end_lease(self, ended: LeaseEnded) -> None:
        granted = self.leases.get(ended.worker)
        if granted is not None and granted.lease == ended.lease:
            del self.leases[ended.worker]

    def _measure_worker(self, measured: WorkerMeasured) -> None:
        self.health[measured.worker] = measured

    def _forget_workers(self, forgotten: WorkersForgotten) -> None:
        for worker in forgotten.workers:
            self.health.pop(worker, None)

    def _keep_part(self, part: PartKept) -> None:
        key = (part.job, part.index, part.attempt)
        value = self.values[key] = self.values.get(key, bytearray())[: part.offset]
        value += bytes(part.offset - len(value)) + part.data

    @staticmethod
    def _file_bytes(jobs: list[BookJob]) -> dict[JobNumber, int]:
        sums = {job.opened.job: sum(r.ended.value_size for r in job.results) for job in jobs}
        return {job: size for job, size in sums.items() if size}
