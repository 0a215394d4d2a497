"""Does what the agent's machine wants, one effect after the other, and tells it what came of it."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from typing import Final

from mycel.access.errors import SecretError
from mycel.batch.batch_system import BatchSystem
from mycel.batch.errors import BatchError
from mycel.batch.shared_folder import SharedFolder
from mycel.core.agent import agent_effects as effects
from mycel.core.agent import agent_events as events
from mycel.core.agent.agent_effects import Effect
from mycel.core.agent.agent_machine import AgentMachine
from mycel.core.agent.attempts import AttemptName
from mycel.core.agent.batch_jobs import BatchEntry, BatchFailure, ClusterJob

from .agent_journal import AgentJournal
from .folder_origin import FolderOrigin

NAME_PREFIX: Final = "mycel"


class AgentLoop:
    """Blocking calls are made here, in turn: a batch system is asked one thing at a time.
    `note` gets a line for people when something goes wrong."""

    def __init__(
        self,
        machine: AgentMachine,
        journal: AgentJournal,
        batch: BatchSystem,
        share: SharedFolder,
        origin: FolderOrigin,
        *,
        clock: Callable[[], float],
        note: Callable[[str], None],
    ) -> None:
        self.machine = machine
        self._journal = journal
        self._batch = batch
        self._share = share
        self._origin = origin
        self._clock = clock
        self._note = note
        self._noted = ""
        self._prefix = f"{NAME_PREFIX}-{journal.agent}-"
        self._events: deque[events.Event] = deque()

    def start(self) -> None:
        """The first turn: what was assigned before is told before it is listed."""
        self._perform(self.machine.resume(self._clock()))
        self._events.extend(self._origin.news(self._clock()))
        self._events.append(events.Connected())
        self._work_off()

    def turn(self) -> None:
        self._events.extend(self._origin.news(self._clock()))
        self._events.append(events.Ticked())
        self._work_off()

    def _work_off(self) -> None:
        while self._events:
            self._perform(self.machine.handle(self._events.popleft(), self._clock()))

    def _perform(self, wanted: list[Effect]) -> None:
        for effect in wanted:
            self.perform(effect)

    def perform(self, effect: Effect) -> None:
        match effect:
            case effects.Record(entry):
                self._journal.append(entry)
            case effects.Submit(attempt, job):
                self._submit(attempt, job)
            case effects.CancelJobs(attempt):
                try:
                    self._batch.cancel([self._prefix + attempt])
                except BatchError as error:
                    self._complain(f"{attempt} cannot be cancelled now: {error}")
            case effects.SeeQueue(look):
                self._see_queue(look)
            case effects.SeeShare(attempt, job):
                self._ask_share(
                    attempt, lambda: events.ShareSeen(attempt, self._share.look(attempt, job))
                )
            case effects.Fence(attempt, job):
                self._ask_share(
                    attempt, lambda: events.FenceUp(attempt, self._share.fence(attempt, job))
                )
            case effects.Remove(attempt, job):
                with contextlib.suppress(OSError):  # it only takes up room
                    self._share.remove(attempt, job)
            case effects.Report(attempt, job, outcome):
                try:
                    self._origin.report(attempt, job, outcome)
                except (OSError, SecretError) as error:  # it is reported again
                    self._complain(f"{attempt} cannot be brought home: {error}")
                else:
                    self._events.append(events.Acknowledged(attempt))
            case effects.Progress(attempt, state, reason):
                self._origin.show(attempt, f"{state.value} {reason}".strip())
            case effects.Listing(number, _):
                self._events.append(events.Confirmed(number, self._origin.current()))
            case effects.AskStart(question, job):
                self._ask_start(question, job)
            case effects.AnswerBid():
                pass  # a folder asks for none

    def _submit(self, attempt: AttemptName, job: ClusterJob) -> None:
        try:
            submission = self._share.submission(self._prefix + attempt, attempt, job)
            self._batch.submit(submission)
        except BatchError as error:
            self._complain(f"{attempt} was not submitted: {error}")
            self._events.append(events.SubmitAnswered(attempt, error.failure, str(error)))
        except OSError as error:
            self._complain(f"{attempt} was not submitted: {error}")
            self._events.append(events.SubmitAnswered(attempt, BatchFailure.DOWN, str(error)))
        else:
            self._events.append(events.SubmitAnswered(attempt))

    def _ask_share(self, attempt: AttemptName, ask: Callable[[], events.Event]) -> None:
        try:
            self._events.append(ask())
        except OSError as error:
            self._complain(str(error))
            self._events.append(events.ShareFailed(attempt))

    def _see_queue(self, look: int) -> None:
        try:
            capacity = self._batch.capacity()
            found = self._batch.queue(self._prefix)
        except BatchError as error:
            self._complain(str(error))
            self._events.append(events.QueueUnseen(look, error.failure, str(error)))
            return
        self._noted = ""
        own = tuple(
            BatchEntry(
                one.name.removeprefix(self._prefix), one.index, one.state, one.batch_id, one.reason
            )
            for one in found
        )
        self._events.append(events.QueueSeen(look, own, capacity))

    def _ask_start(self, question: int, job: ClusterJob) -> None:
        try:
            submission = self._share.submission(f"{self._prefix}question", "question", job)
            estimate = self._batch.estimate(submission)
        except (BatchError, OSError) as error:
            self._complain(str(error))
            estimate = None
        self._events.append(events.Estimated(question, estimate))

    def _complain(self, text: str) -> None:
        """Once, until the batch system has answered again."""
        if text != self._noted:
            self._noted = text
            self._note(text)
