"""Who gets the next try of a model's request, and how long a service is tried again."""

from __future__ import annotations

from mycel.core.effects import Effect, Record
from mycel.core.events import HeartbeatReceived, Received, Submit, Tick
from mycel.core.identifiers import AttemptId, JobNumber, PeerId, RequestId
from mycel.core.journal import TaskEnded
from mycel.core.messages import Load, Outcome, Results
from mycel.core.model.jobs import Specification
from mycel.core.model.resources import Capabilities, Requirements, ServedModel
from mycel.core.model.work import Work
from mycel.core.worker.served_models import with_served

from .test_placing import GB, JOB, Story, assigned, room_of, sent

MACHINE = Capabilities(cpu_cores=2.0, memory=8 * GB, drivers=("model", "service"))
SERVES = with_served(MACHINE, (ServedModel("parrot", slots=2),))


def submit(story: Story, work: Work) -> list[Effect]:
    specification = Specification(work, Requirements())
    return story.tell(Submit(RequestId(1), JOB, "", "owner", specification, 1, b"", True))


def fail(story: Story, name: str, attempt: int) -> list[Effect]:
    outcome = Outcome(
        AttemptId(attempt), JobNumber(1), 0, "failed", error="it is down", driver_fault=True
    )
    return story.tell(Received(PeerId(name), Results(story.now, [outcome], []), story.now))


def wait(story: Story, seconds: float) -> list[Effect]:
    """Until somebody is asked or sent something, or time is up."""
    ends_at = story.now + seconds
    while (due := story.machine.wake_at) is not None and due <= ends_at:
        story.now = max(story.now, due)
        for peer in list(story.machine.state.workers):
            story.tell(HeartbeatReceived(peer, story.now, story.now))
        effects = story.tell(Tick())
        if sent(effects):
            return effects
    return []


def test_another_worker_gets_what_a_failing_server_could_not_do() -> None:
    story = Story()
    story.come("a", SERVES)
    [attempt] = sent(submit(story, Work("model", model="parrot")))
    story.come("b", SERVES)
    fail(story, "a", attempt)
    news = Load(free=room_of(story, "a"), running=0)
    story.tell(Received(PeerId("a"), news, story.now))
    [(worker, _)] = assigned(wait(story, 10.0))
    assert worker == "b", "whatever the failing one says of its room"


def test_a_failing_server_is_used_again_if_it_is_the_only_one() -> None:
    story = Story()
    story.come("a", SERVES)
    [attempt] = sent(submit(story, Work("model", model="parrot")))
    fail(story, "a", attempt)
    assert len(sent(wait(story, 10.0))) == 1


def test_a_service_is_tried_again_without_end() -> None:
    story = Story()
    story.come("a", MACHINE)
    effects = submit(story, Work("service", model="parrot"))
    pauses = []
    for _ in range(10):
        [attempt] = sent(effects)
        failed_at = story.now
        records = [one for one in fail(story, "a", attempt) if isinstance(one, Record)]
        entries = [entry for record in records for entry in record.entries]
        assert not any(isinstance(entry, TaskEnded) for entry in entries)
        effects = wait(story, 200.0)
        pauses.append(story.now - failed_at)
    assert pauses[0] < pauses[2] < pauses[4] <= 60.0
    assert max(pauses) <= 60.0 * 1.2
