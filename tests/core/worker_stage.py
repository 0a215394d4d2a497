"""A worker's machine with a scheduler that is linked to it, for the tests of its rules."""

from __future__ import annotations

from mycel.core import events, messages
from mycel.core.authenticators import AUTHENTICATOR_BYTES
from mycel.core.effects import Effect, RunAttempts, Send
from mycel.core.identifiers import AttemptId, JobId, JobNumber, LeaseId, PeerId, RequestId
from mycel.core.invariants import check_worker
from mycel.core.machine_settings import WorkerSettings
from mycel.core.messages import Bundle, Offer
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

    def lease(self) -> LeaseId:
        [offer] = [one for one in self.hear(request()) if isinstance(one, Offer)]
        assert offer.lease is not None, offer.reason
        return offer.lease

    def assign(self, lease: LeaseId, count: int = 1) -> list[AttemptId]:
        """The worker's own numbers for them, of those that reached a lane."""
        effects = self.send(lease, count)
        runs = [run for one in effects if isinstance(one, RunAttempts) for run in one.runs]
        return [run.attempt for run in runs]

    def send(self, lease: LeaseId, count: int = 1, first: int = 1) -> list[Effect]:
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
        return self.do(events.Received(PEER, messages.Assign(lease, [bundle]), self.now))

    def start(self, run: AttemptId) -> list[Effect]:
        return self.do(events.RunsStarted([(run, self.now)]))

    def finish(self, run: AttemptId, state: FinishedState) -> list[Effect]:
        return self.do(events.RunsFinished([Finished(run, state)]))

    def shut(self, after: float | None = None) -> list[Effect]:
        return self.do(events.Shut("owner", "its owner is here", after))


def proof_of(attempt: int) -> bytes:
    """Stands for the authenticator that the attempt came with."""
    return attempt.to_bytes(AUTHENTICATOR_BYTES, "big")


def request() -> messages.Request:
    return messages.Request(RequestId(1), SHAPE, 1, b"token")


def told(effects: list[Effect]) -> list[object]:
    return [one.message for one in effects if isinstance(one, Send)]
