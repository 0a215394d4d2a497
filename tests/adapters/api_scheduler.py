"""A scheduler for the API's tests: the real machine over a journal in memory, with one worker,
whose machine is real too and whose tasks end at once, or when a test says so.

`python` tasks answer with their own arguments (`fails:…` raises), `process` tasks exit with 0
(`false` with 1), and `waits:…` runs until a test ends it. Nothing serves the model `m`.

Everything is done by the time an event has been posted, as if the network, the disk and the
tasks took no time: a quick task has ended when its submission is answered.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
from blake3 import blake3

from mycel.api.backend import Clusters
from mycel.api.routes.network_routes import DiscoveryAnswer, PeerAnswer, SwarmAnswer
from mycel.core import effects, events
from mycel.core.errors import Refusal
from mycel.core.identifiers import AttemptId, JobId, LaneId, PeerId, RequestId
from mycel.core.journal import JobOpened, TaskEnded
from mycel.core.machine_settings import RetrySettings, SchedulerSettings, WorkerSettings
from mycel.core.model.resources import Capabilities, Gpu
from mycel.core.model.work import Finished, Run
from mycel.core.rights import Rights
from mycel.core.scheduler import Scheduler
from mycel.core.worker import WorkerMachine
from mycel.roles.scheduler.api_backend import SchedulerBackend
from mycel.runtime.runtime import Perform, Runtime
from mycel.store.interface import Reader
from mycel.store.live_logs import LiveLogs
from mycel.swarm.interface import SwarmFigures
from mycel.testing.store.memory_journal import MemoryStore

Value = TypeVar("Value")
State = Literal["succeeded", "failed"]

SCHEDULER = PeerId("12D3KooScheduler")
WORKER = PeerId("12D3KooWorker")
GATEWAY = PeerId("12D3KooGateway")
SETTINGS = SchedulerSettings(
    lease_seconds=3600.0,  # nobody sends heartbeats here
    health_check_interval=3600.0,
    retry=RetrySettings(backoff_base=0.0),
)
CAPABILITIES = Capabilities(
    cpu_cores=64,
    memory=32_000_000_000,
    gpus=(Gpu("A100", 40_000_000_000),),
    models=("llama-2-7b",),
    drivers=("python", "process"),
)


class InstantClock:
    """The loop's time. What is due happens within `settle`, and not one round of the loop later."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._due: deque[Callable[[], None]] = deque()
        self._settling = False

    def now(self) -> float:
        return self._loop.time()

    def unix(self) -> float:
        return time.time()

    def call_soon(self, callback: Callable[[], None], /) -> None:
        self._due.append(callback)

    def call_at(self, when: float, callback: Callable[[], None]) -> None:
        if when <= self.now():
            self._due.append(callback)
        else:
            self._loop.call_at(when, self._wake, callback)

    def _wake(self, callback: Callable[[], None]) -> None:
        self._due.append(callback)
        self.settle()

    def settle(self) -> None:
        """Until nothing is due any more."""
        if self._settling:
            return
        self._settling = True
        try:
            while self._due:
                self._due.popleft()()
        finally:
            self._settling = False


class Performers(dict[type[effects.Effect], Perform]):
    """Of most effects nothing comes here: there is no network and no log."""

    def __missing__(self, effect: type[effects.Effect]) -> Perform:
        return lambda _: None


class ApiWorker:
    """A worker's machine, and its driver."""

    def __init__(
        self, clock: InstantClock, boot: int, name: str, capabilities: Capabilities
    ) -> None:
        self._clock = clock
        self.machine = WorkerMachine(
            WorkerSettings(lease_seconds=SETTINGS.lease_seconds),
            capabilities,
            name=name,
            digest=digest,
        )
        self.send: Callable[[effects.Send], None] = lambda effect: None
        perform = Performers(
            {
                effects.Send: lambda effect: self.send(effect),
                effects.RunAttempts: self._run,
                effects.KillRuns: self._kill,
                effects.WithdrawRuns: lambda effect: None,
            }
        )
        self.runtime = Runtime(self.machine, clock, None, perform, fail)
        self.held: dict[str, Run] = {}
        """By task id: until a test ends them."""
        self._lanes: dict[LaneId, AttemptId] = {}
        """Which of them runs there."""
        self.runtime.post(events.SpoolLoaded(boot, {}))

    def end(self, task_id: str, how: Callable[[AttemptId], Finished]) -> None:
        run = self._let_go(task_id)
        self._finished(how(run.attempt))

    def _run(self, effect: effects.RunAttempts) -> None:
        for run in effect.runs:
            if effect.lane in self._lanes:
                self.runtime.post(events.RunsReturned(effect.lane, [run.attempt]))
            elif run.work.function.startswith("waits:"):
                self.held[run.task_id] = run
                self._lanes[effect.lane] = run.attempt
                self.runtime.post(events.RunsStarted([(run.attempt, self._clock.now())]))
            else:
                self._finished(outcome_of(run))

    def _kill(self, effect: effects.KillRuns) -> None:
        for task_id, run in list(self.held.items()):
            if run.attempt in effect.attempts:
                self._let_go(task_id)
                self._finished(Finished(run.attempt, "cancelled", error="cancelled"))

    def _let_go(self, task_id: str) -> Run:
        run = self.held.pop(task_id)
        self._lanes = {lane: one for lane, one in self._lanes.items() if one != run.attempt}
        return run

    def _finished(self, finished: Finished) -> None:
        now = self._clock.now()
        ended = msgspec.structs.replace(finished, started_at=now, ended_at=now)
        self.runtime.post(events.RunsFinished([ended]))


def outcome_of(run: Run) -> Finished:
    work = run.work
    if work.driver == "process":
        failed = work.command[:1] == ("false",)
        state: State = "failed" if failed else "succeeded"
        code = int(failed)
        return Finished(run.attempt, state, exit_code=code, stdout=b"out\n", stderr=b"err\n")
    if work.function.startswith("fails:"):
        return Finished(run.attempt, "failed", error="ValueError: no")
    return Finished(run.attempt, "succeeded", run.arguments or b"null")


def digest(value: bytes) -> bytes:
    return blake3(value).digest()


def keyed(secret: bytes, message: bytes) -> Any:
    return blake3(message, key=secret)


def fail(error: BaseException) -> None:
    raise error


class ApiNetwork:
    """One gateway and one worker; the worker answers pings, nobody else does."""

    def peers(self) -> list[PeerAnswer]:
        return [
            PeerAnswer(peer, "", [role], [], "direct", 0.5, 10.0, 0.1, "mycel/1", ["00" * 32])
            for peer, role in ((WORKER, "worker"), (GATEWAY, "gateway"))
        ]

    def status(self) -> SwarmAnswer:
        ways = DiscoveryAnswer(True, True, 2, 0, 0)
        return SwarmAnswer(
            "node", SCHEDULER, ["scheduler"], "1", [], [GATEWAY], [], {}, {}, 1, 1, ways
        )

    def known(self) -> dict[str, str]:
        return {WORKER: "worker-1", GATEWAY: ""}

    def figures(self) -> SwarmFigures:
        return SwarmFigures()

    async def ping(self, peer: str, count: int) -> tuple[list[float], str]:
        return ([0.001 * n for n in range(1, count + 1)], "") if peer == WORKER else ([], "silent")


class ApiJob:
    """A job that the machine has taken."""

    def __init__(self, backend: ApiScheduler, opened: JobOpened, submit: events.Submit) -> None:
        self._backend = backend
        self.id = opened.id
        self.submit = submit
        self.specification = submit.specification

    @property
    def state(self) -> str:
        row = self._backend.store.job(self.id)
        assert row is not None
        return row.state

    @property
    def results(self) -> dict[int, TaskEnded]:
        found = self._backend.store.results(self.id, after=0, limit=100_000)
        return {one.ended.index: one.ended for one in found}


class ApiScheduler(SchedulerBackend):
    """The scheduler role's own backend, and what tests do with what is behind it."""

    def __init__(
        self, folder: Path, worker_name: str = "worker-1", capabilities: Capabilities = CAPABILITIES
    ) -> None:
        self._folder, self._worker_name, self._capabilities = folder, worker_name, capabilities
        self._begin()

    def reset(self) -> None:
        """As if it had just been made."""
        self.close()
        self._begin()

    def _begin(self) -> None:
        self.machine = Scheduler(SETTINGS, digest=digest, keyed=keyed, random=lambda: 0.5)
        self._clock = InstantClock(asyncio.get_running_loop())
        self.store = MemoryStore(self._clock, at_once=lambda: True)
        logs = LiveLogs(Path(tempfile.mkdtemp(dir=self._folder)) / "journal.db")
        super().__init__(self.machine, self.store, logs, "scheduler", "1")
        self.refusal: Refusal | None = None
        """What every request is answered with, if there is one."""
        self.registry: Clusters | None = None
        self.asked: list[events.Event] = []
        self.put_count = 0
        """Requests that went the short way."""
        self.reads = 0
        self.forgotten_count = 0
        self.forgets = threading.Semaphore(0)
        self.waiting = threading.Event()
        """Somebody waits for a task."""
        self.shown_credentials: list[tuple[bytes, Rights]] = []
        self._submits: dict[JobId, events.Submit] = {}
        perform = Performers(
            {
                effects.Send: self._send,
                effects.SendAhead: self._send,
                effects.Dial: lambda effect: self._post_now(events.DialFailed(effect.peer, True)),
                effects.Reply: self.reply,
                effects.JobsAdvanced: self.advanced,
                effects.Tell: self.told,
                effects.TaskStreamed: self.streamed,
                effects.TaskWrote: self.wrote,
                effects.TaskLeft: self.left,
                effects.JobsForgotten: self.forgotten,
            }
        )
        self._runtime = Runtime(self.machine, self._clock, self.store, perform, fail)
        self._boots = 0
        self.start(self._post_now, SCHEDULER, ApiNetwork())  # type: ignore[arg-type]
        boot = self.store.raise_boot()
        self._post_now(events.Restart(boot, self.store.restore(), self.store.secret()))
        self.worker = self._start_worker()

    # The worker

    def _start_worker(self) -> ApiWorker:
        self._boots += 1
        worker = ApiWorker(self._clock, self._boots, self._worker_name, self._capabilities)
        worker.send = lambda effect: self._post_now(
            events.Received(WORKER, effect.message, self._clock.now())
        )
        self.worker = worker
        self._post_now(events.LinkUp(WORKER))
        worker.runtime.post(events.LinkUp(SCHEDULER))
        self._clock.settle()
        return worker

    def _send(self, effect: effects.Send | effects.SendAhead) -> None:
        message = events.Received(SCHEDULER, effect.message, self._clock.now())
        self.worker.runtime.post(message)

    def end(
        self,
        job: ApiJob,
        index: int,
        state: State = "succeeded",
        value: bytes = b"null",
        *,
        error: str = "ValueError: no",
    ) -> None:
        """Ends a task that waits for it."""
        failed = state == "failed"
        self.worker.end(
            f"{job.id}.{index}",
            lambda attempt: Finished(
                attempt,
                state,
                b"" if failed else value,
                error=error if failed else "",
            ),
        )
        self._clock.settle()

    def lose_worker(self) -> None:
        """It dies, and another one takes its place."""
        self._post_now(events.LinkDown(WORKER, "the connection was lost"))
        self._start_worker()

    def close_worker(self, reason: str) -> None:
        """It takes no more tasks."""
        self.worker.runtime.post(events.Shut("owner", reason))
        self._clock.settle()

    def measure_round_trip(self, seconds: float) -> None:
        self._post_now(events.RoundTrip(WORKER, seconds))

    def tell(self, happenings: list[effects.Happening]) -> None:
        """Whoever listens, as if the machine did."""
        self.told(effects.Tell(happenings))

    # What the API calls

    def _post_now(self, event: events.Event) -> None:
        self._runtime.post(event)
        self._clock.settle()

    async def ask(self, make: Callable[[RequestId], events.Event]) -> object:
        self.put_count -= 1
        return await super().ask(make)

    def put(
        self, make: Callable[[RequestId], events.Event], reply: Callable[[object], None]
    ) -> RequestId:
        self.put_count += 1
        refusal = self.refusal

        def make_and_note(request: RequestId) -> events.Event:
            event = make(request)
            self.asked.append(event)
            if isinstance(event, events.Submit):
                self._submits.setdefault(event.job_id, event)
            return event

        loop = asyncio.get_running_loop()
        if refusal is not None:
            loop.call_soon(reply, refusal)
            return RequestId(0)

        # Never inside this call, as nobody expects it there.
        def reply_soon(answer: object) -> None:
            loop.call_soon(reply, answer)

        request = super().put(make_and_note, reply_soon)
        if request in self._waiting:
            self.waiting.set()
        return request

    def forget(self, request: RequestId) -> None:
        super().forget(request)
        self.forgotten_count += 1
        self.forgets.release()

    async def read(self, look: Callable[[Reader], Value]) -> Value:
        self.reads += 1
        return look(self.store)  # which is of one thread

    def clusters(self) -> Clusters:
        assert self.registry is not None, "the test gives it one"
        return self.registry

    def keep_credential(self, token: bytes, rights: Rights) -> None:
        self.shown_credentials.append((token, rights))

    # What tests look at

    @property
    def jobs_by_id(self) -> dict[JobId, ApiJob]:
        opened = [one.entry for one in self.store.committed if isinstance(one.entry, JobOpened)]
        return {one.id: ApiJob(self, one, self._submits[one.id]) for one in opened}
