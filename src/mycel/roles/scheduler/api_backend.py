"""What stands between the scheduler's machine and its API: requests with their answers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, TypeVar

from mycel.api.backend import Clusters, Pieces, Stopping
from mycel.api.event_listeners import Audience, Listener
from mycel.api.output_followers import OutputAudience, OutputListener
from mycel.api.routes.network_routes import Network
from mycel.api.submission.model_owners import ModelNames
from mycel.blobs.scheduler_blobs import SchedulerBlobs
from mycel.core.effects import (
    JobsAdvanced,
    JobsForgotten,
    Reply,
    TaskLeft,
    TaskStreamed,
    TaskWrote,
    Tell,
)
from mycel.core.errors import Refusal
from mycel.core.events import Event, Forget, Listen
from mycel.core.identifiers import JobId, JobNumber, RequestId
from mycel.core.rights import Rights
from mycel.core.scheduler import Scheduler
from mycel.core.views import Figures
from mycel.runtime.clock import boot_seconds
from mycel.store.checkpoints import Checkpoints
from mycel.store.interface import Reader
from mycel.store.live_logs import LiveLogs, Stretch
from mycel.telemetry.blob_metrics import blob_metrics
from mycel.telemetry.metrics import Recent, SchedulerFigures, SchedulerMetrics
from mycel.telemetry.swarm_metrics import swarm_metrics

from .job_credentials import Credentials
from .network_view import SchedulerNetwork

Value = TypeVar("Value")
READERS: Final = 2
"""Threads that read the store for the API."""


class SchedulerBackend:
    """`api.backend.Backend` and `scheduling.Clients`: asks the machine, and hears its replies."""

    def __init__(
        self,
        machine: Scheduler,
        reader: Reader,
        live_logs: LiveLogs,
        name: str,
        version: str,
        model_names_at: Path | None = None,
    ) -> None:
        self._machine = machine
        self._live_logs = live_logs
        self._outputs = OutputAudience()
        self._reader = reader
        self._name = name
        self._peer = ""
        self._network: SchedulerNetwork | None = None
        self._post: Callable[[Event], None] | None = None
        self._request = 0
        self._waiting: dict[RequestId, Callable[[object], None]] = {}
        self._followers: dict[JobNumber, set[asyncio.Event]] = {}
        self._audience = Audience(self._listen)
        self._streams: dict[JobId, Pieces] = {}
        self._threads = ThreadPoolExecutor(READERS, thread_name_prefix="reader")
        self._loop = asyncio.get_running_loop()
        self._metrics = SchedulerMetrics(self._figures, version=version)
        self._selections = Recent(boot_seconds())
        self._latencies = Recent(boot_seconds())
        self.names = ModelNames(machine.is_model, machine.served_models, model_names_at)
        self.credentials: Credentials | None = None
        """Of the users whose jobs run here."""
        self.checkpoints: Checkpoints | None = None
        """Of tasks that have not ended."""
        self.spread: Callable[[list[bytes]], int] | None = None
        """Where revocations go."""
        self.blobs: SchedulerBlobs | None = None
        """The files of users and jobs."""
        self.open_clusters: Callable[[], Clusters] | None = None
        """Where clusters register."""
        self._clusters: Clusters | None = None
        self._clusters_lock = threading.Lock()
        self.log_lines_dropped: Callable[[], int] = lambda: 0
        self.is_stalled: Callable[[], bool] = lambda: False
        """Whether entries wait for the disk, and nothing is committed."""

    def start(self, post: Callable[[Event], None], peer: str, network: SchedulerNetwork) -> None:
        self._post = post
        self._peer = peer
        self._network = network
        self._metrics.swarm = swarm_metrics(network.figures)

    def keep_blobs(self, keeping: SchedulerBlobs) -> None:
        self.blobs = keeping
        self._metrics.blobs = blob_metrics(keeping)
        keeping.start()

    def clusters(self) -> Clusters:
        with self._clusters_lock:
            if self._clusters is None:
                assert self.open_clusters is not None, "it is set before the API starts"
                self._clusters = self.open_clusters()
            return self._clusters

    def stop(self) -> None:
        """Nobody is answered any more."""
        self._post = None
        waiting, self._waiting = self._waiting, {}
        for reply in waiting.values():
            reply(Stopping("the scheduler is stopping"))
        for events in self._followers.values():
            for event in events:
                event.set()
        self._audience.close()
        self._outputs.close()

    def close(self) -> None:
        self._threads.shutdown(wait=True)

    # For the API

    @property
    def name(self) -> str:
        return self._name

    @property
    def peer(self) -> str:
        return self._peer

    @property
    def network(self) -> Network:
        if self._network is None or self._post is None:
            raise Stopping("the scheduler is stopping")
        return self._network

    @property
    def ready(self) -> bool:
        return self._post is not None and not self.is_stalled()

    async def ask(self, make: Callable[[RequestId], Event]) -> object:
        future: asyncio.Future[object] = self._loop.create_future()

        def settle(answer: object) -> None:
            if not future.done():
                future.set_result(answer)

        request = self.put(make, settle)
        try:
            answer = await future
        except asyncio.CancelledError:
            self.forget(request)
            raise
        if isinstance(answer, Refusal | Stopping):
            raise answer
        return answer

    def put(self, make: Callable[[RequestId], Event], reply: Callable[[object], None]) -> RequestId:
        post = self._post
        if post is None:
            raise Stopping("the scheduler is stopping")
        self._request += 1
        request = RequestId(self._request)
        self._waiting[request] = reply
        post(make(request))
        return request

    def forget(self, request: RequestId) -> None:
        if self._waiting.pop(request, None) is not None and self._post is not None:
            self._post(Forget(request))

    async def read(self, look: Callable[[Reader], Value]) -> Value:
        return await self._loop.run_in_executor(self._threads, look, self._reader)

    @contextmanager
    def following(self, job: JobId) -> Iterator[asyncio.Event]:
        event = asyncio.Event()
        number = self._machine.number_of(job)
        if number is None:  # pruned: nothing of it will ever end again
            yield event
            return
        events = self._followers.setdefault(number, set())
        events.add(event)
        try:
            yield event
        finally:
            events.discard(event)
            if not events:
                self._followers.pop(number, None)

    def listening(self) -> AbstractContextManager[Listener]:
        return self._audience.listening()

    def _listen(self, on: bool) -> None:
        if self._post is not None:
            self._post(Listen(on))

    @contextmanager
    def streaming(self, job: JobId) -> Iterator[Pieces]:
        pieces = self._streams[job] = Pieces()
        try:
            yield pieces
        finally:
            del self._streams[job]

    def output(self, job: JobId, index: int, attempt: int | None = None) -> list[Stretch]:
        return self._live_logs.read(job, index, attempt)

    def listening_to_output(
        self, job: JobId, index: int | None
    ) -> AbstractContextManager[OutputListener]:
        return self._outputs.listening(job, index)

    def tasks_with_output(self, job: JobId) -> list[int]:
        return self._live_logs.indices(job)

    def figures(self) -> SchedulerFigures:
        self.observe()
        return self._figures()

    def user_of(self, job: str) -> str | None:
        return self._machine.user_of(job)

    def keep_credential(self, token: bytes, rights: Rights) -> None:
        if self.credentials is not None:
            self.credentials.keep(token, rights)

    def revoke(self, records: list[bytes]) -> int:
        return 0 if self.spread is None else self.spread(records)

    def prometheus(self) -> bytes:
        self.observe()
        return self._metrics.exposition()[0]

    # Effects of the machine

    def reply(self, effect: Reply) -> None:
        reply = self._waiting.pop(effect.request, None)
        if reply is not None:
            reply(effect.answer)

    def advanced(self, effect: JobsAdvanced) -> None:
        self.observe()
        self._audience.wake()
        for job in effect.jobs:
            for event in self._followers.get(job, ()):
                event.set()

    def told(self, effect: Tell) -> None:
        self._audience.tell(effect.happenings)

    def streamed(self, effect: TaskStreamed) -> None:
        pieces = self._streams.get(effect.job_id)
        if pieces is not None and effect.index == 0:
            pieces.put(effect.number, effect.piece)

    def wrote(self, effect: TaskWrote) -> None:
        job, index = effect.job_id, effect.index
        stretch = Stretch(effect.number, effect.stream, effect.offset, effect.data)
        self._live_logs.write(job, index, stretch)
        self._outputs.wrote(job, index, stretch)

    def left(self, effect: TaskLeft) -> None:
        if effect.has_output:
            self._live_logs.drop(effect.job_id, effect.index)
        self._outputs.left(effect.job_id, effect.index)
        if self.checkpoints is not None:
            self.checkpoints.drop(effect.job_id, effect.index)

    def forgotten(self, effect: JobsForgotten) -> None:
        for job in effect.jobs:
            self._live_logs.forget(job)
            if self.checkpoints is not None:
                self.checkpoints.forget(job)

    # Metrics

    def observe(self) -> None:
        """Counts what the machine has measured since the last time, in one go."""
        latencies = self._machine.take_latencies()
        if latencies:
            self._metrics.task_latency_seconds.observe_all(latencies)
            self._latencies.add(boot_seconds(), sum(latencies), len(latencies))
        selections = self._machine.take_selections()
        if selections:
            self._metrics.worker_selection_seconds.observe_all(selections)
            self._selections.add(boot_seconds(), sum(selections), len(selections))

    def _figures(self) -> SchedulerFigures:
        figures: Figures = self._machine.figures()
        now = boot_seconds()
        return SchedulerFigures(
            queued=figures.tasks_queued,
            completed=figures.tasks_succeeded,
            failed=figures.tasks_failed,
            cancelled=figures.tasks_cancelled,
            running=figures.tasks_live,
            leases=figures.leases_held,
            results_damaged=figures.results_damaged,
            results_refused=figures.results_refused,
            forgeries_refused=figures.forgeries_refused,
            workers_refused=figures.workers_refused,
            checks_late=figures.checks_late,
            log_lines_dropped=self.log_lines_dropped(),
            workers_available=figures.workers_available,
            workers_known=figures.workers_known,
            workers_quarantined=figures.workers_quarantined,
            workers_busy=figures.workers_busy,
            selection_mean_seconds=self._selections.mean(now),
            completions_per_second=self._latencies.per_second(now),
            latency_mean_seconds=self._latencies.mean(now),
        )
