"""Random sound histories of a journal, and what a restart must find after one.

The model here is written apart from both stores, and as simply as possible.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from mycel.core.identifiers import JobNumber, LeaseId, PeerId
from mycel.core.journal import (
    AttemptEnded,
    BlockAppended,
    Entry,
    GroupAdded,
    HandedResult,
    JobClosed,
    JobEnded,
    JobOpened,
    JobsPruned,
    LeaseEnded,
    LeaseGranted,
    ProfileSeen,
    Restored,
    StoredBlock,
    StoredJob,
    TaskEnded,
    WorkerMeasured,
    WorkersForgotten,
)

from .store_harness import attempt_ended, block, group, job_id, lease, opened, task_ended

STATES = ("succeeded", "failed", "cancelled")


@st.composite
def histories(draw: st.DrawFn) -> list[list[Entry]]:
    """Groups of entries, none of which breaks a rule."""
    maker = _Maker(draw)
    steps = [maker.open_job, maker.append, maker.end_task, maker.end_task, maker.end_task]
    steps += [
        maker.add_group,
        maker.end_attempt,
        maker.close,
        maker.end_job,
        maker.prune,
        maker.lease,
        maker.see_profile,
        maker.measure,
    ]
    groups: list[list[Entry]] = []
    for _ in range(draw(st.integers(1, 12))):
        maker.entries = []
        for _ in range(draw(st.integers(0, 12))):
            draw(st.sampled_from(steps))()
        groups.append(maker.entries)
    return groups


class _Maker:
    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self.entries: list[Entry] = []
        self._next_job = 1
        self._next_attempt = 1
        self._open: dict[int, int] = {}
        """Jobs that take batches, with their number of batches so far."""
        self._groups: dict[int, int] = {}
        self._moment = 0.0
        self._unended: set[int] = set()
        self._all: set[int] = set()
        self._tasks: dict[tuple[int, int], int] = {}
        """Unfinished tasks, with their owner epoch."""
        self._sizes: dict[int, int] = {}

    def open_job(self) -> None:
        number = self._next_job
        self._next_job += 1
        self._open[number] = 0
        self._sizes[number] = 0
        self._unended.add(number)
        self._all.add(number)
        self.entries.append(opened(number))

    def append(self) -> None:
        if not self._open:
            self.open_job()
            return
        number = self._draw(st.sampled_from(sorted(self._open)))
        count = self._draw(st.integers(1, 20))
        epoch = self._draw(st.integers(1, 3))
        first = self._sizes[number]
        batch = self._open[number]
        arguments = b"[" + b",".join(b"%d" % i for i in range(count)) + b"]"
        self.entries.append(
            block(number, batch=batch, first=first, count=count, epoch=epoch, arguments=arguments)
        )
        self._open[number] += 1
        self._sizes[number] += count
        self._tasks |= {(number, first + i): epoch for i in range(count)}

    def end_task(self) -> None:
        if not self._tasks:
            self.append()
            return
        task = self._draw(st.sampled_from(sorted(self._tasks)))
        epoch = self._tasks.pop(task)
        state = self._draw(st.sampled_from(STATES))
        never_sent = state == "cancelled" and self._draw(st.booleans())
        attempt = None if never_sent else self._attempt()
        self.entries.append(task_ended(*task, attempt=attempt, state=state, epoch=epoch))

    def end_attempt(self) -> None:
        if not self._tasks:
            self.append()
            return
        task = self._draw(st.sampled_from(sorted(self._tasks)))
        epoch = self._tasks[task]
        self.entries.append(attempt_ended(*task, attempt=self._attempt(), epoch=epoch))

    def close(self) -> None:
        if self._open:
            number = self._draw(st.sampled_from(sorted(self._open)))
            del self._open[number]
            self.entries.append(JobClosed(JobNumber(number)))

    def end_job(self) -> None:
        if self._unended:
            number = self._draw(st.sampled_from(sorted(self._unended)))
            self._unended.discard(number)
            self._open.pop(number, None)
            self.entries.append(JobEnded(JobNumber(number), "failed", 2000.5))

    def add_group(self) -> None:
        if self._open:
            job = self._draw(st.sampled_from(sorted(self._open)))
            number = self._groups[job] = self._groups.get(job, 0) + 1
            self.entries.append(group(job, number))

    def prune(self) -> None:
        if self._all:
            chosen = self._draw(st.sets(st.sampled_from(sorted(self._all)), max_size=2))
            self._all -= chosen
            self._unended -= chosen
            self._open = {job: n for job, n in self._open.items() if job not in chosen}
            self._tasks = {task: n for task, n in self._tasks.items() if task[0] not in chosen}
            self.entries.append(JobsPruned(tuple(JobNumber(job) for job in sorted(chosen))))

    def see_profile(self) -> None:
        kind = self._draw(st.sampled_from(("python a:b ", "process  true")))
        self._moment += 1.0
        self.entries.append(ProfileSeen(kind, 1 << 28, 2, self._moment))

    def lease(self) -> None:
        worker = f"worker-{self._draw(st.integers(1, 2))}"
        number = self._draw(st.integers(1, 3))
        if self._draw(st.booleans()):
            self.entries.append(lease(worker, number))
        else:
            self.entries.append(LeaseEnded(PeerId(worker), LeaseId(number), "released"))

    def measure(self) -> None:
        workers = [PeerId(f"worker-{number}") for number in (1, 2)]
        worker = self._draw(st.sampled_from(workers))
        if self._draw(st.booleans()):
            failures = self._draw(st.integers(0, 5))
            self.entries.append(WorkerMeasured(worker, 2.5, 1.0, 0.125, failures, 1005.5))
        else:
            self.entries.append(WorkersForgotten((worker, PeerId("nobody"))))

    def _attempt(self) -> int:
        self._next_attempt += 1
        return self._next_attempt


def expected_after(groups: Sequence[Sequence[Entry]]) -> Restored:
    entries = [entry for group in groups for entry in group]
    pruned = {job for e in entries if isinstance(e, JobsPruned) for job in e.jobs}
    ended = [e for e in entries if isinstance(e, TaskEnded)]
    terminal = {(e.job, e.index) for e in ended}
    closed = {e.job for e in entries if isinstance(e, JobClosed)}
    jobs = [e for e in entries if isinstance(e, JobOpened) and e.job not in pruned]
    blocks = [e for e in entries if isinstance(e, BlockAppended) and e.job not in pruned]
    ends = {e.job: e for e in entries if isinstance(e, JobEnded)}
    attempts = [
        e
        for e in entries
        if isinstance(e, AttemptEnded) and e.job not in pruned and (e.job, e.index) not in terminal
    ]
    return Restored(
        jobs=[
            StoredJob(
                opened=job,
                closed=job.job in closed,
                state=ends[job.job].state if job.job in ends else "",
                ended_at=ends[job.job].ended_at if job.job in ends else None,
            )
            for job in sorted(jobs, key=lambda job: job.job)
        ],
        groups=sorted(
            (e for e in entries if isinstance(e, GroupAdded) and e.job not in pruned),
            key=lambda e: (e.job, e.group),
        ),
        blocks=[_stored(appended, ended) for appended in blocks],
        ended_attempts=sorted(attempts, key=lambda e: (e.job, e.index, e.attempt)),
        leases=_leases(entries),
        handed=_handed(entries, {job.job for job in jobs if job.stages and job.job not in ends}),
        last_job=max((e.job for e in entries if isinstance(e, JobOpened)), default=0),
        tasks_succeeded=sum(e.state == "succeeded" for e in ended),
        tasks_failed=sum(e.state == "failed" for e in ended),
        tasks_cancelled=sum(e.state == "cancelled" for e in ended),
        health=_health(entries),
        profiles=_profiles(entries),
    )


def _stored(appended: BlockAppended, ended: list[TaskEnded]) -> StoredBlock:
    indexes = range(appended.first, appended.first + appended.count)
    mine = [e for e in ended if e.job == appended.job and e.index in indexes]
    bitmaps = []
    for state in STATES:
        bits = bytearray((appended.count + 7) // 8)
        for e in mine:
            if e.state == state:
                place = e.index - appended.first
                bits[place // 8] |= 1 << place % 8
        bitmaps.append(bytes(bits))
    arguments = b"" if len(mine) == appended.count else appended.arguments
    kept = BlockAppended(
        appended.job,
        appended.batch,
        appended.first,
        appended.count,
        arguments,
        appended.owner_epoch,
        appended.appended_at,
        appended.group,
        appended.digest,
    )
    return StoredBlock(kept, *bitmaps)


def _handed(entries: list[Entry], unfinished: set[JobNumber]) -> list[HandedResult]:
    """The results of each unfinished job's first stage, which has the groups with even numbers
    and those that nobody has added."""
    added = {(e.job, e.group) for e in entries if isinstance(e, GroupAdded)}
    found = []
    for entry in entries:
        if isinstance(entry, TaskEnded) and entry.state == "succeeded" and entry.job in unfinished:
            [appended] = [
                e
                for e in entries
                if isinstance(e, BlockAppended)
                and e.job == entry.job
                and e.first <= entry.index < e.first + e.count
            ]
            if appended.group % 2 == 0 or (entry.job, appended.group) not in added:
                found.append(HandedResult(entry.job, entry.index, entry.value, entry.stdout))
    return sorted(found, key=lambda one: (one.job, one.index))


def _leases(entries: list[Entry]) -> list[LeaseGranted]:
    held: dict[str, LeaseGranted] = {}
    for entry in entries:
        if isinstance(entry, LeaseGranted):
            held[entry.worker] = entry
        if isinstance(entry, LeaseEnded):
            before = held.get(entry.worker)
            if before is not None and before.lease == entry.lease:
                del held[entry.worker]
    return [held[key] for key in sorted(held)]


def _profiles(entries: list[Entry]) -> list[ProfileSeen]:
    last = {entry.kind: entry for entry in entries if isinstance(entry, ProfileSeen)}
    return [last[kind] for kind in sorted(last)]


def _health(entries: list[Entry]) -> list[WorkerMeasured]:
    known: dict[PeerId, WorkerMeasured] = {}
    for entry in entries:
        if isinstance(entry, WorkerMeasured):
            known[entry.worker] = entry
        if isinstance(entry, WorkersForgotten):
            known = {peer: one for peer, one in known.items() if peer not in entry.workers}
    return [known[peer] for peer in sorted(known)]


def results_of(groups: Sequence[Sequence[Entry]], number: int) -> list[tuple[int, TaskEnded]]:
    """The finished tasks of a job with their sequence, unless it was pruned."""
    entries = [entry for group in groups for entry in group]
    ended = [e for e in entries if isinstance(e, TaskEnded)]
    if any(isinstance(e, JobsPruned) and number in e.jobs for e in entries):
        return []
    return [(place, e) for place, e in enumerate(ended, 1) if e.job == number]


def job_ids(groups: Sequence[Sequence[Entry]]) -> list[int]:
    return [e.job for group in groups for e in group if isinstance(e, JobOpened)]


__all__ = ["expected_after", "histories", "job_id", "job_ids", "results_of"]
