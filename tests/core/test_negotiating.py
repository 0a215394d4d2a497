"""A scheduler that asks for leases, and says why a task waits: one machine, events in and effects
out, no network."""

from __future__ import annotations

import msgspec
import pytest

from mycel.core.effects import Dial, Effect, Record, Reply, Send, SendAhead
from mycel.core.events import (
    CancelTask,
    DataHeld,
    Event,
    ExplainTask,
    LinkUp,
    ReadTask,
    Received,
    Restart,
    RoundTrip,
    Sighting,
    Submit,
    Tick,
    WorkersSeen,
)
from mycel.core.identifiers import AttemptId, JobId, JobNumber, LeaseId, PeerId, RequestId
from mycel.core.invariants import check_scheduler
from mycel.core.journal import Restored, TaskEnded
from mycel.core.machine_settings import SchedulerSettings
from mycel.core.matching import SelectionSettings, total_of
from mycel.core.messages import (
    WIRE_VERSION,
    Assign,
    Load,
    Offer,
    Outcome,
    Register,
    Release,
    Request,
    Results,
    Wanted,
)
from mycel.core.model.jobs import Specification
from mycel.core.model.prices import Tariff
from mycel.core.model.resources import Capabilities, Free, Requirements
from mycel.core.model.task_files import Input
from mycel.core.model.work import Work
from mycel.core.scheduler import Scheduler
from mycel.core.scheduler.tasks.leases import ASKED_IN_VAIN_PER_SECOND
from mycel.core.views import Explanation, TaskView

from .keys import SECRET, keyed

GB = 10**9
JOB = JobId("0" * 26)
SMALL = Capabilities(cpu_cores=2.0, memory=8 * GB, drivers=("process",))


class Story:
    def __init__(self, **selection: object) -> None:
        chosen = SelectionSettings(**selection)  # type: ignore[arg-type]
        self.machine = Scheduler(
            SchedulerSettings(selection=chosen), digest=bytes, keyed=keyed, random=lambda: 0.0
        )
        self.now = 0.0
        self.leases = 0
        self.tell(Restart(1, Restored([], [], [], [], [], 0, 0, 0, 0), SECRET))

    def tell(self, event: Event) -> list[Effect]:
        effects = self.machine.handle(event, self.now)
        check_scheduler(self.machine)
        return effects

    def come(self, name: str, has: Capabilities = SMALL) -> list[Effect]:
        self.tell(LinkUp(PeerId(name)))
        register = Register(
            WIRE_VERSION, 1, 0.0, name, has, total_of(has), (f"/memory/{name}",), [], [], []
        )
        return self.tell(Received(PeerId(name), register, self.now))

    def see(self, names: list[str], has: Capabilities = SMALL) -> list[Effect]:
        sightings = [
            Sighting(
                peer=PeerId(name),
                boot=1,
                sequence=1,
                published_at=0.0,
                valid_seconds=600.0,
                source="dht",
                capabilities=has,
                addresses=(f"/memory/{name}",),
                name=name,
            )
            for name in names
        ]
        return self.tell(WorkersSeen(sightings))

    def submit(
        self,
        count: int = 1,
        max_cost: float | None = None,
        deadline_at: float | None = None,
        job: JobId = JOB,
        **need: object,
    ) -> list[Effect]:
        specification = Specification(
            Work("process", command=("true",)),
            Requirements(**{"cpu_cores": 1.0, **need}),  # type: ignore[arg-type]
            max_cost=max_cost,
            deadline_at=deadline_at,
        )
        return self.tell(Submit(RequestId(1), job, "", "owner", specification, count, b"", True))

    def submit_with_file(self, digest: str, argument: bytes = b"") -> list[Effect]:
        """Its file stands in the job, or in the arguments of its only task."""
        inputs = (Input("data", digest),) if digest else ()
        work = Work("process", command=("true",), inputs=inputs)
        specification = Specification(work, Requirements(cpu_cores=1.0))
        submit = Submit(
            RequestId(1), JobId("1" * 26), "", "owner", specification, 1, argument, True
        )
        return self.tell(submit)

    def answer(self, name: str, request: Request, **fields: object) -> list[Effect]:
        offer = Offer(request.request, **fields)  # type: ignore[arg-type]
        return self.tell(Received(PeerId(name), offer, self.now))

    def grant(self, name: str, request: Request, **fields: object) -> list[Effect]:
        self.leases += 1
        return self.answer(
            name,
            request,
            yes=True,
            lease=LeaseId(self.leases),
            slots=request.slots,
            window=request.slots,
            **fields,
        )

    def explain(self, index: int = 0) -> Explanation:
        found = reply(self.tell(ExplainTask(RequestId(2), JOB, index)))
        assert isinstance(found, Explanation)
        return found

    def reason(self) -> str:
        found = reply(self.tell(ReadTask(RequestId(3), JOB, 0)))
        assert isinstance(found, TaskView)
        return found.reason


def reply(effects: list[Effect]) -> object:
    [answer] = [effect.answer for effect in effects if isinstance(effect, Reply)]
    return answer


def asked(effects: list[Effect]) -> dict[str, Request]:
    return {
        effect.peer: effect.message
        for effect in effects
        if isinstance(effect, Send) and isinstance(effect.message, Request)
    }


def requested(effects: list[Effect]) -> list[Request]:
    sent = [effect.message for effect in effects if isinstance(effect, Send)]
    return [message for message in sent if isinstance(message, Request)]


def assigned(effects: list[Effect]) -> list[tuple[PeerId, Assign]]:
    return [
        (effect.peer, effect.message)
        for effect in effects
        if isinstance(effect, (Send, SendAhead)) and isinstance(effect.message, Assign)
    ]


def slots_asked(effects: list[Effect]) -> dict[str, int]:
    return {name: request.slots for name, request in asked(effects).items()}


def released(effects: list[Effect]) -> list[Release]:
    return [
        effect.message
        for effect in effects
        if isinstance(effect, Send) and isinstance(effect.message, Release)
    ]


class TestWhoIsAsked:
    def test_one_task_asks_one_worker(self) -> None:
        story = Story()
        for name in "abc":
            story.come(name)
        assert len(asked(story.submit(1))) == 1

    def test_a_few_tasks_are_spread(self) -> None:
        story = Story()
        for name in "abc":
            story.come(name)
        assert slots_asked(story.submit(3)) == {"a": 1, "b": 1, "c": 1}

    @pytest.mark.parametrize("holder", "abc")
    def test_a_worker_that_has_the_file_is_asked_first(self, holder: str) -> None:
        digest = "blake3:" + "7" * 64
        story = Story()
        for name in "abc":
            story.come(name)
        story.tell(DataHeld(PeerId(holder), digest))
        assert list(asked(story.submit_with_file(digest))) == [holder]

    @pytest.mark.parametrize("holder", "abc")
    def test_and_so_it_is_for_a_file_among_the_arguments(self, holder: str) -> None:
        digest = "blake3:" + "7" * 64
        story = Story()
        for name in "abc":
            story.come(name)
        story.tell(DataHeld(PeerId(holder), digest))
        argument = msgspec.json.encode([[{"$file": digest, "path": "data"}]])
        assert list(asked(story.submit_with_file("", argument))) == [holder]

    @pytest.mark.parametrize("holder", "ab")
    def test_of_two_leases_the_one_beside_the_file_is_filled(self, holder: str) -> None:
        digest = "blake3:" + "7" * 64
        story = Story()
        for name in "ab":
            story.come(name)
        asks = asked(story.submit(2)).items()
        sendings = [assigned(story.grant(name, request)) for name, request in asks]
        for [(peer, assign)] in sendings:
            [bundle] = assign.bundles
            done = Outcome(bundle.first, JobNumber(1), bundle.indices[0], "succeeded")
            story.tell(Received(peer, Results(0.0, [done], []), story.now))
        story.tell(DataHeld(PeerId(holder), digest))
        assert [peer for peer, _ in assigned(story.submit_with_file(digest))] == [holder]

    def test_no_more_are_asked_than_can_hold_the_work(self) -> None:
        story = Story()
        for number in range(100):
            story.come(f"w{number}")
        asks = slots_asked(story.submit(60))
        assert sum(asks.values()) == 60
        assert len(asks) == 30, "two fit on each"

    def test_larger_workers_take_what_smaller_ones_cannot(self) -> None:
        story = Story()
        story.come("small")
        story.come("large", msgspec.structs.replace(SMALL, cpu_cores=16.0))
        assert slots_asked(story.submit(10)) == {"small": 2, "large": 8}

    def test_more_are_asked_when_the_first_refuse(self) -> None:
        story = Story()
        for name in "ab":
            story.come(name)
        [(first, request)] = asked(story.submit(1)).items()
        effects = story.answer(first, request, yes=False, reason="it has no room now")
        [second] = asked(effects)
        assert {first, second} == {"a", "b"}

    def test_who_refused_is_asked_again_after_a_while(self) -> None:
        story = Story()
        story.come("a")
        [request] = asked(story.submit(1)).values()
        assert not asked(story.answer("a", request, yes=False))
        story.now = 0.4
        assert not asked(story.tell(Tick()))
        story.now = 0.6
        assert list(asked(story.tell(Tick()))) == ["a"]

    def test_or_when_it_said_that_there_may_be_room(self) -> None:
        story = Story()
        story.come("a")
        [request] = asked(story.submit(1)).values()
        story.answer("a", request, yes=False, eta_seconds=2.0)
        story.now = 1.9
        assert not asked(story.tell(Tick()))
        story.now = 2.1
        assert list(asked(story.tell(Tick()))) == ["a"]

    def test_or_at_once_when_it_has_more_room(self) -> None:
        story = Story()
        story.come("a")
        free = total_of(SMALL)
        story.tell(Received(PeerId("a"), Load(Free(), 2), 0.0))
        [request] = asked(story.submit(1)).values()
        story.answer("a", request, yes=False, eta_seconds=3.0)
        assert list(asked(story.tell(Received(PeerId("a"), Load(free, 0), 0.0)))) == ["a"]

    def test_a_known_worker_is_dialled_and_asked_when_it_comes(self) -> None:
        story = Story()
        story.see(["a", "b", "c"])
        dials = [effect for effect in story.submit(1) if isinstance(effect, Dial)]
        assert len(dials) == 1
        called = dials[0].peer
        assert list(asked(story.come(called))) == [called]


class TestOffers:
    def test_an_offer_above_max_cost_is_declined(self) -> None:
        story = Story()
        story.come("a")
        [request] = asked(story.submit(1, max_cost=1.0)).values()
        effects = story.grant("a", request, cost=1.5)
        assert [one.lease for one in released(effects)] == [LeaseId(1)]
        assert not asked(effects)

    def test_one_that_starts_after_the_deadline_too(self) -> None:
        story = Story()
        story.come("a")
        [request] = asked(story.submit(1, deadline_at=60.0)).values()
        assert released(story.grant("a", request, eta_seconds=61.0))

    def test_one_in_time_is_taken(self) -> None:
        story = Story()
        story.come("a")
        [request] = asked(story.submit(1, deadline_at=60.0, max_cost=1.0)).values()
        assert not released(story.grant("a", request, eta_seconds=59.0, cost=1.0))

    def test_a_worker_that_asks_too_much_is_not_asked(self) -> None:
        story = Story()
        story.come("a", msgspec.structs.replace(SMALL, price=Tariff(2.0)))
        assert not asked(story.submit(1, max_cost=1.0))
        assert story.reason() == "no_match"
        [row] = story.explain().obstacles
        assert row.reason == "may cost 1, it asks 2"


class TestWhy:
    def test_many_workers_that_lack_the_same_are_one_line(self) -> None:
        story = Story()
        story.see([f"w{number:02}" for number in range(41)])
        story.come("big", msgspec.structs.replace(SMALL, memory=32 * GB, cpu_cores=0.5))
        story.submit(min_memory=16 * GB)
        found = story.explain()
        assert found.reason == "no_match"
        assert (found.workers_known, found.workers_fitting) == (42, 0)
        rows = {row.reason: row for row in found.obstacles}
        many = rows["needs 16 GB of memory, the largest has 8 GB"]
        assert many.count == 41
        assert len(many.workers) == 5
        assert not many.temporary
        assert rows["needs 1 cores, it has 0.5"].workers == ["big"]

    def test_a_few_are_told_everything_that_they_lack(self) -> None:
        story = Story()
        story.come("a")
        story.submit(min_memory=16 * GB, cpu_cores=4.0)
        [row] = story.explain().obstacles
        assert row.reason == "needs 16 GB of memory, it has 8 GB; needs 4 cores, it has 2"

    def test_a_worker_without_room_says_so(self) -> None:
        story = Story()
        story.come("a")
        story.tell(Received(PeerId("a"), Load(Free(), 2), 0.0))
        [request] = asked(story.submit(1)).values()
        story.answer("a", request, yes=False)
        assert story.reason() == "capacity"
        found = story.explain()
        [row] = found.obstacles
        assert (row.reason, row.temporary) == ("it fits, and has no room now", True)
        assert found.summary.startswith("workers that can run it are busy")

    def test_an_offer_that_is_too_dear_is_told(self) -> None:
        story = Story()
        story.come("a")
        [request] = asked(story.submit(1, max_cost=1.0)).values()
        story.grant("a", request, cost=3.0)
        found = story.explain()
        assert found.summary.startswith("workers that can run it have not taken it")
        [row] = found.obstacles
        assert row.reason == (
            "it fits, and will be asked again: it asks 3 for a task that may cost 1"
        )

    def test_a_no_is_told_only_until_the_worker_may_be_asked_again(self) -> None:
        story = Story()
        story.come("a")
        [request] = asked(story.submit(1)).values()
        story.answer("a", request, yes=False, reason="it has no room now")
        [row] = story.explain().obstacles
        assert row.reason == "it fits, and will be asked again: it has no room now"
        story.now = 0.6
        story.tell(Tick())
        [row] = story.explain().obstacles
        assert row.reason == "it fits, and is being asked"
        assert not story.machine.state.workers[PeerId("a")].refused, "nothing is kept of it"

    def test_the_position_is_arithmetic_over_the_block(self) -> None:
        story = Story()
        story.come("a")
        [request] = asked(story.submit(9_000)).values()
        story.grant("a", request)
        found = story.explain(8_999)
        assert found.position == 8_997, "two are out"
        assert "8997 of its kind are ahead of it" in found.summary
        assert found.estimated_start_seconds is None, "nobody knows how long they take"

    def test_a_far_worker_is_named_as_such(self) -> None:
        story = Story(max_network_latency_seconds=0.05)
        story.come("near")
        story.come("far")
        story.tell(RoundTrip(PeerId("far"), 0.2))
        assert list(asked(story.submit(4))) == ["near"]
        reasons = {row.workers[0]: row.reason for row in story.explain().obstacles}
        assert reasons["far"].startswith("it is farther than max_network_latency")

    def test_without_workers(self) -> None:
        story = Story()
        story.submit()
        assert story.explain().summary == "no worker has joined yet"


def sent(effects: list[Effect]) -> list[int]:
    """The attempts that were assigned."""
    return [
        bundle.first + place
        for effect in effects
        if isinstance(effect, (Send, SendAhead)) and isinstance(effect.message, Assign)
        for bundle in effect.message.bundles
        for place in range(len(bundle.indices))
    ]


def test_the_start_is_estimated_by_what_is_ahead_and_how_long_such_tasks_take() -> None:
    story = Story()
    story.come("a")
    [attempt, *_] = sent(story.grant("a", asked(story.submit(count=9))["a"]))
    assert story.explain(8).estimated_start_seconds is None, "none of them has ended yet"
    story.now = 10.0
    outcome = Outcome(
        AttemptId(attempt), JobNumber(1), 0, "succeeded", started_at=1.0, ended_at=9.0
    )
    story.tell(Received(PeerId("a"), Results(10.0, [outcome], []), story.now))
    explanation = story.explain(8)
    assert explanation.position == 5
    # Two run and five are ahead of it, on two slots: three rounds of eight seconds.
    assert explanation.estimated_start_seconds == 24.0
    assert "5 of its kind are ahead of it; it may start in about 24 s" in explanation.summary


def test_every_lease_that_is_idle_and_wanted_is_given_back() -> None:
    story = Story()
    story.come("a")
    for number in (1, 2):
        request = asked(story.submit(job=JobId(str(number) * 26), min_memory=number))["a"]
        [(peer, assign)] = assigned(story.grant("a", request))
        [bundle] = assign.bundles
        done = Outcome(bundle.first, bundle.job, 0, "succeeded")
        story.tell(Received(peer, Results(0.0, [done], []), story.now))
    wanted = Wanted(LeaseId(1), 2, 0, ours=False, others=(LeaseId(2), LeaseId(3)))
    assert [one.lease for one in released(story.tell(Received(peer, wanted, story.now)))] == [1, 2]


class TestManyShapesAndAFullWorker:
    """Each question in vain costs the worker two answers; who sends too many is cut off."""

    @pytest.fixture
    def story(self) -> Story:
        story = Story()
        story.come("a")
        for number in range(100):
            self.refuse(story, story.submit(job=JobId(f"{number:026}"), min_memory=number + 1))
        return story

    def refuse(self, story: Story, effects: list[Effect]) -> int:
        requests = requested(effects)
        for request in requests:
            story.answer("a", request, yes=False, reason="it has no room now")
        return len(requests)

    def test_it_is_asked_a_bounded_number_of_times(self, story: Story) -> None:
        asked_in_vain = 0
        while story.now < 20.0:
            due = story.machine.wake_at
            assert due is not None
            story.now = max(due, story.now)
            asked_in_vain += self.refuse(story, story.tell(Tick()))
        assert 100 <= asked_in_vain <= 21 * ASKED_IN_VAIN_PER_SECOND

    def test_when_it_has_room_as_many_ask_as_it_has_room_for(self, story: Story) -> None:
        full = Free(cpu_millis=0, memory=8 * GB, disk=0, gpu_millis=())
        free = Free(cpu_millis=2000, memory=8 * GB, disk=0, gpu_millis=())
        assert not requested(story.tell(Received(PeerId("a"), Load(full, 2), story.now)))
        asking = requested(story.tell(Received(PeerId("a"), Load(free, 0), story.now)))
        memory = [request.shape.requirements.min_memory for request in asking]
        assert memory == [1, 2], "the longest refused"


def test_a_retry_that_could_cost_too_much_in_all_is_not_made() -> None:
    story = Story()
    story.come("a", msgspec.structs.replace(SMALL, price=Tariff(0.4)))
    effects = story.grant("a", asked(story.submit(max_cost=0.7))["a"], cost=0.4)
    outcome = Outcome(
        AttemptId(sent(effects)[0]), JobNumber(1), 0, "failed", error="disk", driver_fault=True
    )
    effects = story.tell(Received(PeerId("a"), Results(0.0, [outcome], []), story.now))
    [ended] = [
        entry
        for effect in effects
        if isinstance(effect, Record)
        for entry in effect.entries
        if isinstance(entry, TaskEnded)
    ]
    assert (ended.state, ended.reason) == ("failed", "max_cost")
    assert ended.error == "disk; another try could cost more than 0.7 in all"


class TestShapesComeAndGo:
    def test_nothing_is_left_of_one_whose_last_task_was_cancelled(self) -> None:
        story = Story()
        story.come("a")
        story.submit(1, min_memory=16 * GB)
        assert len(story.machine.state.queues) == 1
        story.tell(CancelTask(RequestId(4), JOB, 0))
        assert not story.machine.state.queues

    def test_nothing_is_left_of_one_whose_last_task_was_too_late(self) -> None:
        story = Story()
        story.come("a")
        story.submit(1, min_memory=16 * GB, deadline_at=1.0)
        story.now = 2.0
        story.tell(Tick())
        assert not story.machine.state.queues

    def test_one_goes_while_a_task_of_another_backs_off(self) -> None:
        story = Story()
        story.come("a")
        [request] = asked(story.submit(1)).values()
        [(peer, assign)] = assigned(story.grant("a", request))
        [bundle] = assign.bundles
        slow = Outcome(bundle.first, JobNumber(1), bundle.indices[0], "timed_out")
        story.tell(Received(peer, Results(0.0, [slow], []), story.now))
        assert len(story.machine.state.backoff) == 1
        other = JobId("1" * 26)
        story.submit(1, job=other, min_memory=16 * GB)
        story.tell(CancelTask(RequestId(4), other, 0))
        assert [one.requirements.min_memory for one in story.machine.state.queues] == [0]


class TestWhatFitsIntoAMessage:
    def submit(self, story: Story, size: int, job: JobId) -> list[Effect]:
        work = Work("process", command=("true", "x" * size))
        specification = Specification(work, Requirements(cpu_cores=1.0))
        return story.tell(Submit(RequestId(1), job, "", "owner", specification, 1, b"", True))

    def test_long_commands_go_one_by_one(self) -> None:
        story = Story()
        jobs = [JobId(f"{n:026}") for n in range(2)]
        for job in jobs:
            self.submit(story, 9_000_000, job)
        [request] = asked(story.come("a")).values()
        sent = assigned(story.grant("a", request))
        assert [len(assign.bundles) for _, assign in sent] == [1, 1]

    def test_one_that_fits_none_fails_and_stops_nobody(self) -> None:
        story = Story()
        story.come("a")
        [request] = asked(self.submit(story, 20_000_000, JOB)).values()
        effects = story.grant("a", request)
        assert not assigned(effects)
        [ended] = [
            entry
            for effect in effects
            if isinstance(effect, Record)
            for entry in effect.entries
            if isinstance(entry, TaskEnded)
        ]
        assert (ended.state, "can be sent" in ended.error) == ("failed", True)
        story.submit(1, job=JobId("1" * 26))
