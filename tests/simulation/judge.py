"""Was anything promised that did not hold? Judged by the journal and by what the outside saw."""

from __future__ import annotations

from collections import Counter

import msgspec

from mycel.core.identifiers import AttemptId, JobId, JobNumber, LeaseId, PeerId
from mycel.core.journal import (
    AttemptEnded,
    JobEnded,
    JobOpened,
    LeaseEnded,
    TaskEnded,
    WorkerMeasured,
)
from mycel.core.journal_codec import decode_specification
from mycel.core.model.failures import HANDED_BACK
from mycel.core.model.work import Retry
from mycel.core.scheduler.tasks.retry_policy import FATAL, attempts_allowed, is_poison
from mycel.testing.store.memory_journal import Committed

from . import graph_judge
from .history import Execution, History
from .liar_process import VALUE as LIE
from .scheduler_process import SETTINGS, SWEEP_SECONDS, SchedulerProcess
from .world import World

LONGEST_BACKOFF_SECONDS = 1.2 * SETTINGS.retry.backoff_max
Task = tuple[JobId, int]
GIVEN_UP = ("it was not renewed", "it was silent for too long")
"""The scheduler concluded from time alone that the worker's lease has ended. A lease that it
released, or that the worker ended, may still see the start of what it has cancelled."""


class Value(msgspec.Struct):
    task: str
    attempt: int
    execution: int


def judge(world: World) -> list[str]:
    """The complaints; none is good."""
    found = list(world.history.complaints)
    for scheduler in world.schedulers:
        found += _Case(world, scheduler).complaints()
    return found + _over_booked(world) + _mixed_up_output(world) + _mixed_up_checkpoints(world)


class _Case:
    """What one scheduler has promised."""

    def __init__(self, world: World, scheduler: SchedulerProcess) -> None:
        self.history: History = world.history
        self.peer = scheduler.peer
        self.store = scheduler.store
        self.journal: list[Committed] = scheduler.store.committed
        self.jobs = {
            job for job in world.history.acknowledged if world.clients.home_of(job) is scheduler
        }
        self.executions = [
            ran for ran in world.history.executions if ran.scheduler == scheduler.peer
        ]
        self.names: dict[JobNumber, JobId] = {}
        self.ended: dict[Task, tuple[float, TaskEnded]] = {}
        self.attempts: dict[Task, list[AttemptEnded]] = {}
        self.deadlines: dict[JobNumber, float | None] = {}
        self.successes: Counter[PeerId] = Counter()
        self.lease_ends: dict[tuple[PeerId, LeaseId], float] = {}
        self.job_states: dict[JobId, str] = {}
        self._found: list[str] = []

    def complaints(self) -> list[str]:
        self._read_journal()
        self._nothing_is_lost()
        self._values_are_their_attempts()
        self._attempts_start_once()
        self._nothing_starts_after_its_lease()
        self._what_clients_saw_is_true()
        self._what_was_told_has_happened()
        self._stages_went_as_they_should()
        return self._found

    def _complain(self, text: str) -> None:
        self._found.append(text)

    def _read_journal(self) -> None:
        for committed in self.journal:
            entry = committed.entry
            if isinstance(entry, JobOpened):
                self.names[entry.job] = entry.id
                self.deadlines[entry.job] = decode_specification(entry.specification).deadline_at
            elif isinstance(entry, JobEnded):
                self.job_states[self.names[entry.job]] = entry.state
            elif isinstance(entry, TaskEnded):
                self._read_task(committed.at, entry)
            elif isinstance(entry, AttemptEnded):
                self._read_attempt(entry)
            elif isinstance(entry, WorkerMeasured):
                self._read_health(entry)
            elif isinstance(entry, LeaseEnded) and entry.reason in GIVEN_UP:
                self.lease_ends[entry.worker, entry.lease] = committed.at

    def _read_task(self, at: float, entry: TaskEnded) -> None:
        task = (self.names[entry.job], entry.index)
        if task in self.ended:
            self._complain(f"task {task} ended twice")
        self.ended[task] = (at, entry)
        self._was_given(task, entry)
        for before in self.attempts.get(task, ()):
            if entry.attempt is not None and entry.attempt <= before.attempt:
                self._complain(f"task {task} took the result of an old attempt")

        self._was_charged(task, entry)
        if entry.state == "succeeded" and entry.worker is not None:
            self.successes[entry.worker] += 1
        if entry.reason == "deadline":
            deadline_at = self.deadlines[entry.job]
            if deadline_at is None or entry.ended_at < deadline_at - LONGEST_BACKOFF_SECONDS:
                self._complain(f"task {task} missed a deadline that it did not have")
        if entry.reason == "poison":
            fatal = [one for one in self.attempts.get(task, ()) if one.cause in FATAL]
            if len(fatal) < SETTINGS.retry.poison_attempts - 1:
                self._complain(f"task {task} was called poison too soon")

    def _was_charged(self, task: Task, entry: TaskEnded) -> None:
        """A task costs what its attempts cost, each counted once."""
        numbers = {one.attempt for one in self.attempts.get(task, ())} | {entry.attempt}
        asked = sum(
            self.history.charged.get((self.peer, number), 0.0)
            for number in numbers
            if number is not None
        )
        if entry.cost > asked + 1e-9:
            self._complain(f"task {task} cost {entry.cost}, and its workers ask {asked}")

    def _was_given(self, task: Task, entry: TaskEnded | AttemptEnded) -> None:
        """Whoever ended an attempt was sent it, and it was one of this task."""
        if entry.attempt is None:
            return
        given = self.history.given.get((self.peer, entry.attempt))
        if given != (entry.worker, *task):
            self._complain(f"{entry.worker} ended {task}, and was never given {entry.attempt}")

    def _read_health(self, entry: WorkerMeasured) -> None:
        if not 0 <= entry.succeeded <= self.successes[entry.worker]:
            self._complain(f"{entry.worker} is said to have done more than it did")

    def _read_attempt(self, entry: AttemptEnded) -> None:
        task = (self.names[entry.job], entry.index)
        if task in self.ended:
            self._complain(f"an attempt of {task} ended after its task")
        self.attempts.setdefault(task, []).append(entry)
        self._was_given(task, entry)
        if entry.counts and entry.code == HANDED_BACK:
            self._complain(f"an attempt of {task} that was handed back counted")
        causes = [one.cause for one in self.attempts[task] if one.counts]
        if len(causes) >= attempts_allowed(SETTINGS.retry, Retry()):
            self._complain(f"task {task} was tried too often")
        if is_poison(SETTINGS.retry, causes):
            self._complain(f"task {task} went on although it is poison")

    def _nothing_is_lost(self) -> None:
        for job, count in self.history.acknowledged.items():
            if job not in self.jobs:
                continue
            missing = [index for index in range(count) if (job, index) not in self.ended]
            if missing:
                self._complain(f"job {job} lost {len(missing)} of {count} tasks: {missing[:3]}")

    def _values_are_their_attempts(self) -> None:
        executions = self.history.executions
        for task, (_, entry) in self.ended.items():
            if entry.state != "succeeded" or entry.value == LIE:
                continue  # whether the liar was given it, `_was_given` says
            raw = entry.value or self.store.value(*task, offset=0, length=1 << 20)
            try:
                value = msgspec.json.decode(raw, type=Value)
            except msgspec.ValidationError:
                self._complain(f"task {task} has a value that nobody computed")
                continue
            ran = executions[value.execution]
            if (
                value.task != f"{task[0]}.{task[1]}"
                or value.attempt != entry.attempt
                or ran.attempt != entry.attempt
                or ran.worker != entry.worker
                or ran.task != task
            ):
                self._complain(f"task {task} has a value that its attempt did not compute")

    def _stages_went_as_they_should(self) -> None:
        for job, graph in self.history.graphs.items():
            if job not in self.jobs:
                continue
            ends = {index: found for (name, index), found in self.ended.items() if name == job}
            ran = [one for one in self.executions if one.task[0] == job]
            for text in graph_judge.complaints(graph, ends, ran, self.job_states.get(job)):
                self._complain(f"job {job}: {text}")

    def _attempts_start_once(self) -> None:
        started: dict[AttemptId, Execution] = {}
        for ran in self.executions:
            before = started.setdefault(ran.attempt, ran)
            if before is not ran:
                self._complain(f"attempt {ran.attempt} of {ran.task} started twice")

    def _nothing_starts_after_its_lease(self) -> None:
        for ran in self.executions:
            over = self.lease_ends.get((ran.worker, ran.lease))
            if over is not None and ran.started_at > over and not ran.while_waking:
                self._complain(f"{ran.task} was started on {ran.worker} after its lease ended")

    def _what_clients_saw_is_true(self) -> None:
        for seen in self.history.seen:
            if seen.job not in self.jobs:
                continue
            found = self.ended.get((seen.job, seen.index))
            if found is None or found[0] > seen.at:
                self._complain(f"a client saw {seen.job}.{seen.index} end before it had")
            elif seen.state and found[1].state != seen.state:
                self._complain(f"a client saw {seen.job}.{seen.index} {seen.state}")
        for task in self.history.cancelled:
            if task[0] in self.jobs and task not in self.ended:
                self._complain(f"the cancelled task {task} has not ended")

    def _what_was_told_has_happened(self) -> None:
        """Everything leaves after its commit, what is told of a delay too."""
        for told in self.history.told:
            if told.kind != "task.delayed" or told.job_id not in self.jobs:
                continue
            assert told.index is not None
            ended = self.attempts.get((told.job_id, told.index), ())
            if all(one.number != told.details["attempt"] for one in ended):
                self._complain(f"a delay of {told.job_id}.{told.index} was told and not written")


def _mixed_up_output(world: World) -> list[str]:
    """Each task writes who it is: nobody else's output may be taken for its own."""
    return [
        f"the output of {one.data!r} was taken for that of {one.job_id}.{one.index}"
        for one in world.history.wrote
        if not one.data.startswith(f"{one.job_id}.{one.index}#".encode())
    ]


def _mixed_up_checkpoints(world: World) -> list[str]:
    """A task finds what an execution of its own has left, and one that began before it."""
    found = []
    for execution, data in world.history.restored:
        task, number = msgspec.json.decode(data)
        if tuple(task) != execution.task or number > execution.number:
            found.append(f"{execution.task} found the checkpoint of {task}")
    for scheduler in world.schedulers:
        if world.clock.now() - scheduler.booted_at <= SWEEP_SECONDS:
            continue  # what its last crash has left may still be there
        for job, index in scheduler.checkpoints.kept:
            if not scheduler.machine.is_live(job, index):
                found.append(f"the checkpoint of {job}.{index} outlived it")
    return found


def _over_booked(world: World) -> list[str]:
    """Whether a worker ever ran more than it has, for all schedulers together."""
    cores = {one.peer: one.capabilities.cpu_cores for one in world.workers}
    moments: list[tuple[float, int, PeerId, float]] = []
    for ran in world.history.executions:
        moments.append((ran.started_at, 1, ran.worker, ran.cores))
        if ran.ended_at is not None:
            moments.append((ran.ended_at, 0, ran.worker, -ran.cores))
    used: dict[PeerId, float] = {}
    for _, _, worker, change in sorted(moments):
        used[worker] = used.get(worker, 0.0) + change
        if used[worker] > cores[worker] + 1e-9:
            return [f"{worker} ran more than it has"]
    return []
