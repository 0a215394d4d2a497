"""The scheduler: events in, effects out.

    clients ──▶ queue ──▶ place ──▶ Assign        attempts ──▶ results ──▶ journal
                  ▲         ▲                        │
                  │    room of workers      lose, give back, retry
                  └──────────────────────────────────┘

`handle` does what the event says, then looks once at every shape and worker that it touched: tasks
are sent to where there is room. Where more events of the same turn follow, it looks after the
last of them, so that tasks that come together are sent together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from mycel.core import events, messages
from mycel.core.authenticators import Keyed
from mycel.core.effects import Effect
from mycel.core.events import Event
from mycel.core.identifiers import AttemptId, JobId, JobNumber, PeerId
from mycel.core.journal import EntryRefused
from mycel.core.machine_settings import SchedulerSettings
from mycel.core.matching import ALGORITHMS, Algorithm
from mycel.core.model.work import Shape
from mycel.core.scheduler.clients.client_requests import Clients
from mycel.core.scheduler.clients.dry_run import Previewing
from mycel.core.scheduler.clients.explanation import Explaining
from mycel.core.scheduler.clients.model_services import Services
from mycel.core.scheduler.clients.read_views import Views
from mycel.core.scheduler.tasks.assignments import Placement
from mycel.core.scheduler.tasks.attempt_proofs import Authentication
from mycel.core.scheduler.tasks.attempts import Attempts
from mycel.core.scheduler.tasks.completion import Ending
from mycel.core.scheduler.tasks.deadlines import Deadlines
from mycel.core.scheduler.tasks.dispatch import Sending
from mycel.core.scheduler.tasks.result_fetches import Fetches
from mycel.core.scheduler.tasks.shape_queue import ShapeQueue
from mycel.core.scheduler.tasks.stage_progress import Staging
from mycel.core.scheduler.tasks.task_reports import Reporting
from mycel.core.scheduler.trust.guard import (
    HELD_TIMER,
    NEWCOMERS_TIMER,
    RECALL_TIMER,
    TRY_TIMER,
    Guard,
)
from mycel.core.scheduler.trust.recalls import Recalls
from mycel.core.scheduler.workers.dialling import Calling
from mycel.core.scheduler.workers.draining import Draining
from mycel.core.scheduler.workers.exclusions import Exclusions
from mycel.core.scheduler.workers.registrations import Registrations
from mycel.core.scheduler.workers.slot_books import SlotBooks
from mycel.core.scheduler.workers.worker_health import Measuring
from mycel.core.scheduler.workers.worker_index import Roster
from mycel.core.scheduler.workers.worker_lifecycle import Presence
from mycel.core.scheduler.workers.worker_messages import Hearing
from mycel.core.scheduler.workers.worker_probes import Checking
from mycel.core.states import WorkerState
from mycel.core.views import Figures

from .attempt_table import AttemptTable
from .journal_faults import Faults
from .records import Hasher, Worker
from .restart import Restoring
from .retention import Retention
from .state import State


class Scheduler:
    """Pure: no clock, no randomness and no hash of its own; all of them come in."""

    def __init__(
        self,
        settings: SchedulerSettings,
        *,
        digest: Callable[[bytes], bytes],
        keyed: Keyed,
        random: Callable[[], float],
        stopwatch: Callable[[], float] = lambda: 0.0,
        algorithms: Mapping[str, Algorithm] = ALGORITHMS,
        hasher: Callable[[], Hasher] | None = None,
    ) -> None:
        self.state: Final = State(settings, digest, keyed, random, stopwatch, algorithms, hasher)
        self._authentication = Authentication(self.state)
        books = SlotBooks(self.state)
        self._guard = Guard(self.state)
        self._exclusions = Exclusions(self.state)
        self._roster = Roster(self.state, books, self._exclusions, self._guard)
        table = AttemptTable(self.state, books, self._guard)
        self._views = Views(self.state, self._guard)
        self._services = Services(self.state)
        self._measuring = Measuring(self.state)
        ending = Ending(self.state)
        sending = Sending(self.state, books, table, ending, self._authentication)
        self._placement = Placement(self.state, books, self._exclusions, self._guard, sending)
        self._attempts = Attempts(
            self.state,
            table,
            ending,
            self._measuring,
            self._roster,
            self._authentication,
            self._guard,
        )
        self._recalls = Recalls(self.state, self._guard, self._attempts)
        self._fetches = Fetches(self.state, self._attempts)
        self._deadlines = Deadlines(self.state, self._attempts)
        self._registrations = Registrations(self.state, self._roster)
        self._checking = Checking(self.state)
        self._calling = Calling(
            self.state, self._registrations, self._measuring, self._roster, self._checking
        )
        self._presence = Presence(
            self.state,
            table,
            self._attempts,
            self._fetches,
            books,
            self._registrations,
            self._measuring,
            self._calling,
            self._roster,
            self._authentication,
            self._guard,
        )
        self._staging = Staging(self.state, self._attempts)
        self._clients = Clients(
            self.state,
            self._attempts,
            ending,
            self._deadlines,
            self._calling,
            self._staging,
            Previewing(self.state, Explaining(self.state, self._guard)),
        )
        self._restoring = Restoring(
            self.state,
            self._clients,
            self._staging,
            self._registrations,
            self._presence,
            self._measuring,
            self._deadlines,
        )
        self._faults = Faults(self.state, self._clients)
        self._retention = Retention(self.state)
        self._reporting = Reporting(self.state)
        self._hearing = Hearing(
            self.state,
            self._attempts,
            self._fetches,
            books,
            self._exclusions,
            self._registrations,
            self._roster,
        )
        self._draining = Draining(self.state, self._roster, self._views)
        self._handlers = self._event_table()
        self._messages = self._message_table()
        self._timers = self._timer_table()
        self._now = 0.0

    # The tables say who takes what; each of those names the type that it gets.

    def _event_table(self) -> dict[type[Event], Callable[..., None]]:
        clients, views = self._clients, self._views
        return {
            events.Restart: self._restoring.restart,
            events.WallClock: self._wall_clock,
            events.Reconfigure: self._reconfigure,
            events.Tick: self._tick,
            events.LinkUp: self._link_up,
            events.LinkDown: self._link_down,
            events.Received: self._received,
            events.HeartbeatReceived: self._heartbeat,
            events.SilenceNoticed: self._silence,
            events.DialFailed: self._dial_failed,
            events.CheckAnswered: self._checking.answered,
            events.CheckPutOff: self._checking.put_off,
            events.RoundTrip: self._round_trip,
            events.WorkerIsLocal: self._worker_is_local,
            events.DataHeld: self._data_held,
            events.WorkersSeen: self._calling.seen,
            events.WorkerWithdrawn: self._calling.withdrawn,
            events.Submit: clients.submit,
            events.Append: clients.append,
            events.CloseJob: clients.close,
            events.CancelJob: clients.cancel_job,
            events.CancelTask: clients.cancel_task,
            events.WaitTask: clients.wait_task,
            events.WaitJob: clients.wait_job,
            events.Forget: clients.forget,
            events.CloseWorker: self._draining.asked,
            events.Listen: self._listen,
            events.ReadTask: views.read_task,
            events.ReadJob: views.read_job,
            events.ReadLiveTasks: views.read_live_tasks,
            events.ExplainTask: views.explain_task,
            events.ReadWorkers: views.read_workers,
            events.ReadServices: views.read_services,
            events.ReadFigures: views.read_figures,
        }

    def _message_table(self) -> dict[type[messages.Message], Callable[..., None]]:
        hearing = self._hearing
        return {
            messages.Results: hearing.results,
            messages.ResultPart: self._fetches.part,
            messages.Described: self._presence.described,
            messages.Started: hearing.started,
            messages.Returned: hearing.returned,
            messages.Streamed: hearing.streamed,
            messages.Written: hearing.written,
            messages.Progressed: self._reporting.progressed,
            messages.CheckpointPart: self._reporting.checkpointed,
            messages.CheckpointWanted: self._reporting.wanted,
            messages.Accepted: hearing.accepted,
            messages.Refused: hearing.refused,
            messages.Load: hearing.load,
            messages.LoadChange: hearing.load_changed,
            messages.Closed: self._draining.answered,
        }

    def _timer_table(self) -> dict[str, Callable[[object, float], None]]:
        return {
            "lease": self._for_worker(self._presence.expired),
            "accept": self._for_worker(self._hearing.unconfirmed),
            "ask": self._exclusion_over,
            "acknowledge": self._for_worker(self._attempts.acknowledge),
            "dial": self._for_worker(self._presence.dial_again),
            "away": self._for_worker(self._presence.away_too_long),
            "forget": self._for_peer(self._calling.forget),
            "call": self._for_peer(self._calling.call_is_late),
            "check": self._for_peer(self._checking.late),
            "checks": self._checking.due,
            "part": self._calling.part_due,
            "seek": self._seek_due,
            "prune": self._retention.prune,
            "health": self._measuring.save,
            "deadline": self._deadlines.due,
            "close": self._draining.late,
            TRY_TIMER: self._for_peer(self._guard.try_it),
            RECALL_TIMER: self._for_worker(self._recalls.recall),
            NEWCOMERS_TIMER: self._guard.newcomers_due,
            HELD_TIMER: self._recalls.held_due,
        }

    @property
    def wake_at(self) -> float | None:
        """When `Tick` is due; nothing happens by the clock alone before that."""
        if self._clients.has_more or self._staging.has_more or self._placement.has_more:
            return self._now
        timer, retry = self.state.timers.wake_at, self.state.backoff.next_due
        if timer is None or retry is None:
            return retry if timer is None else timer
        return min(timer, retry)

    def handle(self, event: Event, now: float, *, more: bool = False) -> list[Effect]:
        """With `more` another event follows at once: the effects of both come with that one."""
        self._now = now
        self._handlers[type(event)](event, now)
        if self.state.staged:
            self._staging.look()
        if self.state.fetches:
            self._fetches.go_on(now)
        if more:
            return []
        self._place(now)
        while self.state.staged:  # a task that could not be sent was the last of its stage
            self._staging.look()
            self._place(now)
        if self._calling.has_new_links:
            self._calling.part_from_idle(now)
        return self.state.take_effects()

    def amended(self, refused: Sequence[EntryRefused], effects: list[Effect]) -> list[Effect]:
        """The journal has taken a group but for these entries: the effects that may leave, now
        that all of it is known."""
        return self._faults.amended(refused, effects, self._now)

    @property
    def tasks_out(self) -> int:
        """How many tasks are with workers."""
        return len(self.state.attempts)

    def task_of(self, peer: PeerId, assigned: int) -> tuple[JobId, int] | None:
        """The job and index of a task, if that worker holds it under that number."""
        worker = self.state.workers.get(peer)
        attempt = None if worker is None else worker.attempts.get(AttemptId(assigned))
        return None if attempt is None else (attempt.job.id, attempt.index)

    def user_of(self, job: str) -> str | None:
        """Whose job it is; None if it is not remembered."""
        found = self.state.job_ids.get(JobId(job))
        return None if found is None else found.user

    def number_of(self, job: JobId) -> JobNumber | None:
        """The number by which effects name a job; None if it is not remembered."""
        found = self.state.job_ids.get(job)
        return None if found is None else found.number

    def names_of_workers(self) -> dict[PeerId, str]:
        """Of all that are known, with a link or without."""
        state = self.state
        return {one.peer: one.name for one in (*state.known, *state.workers.values())}

    def is_model(self, full: str) -> bool:
        """Whether a worker serves it, by its full name, or a job is to keep it up."""
        return self.state.pool.eligibility.serves(full) or self._services.keeps_up(full)

    def served_models(self) -> list[str]:
        return self.state.pool.eligibility.models

    def addresses_of(self, peer: PeerId) -> tuple[str, ...]:
        worker = self.state.workers.get(peer)
        return () if worker is None else worker.addresses

    def figures(self) -> Figures:
        return self._views.figures()

    def is_live(self, job_id: str, index: int) -> bool:
        """Whether there is such a task, and it has not ended."""
        job = self.state.job_ids.get(JobId(job_id))
        block = None if job is None else job.block_of(index)
        return job is not None and block is not None and not job.is_ended(block, index)

    def take_latencies(self) -> list[float]:
        """Seconds from queue to success or failure, since the last call; for the metrics."""
        taken, self.state.latency_seconds = self.state.latency_seconds, []
        return taken

    def take_selections(self) -> list[float]:
        taken, self.state.selection_seconds = self.state.selection_seconds, []
        return taken

    def _place(self, now: float) -> None:
        if not (self.state.dirty or self.state.freed or self._placement.has_more):
            return
        self.state.busy_at = now
        for queue in self._placement.settle(now):
            self._calling.look(queue, now)
            if not queue.all_waiting and not queue.live:
                self._forget(queue)

    def _forget(self, queue: ShapeQueue) -> None:
        """Shapes come and go; one with nothing left of it takes no room."""
        state = self.state
        if state.backoff.has_any_of(queue.shape) or state.queues.get(queue.shape) is not queue:
            return
        self._placement.forget(queue)
        del state.queues[queue.shape]

    # Time

    def _wall_clock(self, event: events.WallClock, now: float) -> None:
        moved = abs(event.unix_offset - self.state.unix_offset) > 1.0
        self.state.unix_offset = event.unix_offset
        if moved:
            for job in self.state.jobs.values():
                self._deadlines.watch(job, now)

    def _reconfigure(self, event: events.Reconfigure, now: float) -> None:
        state = self.state
        kept = state.settings.lease_seconds
        before = state.settings.selection
        state.settings = msgspec.structs.replace(event.settings, lease_seconds=kept)
        if event.settings.selection != before:
            state.pool.apply(event.settings.selection, state.algorithms)
        for queue in state.queues.values():  # a limit may have been lifted
            state.touch(queue)

    def _tick(self, event: events.Tick, now: float) -> None:
        self._clients.go_on(now)
        self._staging.go_on(now)
        self._attempts.backed_off(now)
        for kind, key in self.state.timers.take_due(now):
            self._timers[kind](key, now)

    def _for_peer(self, act: Callable[[PeerId, float], None]) -> Callable[[object, float], None]:
        def due(key: object, now: float) -> None:
            assert isinstance(key, str)
            act(PeerId(key), now)

        return due

    def _for_worker(self, act: Callable[[Worker, float], None]) -> Callable[[object, float], None]:
        def due(key: object, now: float) -> None:
            assert isinstance(key, str)
            worker = self.state.workers.get(PeerId(key))
            if worker is not None:
                act(worker, now)

        return due

    def _seek_due(self, key: object, now: float) -> None:
        assert isinstance(key, Shape)
        self._calling.seek_due(key, now)

    def _exclusion_over(self, key: object, now: float) -> None:
        assert isinstance(key, tuple)
        worker = self.state.workers.get(key[0])
        if worker is not None:
            self._exclusions.lift(worker, key[1])

    def _listen(self, event: events.Listen, now: float) -> None:
        self.state.listening = event.on

    # Links

    def _link_up(self, event: events.LinkUp, now: float) -> None:
        """The worker speaks first."""
        self.state.remember(event.peer, event.principal)

    def _link_down(self, event: events.LinkDown, now: float) -> None:
        worker = self.state.workers.get(event.peer)
        if worker is not None:
            self._presence.link_down(worker, event.cause, now)

    def _dial_failed(self, event: events.DialFailed, now: float) -> None:
        worker = self.state.workers.get(event.peer)
        if worker is not None:
            self._presence.dial_failed(worker, event.refused, now)
        elif event.refused:
            self._checking.refused(event.peer, now)

    def _heartbeat(self, event: events.HeartbeatReceived, now: float) -> None:
        worker = self.state.workers.get(event.peer)
        if worker is not None and worker.state in (WorkerState.HEALTHY, WorkerState.SUSPECT):
            self._presence.heard(worker, event.arrived_at)
            self._registrations.renew(worker, event.peer_clock, event.arrived_at)

    def _silence(self, event: events.SilenceNoticed, now: float) -> None:
        worker = self.state.workers.get(event.peer)
        if worker is not None:
            self._presence.silent(worker, event.seconds, now)

    def _round_trip(self, event: events.RoundTrip, now: float) -> None:
        worker = self.state.workers.get(event.peer)
        if worker is not None:
            self._roster.round_trip(worker, event.seconds)

    def _worker_is_local(self, event: events.WorkerIsLocal, now: float) -> None:
        self._roster.is_local(event.peer, event.same_node, now)

    def _data_held(self, event: events.DataHeld, now: float) -> None:
        worker = self.state.workers.get(event.peer)
        if worker is not None and worker.member is not None:
            self.state.pool.has_data(worker.member, event.digest, event.size, event.seconds)

    def _received(self, event: events.Received, now: float) -> None:
        message = event.message
        if isinstance(message, messages.Register):
            self._presence.registered(event.peer, message, event.arrived_at, now)
            return
        worker = self.state.workers.get(event.peer)
        act = self._messages.get(type(message))
        if worker is None or act is None:
            return  # it has not registered, or says what no scheduler is told
        self._presence.heard(worker, event.arrived_at)
        act(worker, message, event.arrived_at, now)
