"""All that a scheduler knows, in one place, and the effects of the event under way."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from mycel.core.authenticators import Keyed, Secret
from mycel.core.effects import (
    Effect,
    Happening,
    JobsAdvanced,
    Note,
    Record,
    Reply,
    Send,
    Tell,
)
from mycel.core.identifiers import (
    AttemptId,
    JobId,
    JobNumber,
    PeerId,
    RequestId,
    fenced,
)
from mycel.core.journal import AttemptEnded, Entry
from mycel.core.machine_settings import SchedulerSettings
from mycel.core.matching import Algorithm, Pool
from mycel.core.messages import ControlMessage, WorkMessage
from mycel.core.model.jobs import Group, Job, Specification, TaskKey
from mycel.core.model.work import Shape
from mycel.core.principal import Principal
from mycel.core.scheduler.tasks.shape_queue import Backoff, ShapeQueue, Tally, Usual
from mycel.core.scheduler.tasks.usage_profiles import Profiles
from mycel.core.scheduler.workers.known_workers import KnownWorkers
from mycel.core.scheduler.workers.reliability import WorkerHealth
from mycel.core.states import WorkerState
from mycel.core.timers import Timers

from .records import Attempt, Call, Fetching, Hasher, Worker

TimerKey = tuple[str, object]
GROUPS_MAX: Final = 1024
USUAL_MAX: Final = 4096


class Joined:
    """A hasher that waits for everything; without one that takes pieces."""

    def __init__(self, digest: Callable[[bytes], bytes]) -> None:
        self._digest = digest
        self._data = bytearray()

    def update(self, data: bytes) -> None:
        self._data += data

    def digest(self) -> bytes:
        return self._digest(bytes(self._data))


_NOBODY: Final = Principal(user="")


class State:
    def __init__(
        self,
        settings: SchedulerSettings,
        digest: Callable[[bytes], bytes],
        keyed: Keyed,
        random: Callable[[], float],
        stopwatch: Callable[[], float],
        algorithms: Mapping[str, Algorithm],
        hasher: Callable[[], Hasher] | None = None,
    ) -> None:
        self.settings = settings
        self.digest = digest
        self.keyed = keyed
        self.hasher = hasher or (lambda: Joined(digest))
        self.random = random
        self.stopwatch = stopwatch
        """For the metric of how long a selection takes, and nothing else."""
        self.unix_offset = 0.0
        self.boot = 0
        self.secret = Secret()
        self.owner_epoch = 1
        self._counter = 0

        self.jobs: dict[JobNumber, Job] = {}
        self.job_ids: dict[JobId, Job] = {}
        self.idempotency_keys: dict[str, Job] = {}
        self.last_job = 0
        self._last_job_before = 0
        """When the turn began."""
        self.queues: dict[Shape, ShapeQueue] = {}
        self.usual: dict[Shape, Usual] = {}
        self.backoff = Backoff()
        self.attempts: dict[AttemptId, Attempt] = {}
        self.current: dict[TaskKey, Attempt] = {}
        self.histories: dict[TaskKey, list[AttemptEnded]] = {}
        """The journalled ends of attempts of tasks that are not terminal."""
        self.workers: dict[PeerId, Worker] = {}
        self.fetches: dict[AttemptId, Fetching] = {}
        self.ended_bytes = 0
        """Of values in files, of ended jobs."""
        self.results_damaged = 0
        self.workers_refused = 0
        self.checks_late = 0
        """Of workers without a link: begun too late, or put off."""
        self.results_refused = 0
        """Of attempts that are not, or no longer, their task's current one."""
        self.forgeries_refused = 0
        """Attempts that were listed, or had ended, with a wrong authenticator."""
        self.healths: dict[PeerId, WorkerHealth] = {}
        """As journalled, of workers that are gone too."""
        self.unsaved_healths: dict[PeerId, WorkerHealth] = {}
        self.algorithms = algorithms
        self._pool = Pool(settings.selection, algorithms)
        self.moved_workers: dict[PeerId, Worker] = {}
        """Tasks were sent to them or have ended, and the pool has not been told yet."""
        self.principals: dict[PeerId, Principal] = {}
        """Of workers that have, or had, a link; the oldest are forgotten."""
        self.local_workers: set[PeerId] = set()
        """Those of this machine…"""
        self.own_workers: set[PeerId] = set()
        """…and of this process."""
        self.known = KnownWorkers(settings.known_workers_max, self._pool)
        """Workers without a link; none is in both tables."""
        self.linked: dict[PeerId, Worker] = {}
        """Those with a link, roughly the longest unused first."""
        self.calls: dict[PeerId, Call] = {}
        self.seeks: dict[Shape, float] = {}
        """Shapes that lack workers, and how long until they are sought again."""
        self.timers: Timers[TimerKey] = Timers()
        self.task_waiters: dict[TaskKey, list[RequestId]] = {}
        self.job_waiters: dict[JobNumber, list[RequestId]] = {}
        self.ended_jobs: deque[Job] = deque()
        """In the order in which they ended: the oldest are pruned first."""
        self.ended_tasks = 0
        """How many tasks they have together."""

        self.busy_at = 0.0
        """When tasks last changed."""
        self.succeeded = 0
        self.failed = 0
        self.cancelled = 0
        self.unsuccessful_attempts = 0
        self.selection_seconds: list[float] = []
        self.latency_seconds: list[float] = []

        self.profiles = Profiles()
        self.held_back = 0
        """Tasks of stages that have not started."""
        self.staged: dict[JobNumber, Job] = {}
        """Jobs whose stages may have something to do: they are looked at once per event."""
        self.dirty: dict[Shape, ShapeQueue] = {}
        """Shapes whose tasks or slots have changed: they are looked at once per event."""
        self.freed: dict[PeerId, Worker] = {}
        """Workers that may have more room than before: likewise."""
        self.recovering: set[PeerId] = set()
        """Workers of journalled registrations that have not reported since the restart."""
        self.tally = Tally()
        self._groups: dict[tuple[Specification, str, int], Group] = {}
        self._entries: list[Entry] = []
        self._effects: list[Effect] = []
        self.listening = False
        """Whether `tell` reaches anybody; without, it costs nothing."""
        self._happenings: list[Happening] = []
        self._advanced: dict[JobNumber, None] = {}

    # Identifiers

    def next_attempts(self, count: int) -> AttemptId:
        """`count` fresh consecutive attempt ids; the first of them."""
        first = self._counter + 1
        self._counter += count
        fenced(self.boot, self._counter)
        return AttemptId(fenced(self.boot, first))

    def group_of(self, specification: Specification, user: str, stage: int = 0) -> Group:
        """The one object for all jobs that say the same: a swarm sees the same few kinds of
        job a million times."""
        key = (specification, user, stage)
        group = self._groups.get(key)
        if group is None:
            if len(self._groups) >= GROUPS_MAX:
                self._groups.clear()
            group = self._groups[key] = Group.of(specification, user, stage)
        return group

    def has_ended(self, job: Job) -> None:
        """From now on it is kept only until it is pruned."""
        self.ended_jobs.append(job)
        self.ended_tasks += job.count
        self.ended_bytes += job.file_bytes

    # Effects

    def record(self, entry: Entry) -> None:
        self._entries.append(entry)

    def emit(self, effect: Effect) -> None:
        self._effects.append(effect)

    def send(self, peer: PeerId, message: WorkMessage | ControlMessage) -> None:
        self._effects.append(Send(peer, message))

    def reply(self, request: RequestId, answer: object) -> None:
        self._effects.append(Reply(request, answer))

    def note(self, event: str, **fields: object) -> None:
        self._effects.append(Note(event, fields))

    def tell(
        self,
        kind: str,
        now: float,
        job: Job | None = None,
        index: int | None = None,
        worker: PeerId | None = None,
        **details: object,
    ) -> None:
        if self.listening:
            whose = (None, "") if job is None else (job.id, job.user)
            at = self.unix(now)
            happening = Happening(kind, at, whose[0], index, worker, whose[1], details)
            self._happenings.append(happening)

    def advance(self, job: Job) -> None:
        self._advanced[job.number] = None

    def is_arriving(self, job: Job) -> bool:
        """Whether the turn that opened it has not ended: nobody knows of the job."""
        return job.number > self._last_job_before

    def take_effects(self) -> list[Effect]:
        """The entries of one turn are one record, ahead of all that it tells anybody."""
        self._last_job_before = self.last_job
        effects: list[Effect] = []
        if self._entries:
            effects.append(Record(self._entries))
            self._entries = []
        effects.extend(self._effects)
        self._effects = []
        if self._happenings:
            effects.append(Tell(self._happenings))
            self._happenings = []
        if self._advanced:
            effects.append(JobsAdvanced(list(self._advanced)))
            self._advanced = {}
        return effects

    # Look-ups

    @property
    def pool(self) -> Pool:
        """All workers that are known, linked or not, indexed for selection.

        What tasks change is told to the pool only when somebody looks at it.
        """
        if self.moved_workers:
            moved, self.moved_workers = self.moved_workers, {}
            for worker in moved.values():
                worker.bring_up_to_date(self._pool)
        return self._pool

    @property
    def pool_as_told(self) -> Pool:
        """Without what tasks have changed since somebody looked."""
        return self._pool

    def unix(self, now: float) -> float:
        return now + self.unix_offset

    def queue_of(self, shape: Shape) -> ShapeQueue:
        queue = self.queues.get(shape)
        if queue is None:
            usual = self.usual.get(shape)
            if usual is None:
                if len(self.usual) >= USUAL_MAX:
                    del self.usual[next(iter(self.usual))]
                usual = self.usual[shape] = Usual()
            queue = self.queues[shape] = ShapeQueue(shape, usual, self.recovering, self.tally)
        return queue

    def remember(self, peer: PeerId, principal: Principal) -> None:
        """Who answers for it; the oldest of too many is forgotten."""
        self.principals.pop(peer, None)
        while len(self.principals) >= self.settings.known_workers_max:
            del self.principals[next(iter(self.principals))]
        self.principals[peer] = principal

    def principal_of(self, peer: PeerId) -> Principal:
        """Of one that has had a link: else nobody does."""
        return self.principals.get(peer, _NOBODY)

    def add_worker(self, peer: PeerId, worker_state: WorkerState) -> Worker:
        """A record for a worker that had none; how it was before is remembered."""
        worker = self.workers[peer] = Worker(peer, worker_state, self.healths.get(peer))
        return worker

    def is_past_deadline(self, specification: Specification, now: float) -> bool:
        deadline_at = specification.deadline_at
        return deadline_at is not None and self.unix(now) >= deadline_at

    def having_next_files(self, queue: ShapeQueue) -> int:
        """Who of the pool has the files of the task that is sent next."""
        pool = self._pool  # files are told to it at once
        return pool.having(queue.next_files()) if pool.data else 0

    def touch(self, queue: ShapeQueue) -> None:
        self.dirty[queue.shape] = queue

    def has_room(self, worker: Worker, queue: ShapeQueue | None = None) -> None:
        """Perhaps: whoever waits is looked at. A slot is free that this shape had; or the worker
        is as good as new."""
        self.freed[worker.peer] = worker
        worker.freed_by = queue
        worker.has_news |= queue is None

    def highest_ended(self, key: TaskKey) -> int:
        history = self.histories.get(key)
        return max(ended.attempt for ended in history) if history else 0

    def counted(self, key: TaskKey) -> int:
        history = self.histories.get(key)
        return sum(ended.counts for ended in history) if history else 0

    @property
    def queued(self) -> int:
        return self.tally.waiting + len(self.backoff) + self.held_back
