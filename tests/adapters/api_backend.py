"""A scheduler as the API sees it, small enough to read: tasks end when their work says so.

`python` tasks answer with their own arguments (`fails:…` raises), `process` tasks exit with
0 (`false` with 1), everything else, and `waits:…`, stays queued until a test ends it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

import msgspec
from blake3 import blake3

from mycel.api import Stopping
from mycel.api.backend import Clusters, Pieces
from mycel.api.event_listeners import Audience, Listener
from mycel.api.output_followers import OutputAudience, OutputListener
from mycel.api.routes.network_routes import DiscoveryAnswer, Network, PeerAnswer, SwarmAnswer
from mycel.api.submission.model_owners import ModelNames
from mycel.core import events
from mycel.core.errors import Conflict, NotFound, Refusal, Unprocessable
from mycel.core.identifiers import AttemptId, JobId, JobNumber, PeerId, RequestId
from mycel.core.journal import AttemptEnded, JobOpened, TaskEnded
from mycel.core.journal_codec import encode_specification
from mycel.core.model.jobs import Specification
from mycel.core.model.resources import Capabilities, Free, Gpu
from mycel.core.rights import Rights
from mycel.core.views import (
    BatchView,
    Explanation,
    Figures,
    JobView,
    LiveTasks,
    Obstacle,
    PreviewView,
    Span,
    SubmittedView,
    TaskIsOver,
    TaskView,
    WorkerView,
)
from mycel.store.interface import DefinedBlock, End, JobDefinition, JobRow, Lines, Reader, Result
from mycel.store.live_logs import Stretch
from mycel.store.result_lines import lines_of
from mycel.telemetry.counters import SchedulerFigures

Value = TypeVar("Value")

WORKER = PeerId("12D3KooWorker")
GATEWAY = PeerId("12D3KooGateway")
CREATED_AT = 1_700_000_000.123
ENDED_AT = 1_700_000_001.5
METRICS = b"""# TYPE hypha_scheduler_tasks_queued gauge
hypha_scheduler_tasks_queued 15.0
"""


class FakeNetwork:
    """One gateway and one worker; the worker answers pings, nobody else does."""

    def peers(self) -> list[PeerAnswer]:
        return [
            PeerAnswer(peer, "", [role], [], "direct", 0.5, 10.0, 0.1, "mycel/1", ["00" * 32])
            for peer, role in ((WORKER, "worker"), (GATEWAY, "gateway"))
        ]

    def status(self) -> SwarmAnswer:
        ways = DiscoveryAnswer(True, True, 2, 0, 0)
        return SwarmAnswer(
            "node", "12D3KooScheduler", ["scheduler"], "1", [], [GATEWAY], [], {}, {}, 1, 1, ways
        )

    def known(self) -> dict[str, str]:
        return {WORKER: "worker-1", GATEWAY: ""}

    async def ping(self, peer: str, count: int) -> tuple[list[float], str]:
        return ([0.001 * n for n in range(1, count + 1)], "") if peer == WORKER else ([], "silent")


class FakeJob:
    def __init__(self, submit: events.Submit, number: int) -> None:
        self.submit = submit
        self.number = JobNumber(number)
        self.specification: Specification = submit.specification
        self.arguments: list[bytes] = []
        self.batches: list[tuple[int, int]] = []
        self.closed = submit.close
        self.results: dict[int, Result] = {}
        self.ended_attempts: dict[int, list[AttemptEnded]] = {}

    @property
    def count(self) -> int:
        return len(self.arguments)

    @property
    def state(self) -> str:
        states = {result.ended.state for result in self.results.values()}
        if not self.closed or len(self.results) < self.count:
            return "running" if states else "queued"
        for state in ("failed", "cancelled"):
            if state in states:
                return state
        return "succeeded"

    def in_state(self, state: str) -> int:
        return sum(result.ended.state == state for result in self.results.values())

    def view(self) -> JobView:
        over = self.state not in ("queued", "running")
        return JobView(
            job_id=self.submit.job_id,
            name=self.submit.name,
            user=self.submit.user,
            state=self.state,
            closed=self.closed,
            batches=len(self.batches),
            tasks=self.count,
            queued=self.count - len(self.results),
            live=0,
            succeeded=self.in_state("succeeded"),
            failed=self.in_state("failed"),
            cancelled=self.in_state("cancelled"),
            created_at=CREATED_AT,
            ended_at=ENDED_AT if over else None,
        )

    def row(self) -> JobRow:
        view = self.view()
        opened = JobOpened(self.number, view.job_id, view.name, view.user, b"", view.created_at)
        return JobRow(
            opened,
            self.closed,
            view.state if view.ended_at else "",
            view.ended_at,
            view.tasks,
            view.succeeded,
            view.failed,
            view.cancelled,
        )


class FakeBackend(Reader):
    name = "scheduler"
    peer = "12D3KooScheduler"

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self._replying: dict[RequestId, asyncio.Task[None]] = {}
        self.reset()

    def reset(self) -> None:
        self.jobs_by_id: dict[JobId, FakeJob] = {}
        self.keys: dict[str, FakeJob] = {}
        self.ready = True
        self.refusal: Refusal | None = None
        self.stopping = False
        self.asked: list[events.Event] = []
        self.put_count = 0
        """Requests that went the short way."""
        self.credentials: list[tuple[bytes, Rights]] = []
        self.revocations: list[bytes] = []
        self.registry: Clusters | None = None
        self.reads = 0
        self.forgotten = 0
        self.forgets = threading.Semaphore(0)
        self.sequence = 0
        self.models: set[str] = set()
        """Full names of what is served."""
        self.names = ModelNames(lambda name: name in self.models, lambda: self.models)
        self.audience = Audience(lambda on: None)
        self.outputs = OutputAudience()
        self.live: dict[tuple[str, int], list[Stretch]] = {}
        self.pruned_sequence = 0
        self.waiting = threading.Event()
        """Somebody waits for a task."""

    def stop(self) -> None:
        self.stopping = True
        self._changed.set()

    # What the API calls

    async def ask(self, make: Callable[[RequestId], events.Event]) -> object:
        if self.stopping:
            raise Stopping
        if self.refusal is not None:
            raise self.refusal
        event = make(RequestId(len(self.asked) + 1))
        self.asked.append(event)
        try:
            while True:
                answer = self._answer(event)
                if answer is not None:
                    return answer
                self._changed.clear()
                self.waiting.set()
                await self._changed.wait()
                if self.stopping:
                    raise Stopping
        except asyncio.CancelledError:
            self.forgotten += 1
            self.forgets.release()
            raise

    def put(
        self, make: Callable[[RequestId], events.Event], reply: Callable[[object], None]
    ) -> RequestId:
        if self.stopping:
            raise Stopping
        self.put_count += 1
        request = RequestId(self.put_count)

        async def run() -> None:
            answer: object
            try:
                answer = await self.ask(make)
            except (Refusal, Stopping) as error:
                answer = error
            del self._replying[request]
            reply(answer)

        self._replying[request] = asyncio.create_task(run())
        return request

    def forget(self, request: RequestId) -> None:
        replying = self._replying.pop(request, None)
        if replying is not None:
            replying.cancel()

    async def read(self, look: Callable[[Reader], Value]) -> Value:
        self.reads += 1
        return look(self)

    @contextmanager
    def following(self, job: JobId) -> Iterator[asyncio.Event]:
        yield self._changed

    def listening(self) -> AbstractContextManager[Listener]:
        return self.audience.listening()

    @contextmanager
    def streaming(self, job: JobId) -> Iterator[Pieces]:
        yield Pieces()

    def output(self, job: JobId, index: int, attempt: int | None = None) -> list[Stretch]:
        return self.live.get((job, index), [])

    def listening_to_output(
        self, job: JobId, index: int | None
    ) -> AbstractContextManager[OutputListener]:
        return self.outputs.listening(job, index)

    def tasks_with_output(self, job: JobId) -> list[int]:
        return [index for one, index in self.live if one == job]

    def figures(self) -> SchedulerFigures:
        return SchedulerFigures(
            completed=3, failed=1, completions_per_second=2.0, latency_mean_seconds=0.5
        )

    def user_of(self, job: str) -> str | None:
        found = self.jobs_by_id.get(JobId(job))
        return None if found is None else found.submit.user

    def keep_credential(self, token: bytes, rights: Rights) -> None:
        self.credentials.append((token, rights))

    def revoke(self, records: list[bytes]) -> int:
        self.revocations += records
        return len(records)

    @property
    def blobs(self) -> None:
        return None

    def clusters(self) -> Clusters:
        assert self.registry is not None, "the test gives it one"
        return self.registry

    def prometheus(self) -> bytes:
        return METRICS

    @property
    def network(self) -> Network:
        return FakeNetwork()

    # What tests do

    def end(self, job: FakeJob, index: int, state: str = "succeeded", value: bytes = b"") -> None:
        self.sequence += 1
        work = job.specification.work
        cancelled = state == "cancelled"
        code = None
        if work.driver == "process" and not cancelled:
            code = 0 if state == "succeeded" else 1
        ended = TaskEnded(
            job=job.number,
            index=index,
            owner_epoch=1,
            state=state,
            reason="asked" if cancelled else "",
            attempt=None if cancelled else AttemptId(1 << 40 | self.sequence),
            attempt_state="" if cancelled else state,
            number=0 if cancelled else 1 + len(job.ended_attempts.get(index, [])),
            worker=None if cancelled else WORKER,
            exit_code=code,
            value=value,
            digest=blake3(value).digest() if value else b"",
            error="ValueError: no" if state == "failed" and code is None else "",
            stdout=b"out\n" if work.driver == "process" else b"",
            stderr=b"err\n" if work.driver == "process" else b"",
            started_at=None if cancelled else CREATED_AT + 1,
            ended_at=ENDED_AT,
        )
        job.results[index] = Result(self.sequence, ended)
        self._changed.set()
        self.audience.wake()

    def lose(self, job: FakeJob, index: int) -> None:
        """An earlier attempt that went down with its worker."""
        lost = AttemptEnded(
            job.number,
            index,
            1,
            AttemptId(1),
            "lost",
            True,
            1,
            WORKER,
            None,
            "gone",
            None,
            ENDED_AT,
        )
        job.ended_attempts.setdefault(index, []).append(lost)

    # The machine

    def _answer(self, event: events.Event) -> object:
        match event:
            case events.Submit():
                return self._submit(event)
            case events.ReadWorkers():
                return [worker()]
            case events.ReadFigures():
                return Figures(15, 2, 6, 2, 1, 3, 2, 1, 1, 1, 1)
        job = self._job(event.job_id)  # type: ignore[attr-defined]
        match event:
            case events.Append():
                return self._append(job, event)
            case events.CloseJob():
                job.closed = True
                self._changed.set()
                return job.view()
            case events.CancelJob():
                for index in range(job.count):
                    if index not in job.results:
                        self.end(job, index, "cancelled")
                return job.view()
            case events.ReadJob():
                return job.view()
            case events.WaitJob():
                return job.view() if job.view().ended_at else None
            case events.ReadLiveTasks(_, _, first, limit):
                places = range(first, min(first + limit, job.count))
                tasks = [self._task(job, index) for index in places if index not in job.results]
                return LiveTasks(tasks, [Span(first, len(places), job.specification)])
        return self._about_task(job, event)

    def _about_task(self, job: FakeJob, event: events.Event) -> object:
        index: int = event.index  # type: ignore[attr-defined]
        if index >= job.count:
            raise NotFound(f"job {job.submit.job_id} has no task {index}")
        result = job.results.get(index)
        submit = job.submit
        ended = None if result is None else result.ended
        over = TaskIsOver(submit.job_id, index, submit.name, job.specification, CREATED_AT)
        match event:
            case events.CancelTask():
                if result is not None and result.ended.state != "cancelled":
                    raise Conflict(f"the task has {result.ended.state} already")
                if result is None:
                    self.end(job, index, "cancelled")
                return over
            case events.WaitTask():
                return ended and msgspec.structs.replace(over, ended=ended)
            case events.ReadTask():
                return over if result else self._task(job, index)
            case events.ExplainTask():
                obstacle = Obstacle("has no GPU", False, ["worker-1"], 1)
                return Explanation(
                    over.job_id, index, "queued", "no_match", "waits", [obstacle], 0, 1, None
                )
        raise AssertionError(event)

    def _submit(self, event: events.Submit) -> object:
        same = self.jobs_by_id.get(event.job_id)
        known = same or self.keys.get(event.idempotency_key)
        if known is not None:
            if same is not None and event.wait:
                return self._first_task(known, event)
            if known.submit.body_digest == event.body_digest:
                return SubmittedView(known.view(), True)
            detail = "another body came with it before"
            raise Unprocessable(detail) if event.idempotency_key else Conflict(detail)
        if event.dry_run:
            return PreviewView(event.count, [], [])
        job = FakeJob(event, len(self.jobs_by_id) + 1)
        self.jobs_by_id[event.job_id] = job
        if event.idempotency_key:
            self.keys[event.idempotency_key] = job
        if event.count:
            job.batches.append((0, event.count))
            self._take(job, event.count, event.arguments)
        for part in () if event.derived is None else event.derived.parts:
            job.batches.append((job.count, part.count))
            self._take(job, part.count, part.arguments)
        if event.wait:
            return self._first_task(job, event)
        return SubmittedView(job.view(), False)

    def _first_task(self, job: FakeJob, event: events.Submit) -> object:
        return self._about_task(job, events.WaitTask(event.request, event.job_id, 0))

    def _append(self, job: FakeJob, event: events.Append) -> BatchView:
        if event.batch < len(job.batches):
            first, count = job.batches[event.batch]
            return BatchView(event.job_id, event.batch, first, count, True)
        if job.closed:
            raise Conflict("the job is closed")
        first = job.count
        job.batches.append((first, event.count))
        self._take(job, event.count, event.arguments)
        return BatchView(event.job_id, event.batch, first, event.count, False)

    def _take(self, job: FakeJob, count: int, arguments: bytes) -> None:
        raws = msgspec.json.decode(arguments, type=list[msgspec.Raw]) if arguments else []
        first = job.count
        job.arguments += [bytes(raw) for raw in raws] or [b""] * count
        work = job.specification.work
        for index in range(first, first + count):
            if work.function.startswith("fails:") or work.command[:1] == ("false",):
                self.end(job, index, "failed")
            elif work.driver == "python" and not work.function.startswith("waits:"):
                self.end(job, index, value=job.arguments[index] or b"null")
            elif work.driver == "process":
                self.end(job, index)

    def _job(self, job: JobId) -> FakeJob:
        if job not in self.jobs_by_id:
            raise NotFound(f"there is no job {job}")
        return self.jobs_by_id[job]

    def _task(self, job: FakeJob, index: int) -> TaskView:
        return TaskView(
            job_id=job.submit.job_id,
            index=index,
            name=job.submit.name,
            user=job.submit.user,
            specification=job.specification,
            state="queued",
            reason="no_match",
            number=1,
            worker=None,
            worker_name="",
            created_at=CREATED_AT,
            started_at=None,
            ended_attempts=job.ended_attempts.get(index, []),
            next_try_at=None,
        )

    # The store

    def job(self, job: JobId) -> JobRow | None:
        return self.jobs_by_id[job].row() if job in self.jobs_by_id else None

    def jobs(self, *, before: JobId | None, limit: int) -> list[JobRow]:
        found = list(reversed(self.jobs_by_id.values()))
        if before is not None:
            number = self.jobs_by_id[before].number
            found = [job for job in found if job.number < number]
        return [job.row() for job in found[:limit]]

    def definition(self, job: JobId) -> JobDefinition | None:
        found = self.jobs_by_id.get(job)
        if found is None:
            return None
        failed = [n for n, one in found.results.items() if one.ended.state != "succeeded"]
        arguments = b"[" + b",".join(found.arguments) + b"]" if any(found.arguments) else b""
        block = DefinedBlock(0, 0, found.count, arguments, tuple(sorted(failed)))
        specification = encode_specification(found.specification)
        opened = msgspec.structs.replace(found.row().opened, specification=specification)
        return JobDefinition(opened, [], [block])

    def find_jobs(self, prefix: str, limit: int, ending: str = "") -> list[JobId]:
        known = self.jobs_by_id
        found = [job for job in known if job.startswith(prefix) and job.endswith(ending)]
        return sorted(found)[:limit]

    def result(self, job: JobId, index: int) -> Result | None:
        return self.jobs_by_id[job].results.get(index)

    def results(self, job: JobId, *, after: int, limit: int) -> list[Result]:
        found = (one for one in self.jobs_by_id[job].results.values() if one.sequence > after)
        return sorted(found, key=lambda result: result.sequence)[:limit]

    def lines(self, job: JobId, *, after: int, limit: int) -> Lines:
        return lines_of(self.results(job, after=after, limit=limit), after)

    def ends(self, *, after: int, limit: int, job: JobId | None = None) -> list[End]:
        found = [
            _end(one, result, result.sequence == max(r.sequence for r in one.results.values()))
            for one in self.jobs_by_id.values()
            if job in (None, one.submit.job_id)
            for result in one.results.values()
            if result.sequence > after
        ]
        return sorted(found, key=lambda end: end.sequence)[:limit]

    def sequences(self) -> tuple[int, int]:
        return self.pruned_sequence, self.sequence

    def results_by_index(self, job: JobId, *, first: int, limit: int) -> list[Result]:
        results = self.jobs_by_id[job].results
        return [results[index] for index in range(first, first + limit) if index in results]

    def value(self, job: JobId, index: int, *, offset: int, length: int) -> bytes:
        ended = self.jobs_by_id[job].results[index].ended
        return (ended.value or b"9" * ended.value_size)[offset : offset + length]

    def ended_attempts(self, job: JobId, index: int) -> list[AttemptEnded]:
        return self.jobs_by_id[job].ended_attempts.get(index, [])

    def arguments(self, job: JobId, index: int) -> bytes:
        return self.jobs_by_id[job].arguments[index]

    def arguments_by_index(self, job: JobId, *, first: int, limit: int) -> dict[int, bytes]:
        known = self.jobs_by_id[job].arguments
        return {
            index: known[index]
            for index in range(first, min(first + limit, len(known)))
            if known[index]
        }


def _end(job: FakeJob, result: Result, is_last: bool) -> End:
    ended, view = result.ended, job.view()
    return End(
        result.sequence,
        view.job_id,
        view.name,
        view.user,
        ended.index,
        ended.state,
        ended.reason,
        ended.number,
        ended.worker,
        ended.exit_code,
        ended.error,
        ended.ended_at,
        view.state if is_last and view.ended_at else "",
    )


def worker() -> WorkerView:
    gpus = (Gpu("A100", 40_000_000_000),)
    has = Capabilities(cpu_cores=4, memory=32_000_000_000, gpus=gpus, models=("llama-2-7b",))
    free = Free(cpu_millis=2500, memory=1, gpu_millis=(500,))
    return WorkerView(
        WORKER,
        "worker-1",
        "healthy",
        True,
        has,
        free,
        2,
        1,
        4,
        0.5,
        1.25,
        ENDED_AT,
        0,
        0.0015,
        (),
        "0",
    )
