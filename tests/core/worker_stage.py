"""A worker's machine with a scheduler that is linked to it, for the tests of its rules."""

from __future__ import annotations

from mycel.core import events, messages
from mycel.core.authenticators import AUTHENTICATOR_BYTES
from mycel.core.effects import Effect, RunAttempts, Send
from mycel.core.identifiers import AttemptId, JobId, JobNumber, LeaseId, PeerId, ShapeNumber
from mycel.core.invariants import check_worker
from mycel.core.machine_settings import WorkerSettings
from mycel.core.messages import Bundle, Refused
from mycel.core.model.resources import Capabilities, Requirements
from mycel.core.model.work import Finished, FinishedState, Shape, Work
from mycel.core.rights import Rights
from mycel.core.worker import WorkerMachine

PEER = PeerId("scheduler")
SHAPE = Shape("process", Requirements(cpu_cores=1.0))
MACHINE = Capabilities(cpu_cores=2.0, drivers=("process",))


class Stage:
    def __init__(self, rights: Rights | None = None) -> None:
        inspect = None if rights is None else (lambda token, peer: rights)
        self.machine = WorkerMachine(
            WorkerSettings(), MACHINE, name="worker", digest=lambda value: b"", inspect=inspect
        )
        self.now = 0.0
        self.do(events.SpoolLoaded(1, {}))
        self.do(events.LinkUp(PEER))
        self.hear(messages.Welcome(messages.WIRE_VERSION, 1, 15.0, [], []))

    def do(self, event: events.Event) -> list[Effect]:
        effects = self.machine.handle(event, self.now)
        check_worker(self.machine)
        return effects

    def hear(self, message: messages.WorkMessage | messages.ControlMessage) -> list[object]:
        return told(self.do(events.Received(PEER, message, self.now)))

    @property
    def lease(self) -> LeaseId:
        """Of the registration with the scheduler."""
        return self.machine.scheduler(PEER).lease

    def introduce(self, shape: Shape = SHAPE, number: int = 1, token: bytes = b"token") -> None:
        told = messages.Introduce(self.lease, ShapeNumber(number), shape, token)
        assert self.hear(told) == [], "only a task is refused"

    def assign(self, count: int = 1, first: int = 1) -> list[AttemptId]:
        """The worker's own numbers for them, of those that reached a lane. All share a slot."""
        return started(self.send(count, first))

    def refused(self, effects: list[Effect]) -> tuple[str, str]:
        """The code and the reason."""
        [refused] = [one for one in told(effects) if isinstance(one, Refused)]
        return (refused.code, refused.reason)

    def send(
        self,
        count: int = 1,
        first: int = 1,
        slots: int = 1,
        number: int = 1,
        lease: LeaseId | None = None,
    ) -> list[Effect]:
        bundle = Bundle(
            AttemptId(first),
            JobNumber(1),
            JobId("job"),
            1,
            Work("process", command=("true",)),
            list(range(count)),
            [1] * count,
            [],
            b"".join(proof_of(first + place) for place in range(count)),
        )
        under = self.lease if lease is None else lease
        assign = messages.Assign(under, ShapeNumber(number), slots, [bundle])
        return self.do(events.Received(PEER, assign, self.now))

    def start(self, run: AttemptId) -> list[Effect]:
        return self.do(events.RunsStarted([(run, self.now)]))

    def finish(self, run: AttemptId, state: FinishedState) -> list[Effect]:
        return self.do(events.RunsFinished([Finished(run, state)]))

    def shut(self, after: float | None = None) -> list[Effect]:
        return self.do(events.Shut("owner", "its owner is here", after))


def proof_of(attempt: int) -> bytes:
    """Stands for the authenticator that the attempt came with."""
    return attempt.to_bytes(AUTHENTICATOR_BYTES, "big")


def started(effects: list[Effect]) -> list[AttemptId]:
    runs = [run for one in effects if isinstance(one, RunAttempts) for run in one.runs]
    return [run.attempt for run in runs]


def told(effects: list[Effect]) -> list[object]:
    return [one.message for one in effects if isinstance(one, Send)]
