"""Which worker gets which task, and why one waits: one machine, events in and effects out, no
network."""

from __future__ import annotations

from collections import Counter, deque

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
from mycel.core.identifiers import AttemptId, JobId, JobNumber, PeerId, RequestId
from mycel.core.invariants import check_scheduler
from mycel.core.journal import Restored, TaskEnded
from mycel.core.machine_settings import SchedulerSettings
from mycel.core.matching import SelectionSettings, total_of
from mycel.core.messages import (
    WIRE_VERSION,
    Assign,
    Introduce,
    Load,
    Outcome,
    Refused,
    Register,
    Results,
)
from mycel.core.messages.refusals import (
    CLOSED,
    LEASE_OVER,
    NO_RIGHT,
    NO_ROOM,
    NOT_INTRODUCED,
    RULES,
)
from mycel.core.model.jobs import Specification
from mycel.core.model.prices import Tariff
from mycel.core.model.resources import Capabilities, Free, Requirements
from mycel.core.model.task_files import Input
from mycel.core.model.work import Work
from mycel.core.scheduler import Scheduler
from mycel.core.views import Explanation, TaskView

from .keys import SECRET, keyed

GB = 10**9
JOB = JobId("0" * 26)
FILE = "blake3:" + "7" * 64
SMALL = Capabilities(cpu_cores=2.0, memory=8 * GB, drivers=("process",))


class Story:
    def __init__(self, **selection: object) -> None:
        chosen = SelectionSettings(**selection)  # type: ignore[arg-type]
        self.machine = Scheduler(
            SchedulerSettings(selection=chosen), digest=bytes, keyed=keyed, random=lambda: 0.0
        )
        self.now = 0.0
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

    def refuse(self, name: str, attempts: list[int], code: str = NO_ROOM) -> list[Effect]:
        room = Free() if code == NO_ROOM else None
        reason = "it has no room now" if code == NO_ROOM else "it says no"
        refused = Refused([AttemptId(one) for one in attempts], code, reason, room)
        return self.tell(Received(PeerId(name), refused, self.now))

    def finish(
        self, name: str, attempt: int, state: str = "succeeded", **more: object
    ) -> list[Effect]:
        out = self.machine.state.attempts[AttemptId(attempt)]
        outcome = Outcome(out.id, out.job.number, out.index, state, **more)  # type: ignore[arg-type]
        return self.tell(Received(PeerId(name), Results(self.now, [outcome], []), self.now))

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


def assigned(effects: list[Effect]) -> list[tuple[PeerId, Assign]]:
    return [
        (effect.peer, effect.message)
        for effect in effects
        if isinstance(effect, (Send, SendAhead)) and isinstance(effect.message, Assign)
    ]


def workers(effects: list[Effect]) -> list[str]:
    """Who was sent tasks, once for each."""
    return [
        peer for peer, assign in assigned(effects) for one in assign.bundles for _ in one.indices
    ]


def sent(effects: list[Effect]) -> list[int]:
    """The attempts that were assigned."""
    return [
        bundle.first + place
        for _, assign in assigned(effects)
        for bundle in assign.bundles
        for place in range(len(bundle.indices))
    ]


def room_of(story: Story, name: str) -> Free:
    return story.machine.state.workers[PeerId(name)].book.room


class TestWhoGetsIt:
    def test_a_few_tasks_are_spread(self) -> None:
        story = Story()
        for name in "abc":
            story.come(name)
        assert sorted(workers(story.submit(3))) == ["a", "b", "c"]

    def test_no_worker_is_booked_beyond_what_it_has(self) -> None:
        story = Story()
        story.come("small")
        story.come("large", msgspec.structs.replace(SMALL, cpu_cores=6.0))
        sent = Counter(workers(story.submit(100)))
        assert sent["small"] <= 2 * 2, "two run, and one waits behind each"
        books = story.machine.state.workers
        assert books[PeerId("small")].book.booked == 2
        assert books[PeerId("large")].book.booked == 6

    def test_a_slot_that_frees_is_used_at_once(self) -> None:
        story = Story()
        story.come("a", msgspec.structs.replace(SMALL, cpu_cores=1.0))
        [first, behind] = sent(story.submit(4))
        [third] = sent(story.finish("a", first))
        assert third > behind

    @pytest.mark.parametrize("holder", "abc")
    def test_a_worker_that_has_the_file_gets_the_task(self, holder: str) -> None:
        story = Story()
        for name in "abc":
            story.come(name)
        story.tell(DataHeld(PeerId(holder), FILE))
        assert workers(story.submit_with_file(FILE)) == [holder]

    @pytest.mark.parametrize("holder", "abc")
    def test_and_so_it_is_for_a_file_among_the_arguments(self, holder: str) -> None:
        story = Story()
        for name in "abc":
            story.come(name)
        story.tell(DataHeld(PeerId(holder), FILE))
        argument = msgspec.json.encode([[{"$file": FILE, "path": "data"}]])
        assert workers(story.submit_with_file("", argument)) == [holder]

    def test_round_robin_goes_round_over_equal_tasks(self) -> None:
        story = Story(algorithm="round-robin")
        for name in "abcd":
            story.come(name)
        got: Counter[str] = Counter()
        for number in range(12):
            effects = story.submit(job=JobId(f"{number:026}"))
            [name] = workers(effects)
            got[name] += 1
            story.finish(name, sent(effects)[0])
        assert got == {"a": 3, "b": 3, "c": 3, "d": 3}

    def test_performance_aware_picks_the_quickest(self) -> None:
        story = Story(algorithm="performance-aware")
        for name in "abc":
            story.come(name)
        effects = story.submit(6)
        for name, attempt in zip(workers(effects), sent(effects), strict=True):
            took = 0.1 if name == "b" else 10.0
            story.finish(name, attempt, started_at=0.0, ended_at=took)
        for number in range(1, 11):
            effects = story.submit(job=JobId(f"{number:026}"))
            assert workers(effects) == ["b"]
            story.finish("b", sent(effects)[0], started_at=0.0, ended_at=0.1)

    def test_a_known_worker_is_dialled_and_used_when_it_comes(self) -> None:
        story = Story()
        story.see(["a", "b", "c"])
        dials = [effect for effect in story.submit(1) if isinstance(effect, Dial)]
        assert len(dials) == 1
        called = dials[0].peer
        assert workers(story.come(called)) == [called]

    def test_a_worker_that_asks_too_much_gets_nothing(self) -> None:
        story = Story()
        story.come("a", msgspec.structs.replace(SMALL, price=Tariff(2.0)))
        assert not assigned(story.submit(1, max_cost=1.0))
        assert story.reason() == "no_match"
        [row] = story.explain().obstacles
        assert row.reason == "may cost 1, it asks 2"


class TestShapesThatShare:
    def test_one_quick_task_does_not_wait_behind_a_large_job(self) -> None:
        story = Story()
        story.come("a", msgspec.structs.replace(SMALL, cpu_cores=1.0))
        out = deque(sent(story.submit(1000)))
        other = JobId("1" * 26)
        story.submit(1, job=other, min_memory=1)
        ended = 0
        while not any(one.job.id == other for one in story.machine.state.attempts.values()):
            out.extend(sent(story.finish("a", out.popleft())))
            ended += 1
        assert ended <= 2, "what was sent already goes first"

    def test_the_higher_priority_goes_first(self) -> None:
        story = Story()
        for number, priority in enumerate((0, 5, 3)):
            specification = Specification(
                Work("process"), Requirements(cpu_cores=2.0), priority=priority
            )
            job = JobId(f"{number:026}")
            story.tell(Submit(RequestId(1), job, "", "owner", specification, 1, b"", True))
        order = []
        effects = story.come("a")
        while sent(effects):
            [attempt] = sent(effects)
            out = story.machine.state.attempts[AttemptId(attempt)]
            order.append(out.block.group.specification.priority)
            effects = story.finish("a", attempt)
        assert order == [5, 3, 0]

    def test_equal_shapes_share_a_worker(self) -> None:
        story = Story()
        for number in range(4):
            story.submit(10, job=JobId(f"{number:026}"), min_memory=number + 1)
        story.come("a")
        attempts = story.machine.state.attempts.values()
        assert len({one.slots.shape for one in attempts}) == 2
        seen = Counter[int]()
        for _ in range(40):
            oldest = min(story.machine.state.attempts)
            seen[story.machine.state.attempts[oldest].job.number] += 1
            story.finish("a", oldest)
            if sum(seen.values()) == 20:
                assert len(seen) == 4
                assert max(seen.values()) - min(seen.values()) <= 3
        assert not story.machine.state.queues

    def test_a_shape_that_fits_nowhere_stops_nobody(self) -> None:
        story = Story()
        for number in range(100):
            story.submit(job=JobId(f"{number:026}"), min_memory=(100 + number) * GB)
        story.submit(job=JobId("z" * 26))
        assert workers(story.come("a")) == ["a"]


class TestRefusals:
    def test_the_task_goes_to_another_at_once(self) -> None:
        story = Story()
        for name in "ab":
            story.come(name)
        effects = story.submit(1)
        [first] = workers(effects)
        [second] = workers(story.refuse(first, sent(effects)))
        assert {first, second} == {"a", "b"}

    def test_who_has_no_room_is_used_again_when_it_says_so_and_not_before(self) -> None:
        story = Story()
        story.come("a")
        assert not assigned(story.refuse("a", sent(story.submit(1))))
        story.now = 0.6
        assert not assigned(story.tell(Tick())), "the books know that it has none"
        news = Load(total_of(SMALL), 0)
        assert workers(story.tell(Received(PeerId("a"), news, story.now))) == ["a"]

    def test_who_refuses_for_another_reason_is_left_out_for_a_while(self) -> None:
        story = Story()
        story.come("a")
        assert not assigned(story.refuse("a", sent(story.submit(1)), RULES))
        [row] = story.explain().obstacles
        assert row.reason == "it fits, and is left out for a moment: it says no"
        story.now = 4.9
        assert not assigned(story.tell(Tick()))
        story.now = 5.1
        assert workers(story.tell(Tick())) == ["a"]

    def test_another_shape_may_go_there_meanwhile(self) -> None:
        story = Story()
        story.come("a")
        story.refuse("a", sent(story.submit(1)), RULES)
        assert workers(story.submit(job=JobId("1" * 26), min_memory=1)) == ["a"]

    def test_no_shape_of_the_same_user_if_the_right_is_lacking(self) -> None:
        story = Story()
        story.come("a")
        story.refuse("a", sent(story.submit(1)), NO_RIGHT)
        assert not assigned(story.submit(job=JobId("1" * 26), min_memory=1))

    def test_a_closed_worker_gets_nothing_until_it_opens(self) -> None:
        story = Story()
        story.come("a")
        story.refuse("a", sent(story.submit(1)), CLOSED)
        story.now = 10.0
        assert not assigned(story.tell(Tick()))
        news = Load(total_of(SMALL), 0)
        assert workers(story.tell(Received(PeerId("a"), news, story.now))) == ["a"]

    def test_a_registration_that_is_over_is_not_used(self) -> None:
        story = Story()
        story.come("a")
        assert not assigned(story.refuse("a", sent(story.submit(1)), LEASE_OVER))
        assert workers(story.come("a")) == ["a"], "it has registered anew"

    def test_a_shape_that_it_does_not_know_is_introduced_again(self) -> None:
        story = Story()
        story.come("a")
        effects = story.refuse("a", sent(story.submit(1)), NOT_INTRODUCED)
        messages = [effect.message for effect in effects if isinstance(effect, Send)]
        assert [type(message) for message in messages] == [Introduce, Assign]

    def test_nothing_of_a_refusal_is_kept(self) -> None:
        story = Story()
        story.come("a")
        story.refuse("a", sent(story.submit(1)), RULES)
        story.now = 6.0
        story.tell(Tick())
        assert not story.machine.state.workers[PeerId("a")].excluded


class TestRetries:
    @pytest.mark.parametrize("broken", ["a", "b", "c"])
    def test_a_retry_goes_elsewhere(self, broken: str) -> None:
        story = Story()
        for name in "abc":
            story.come(name)
        story.tell(DataHeld(PeerId(broken), FILE))  # so that it is the first choice
        effects = story.submit_with_file(FILE)
        assert workers(effects) == [broken]
        story.finish(broken, sent(effects)[0], "failed", driver_fault=True)
        story.now = 10.0
        [name] = workers(story.tell(Tick()))
        assert name != broken

    def test_but_to_the_same_if_there_is_no_other(self) -> None:
        story = Story()
        story.come("a")
        story.finish("a", sent(story.submit())[0], "failed", driver_fault=True)
        story.now = 10.0
        assert workers(story.tell(Tick())) == ["a"]


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
        story.submit(1)
        assert story.reason() == "capacity"
        found = story.explain()
        [row] = found.obstacles
        assert (row.reason, row.temporary) == ("it fits, and has no room now", True)
        assert found.summary.startswith("workers that can run it are busy")

    def test_the_position_is_arithmetic_over_the_block(self) -> None:
        story = Story()
        story.come("a")
        story.submit(9_000)
        found = story.explain(8_999)
        assert found.position == 8_995, "two run, and one waits behind each"
        assert "8995 of its kind are ahead of it" in found.summary
        assert found.estimated_start_seconds is None, "nobody knows how long they take"

    def test_a_far_worker_is_named_as_such(self) -> None:
        story = Story(max_network_latency_seconds=0.05)
        story.come("near")
        story.come("far")
        story.tell(RoundTrip(PeerId("far"), 0.2))
        assert set(workers(story.submit(9))) == {"near"}
        reasons = {row.workers[0]: row.reason for row in story.explain(8).obstacles}
        assert reasons["far"].startswith("it is farther than max_network_latency")

    def test_without_workers(self) -> None:
        story = Story()
        story.submit()
        assert story.explain().summary == "no worker has joined yet"


def test_the_start_is_estimated_by_what_is_ahead_and_how_long_such_tasks_take() -> None:
    story = Story()
    story.come("a")
    [attempt, *_] = sent(story.submit(count=9))
    assert story.explain(8).estimated_start_seconds is None, "none of them has ended yet"
    story.now = 10.0
    story.finish("a", attempt, started_at=1.0, ended_at=9.0)
    explanation = story.explain(8)
    assert explanation.position == 3
    # Two run, two wait behind them and three are ahead of it, on two slots: three rounds.
    assert explanation.estimated_start_seconds == 24.0
    assert "3 of its kind are ahead of it; it may start in about 24 s" in explanation.summary


def test_a_retry_that_could_cost_too_much_in_all_is_not_made() -> None:
    story = Story()
    story.come("a", msgspec.structs.replace(SMALL, price=Tariff(0.4)))
    [attempt] = sent(story.submit(max_cost=0.7))
    effects = story.finish("a", attempt, "failed", error="disk", driver_fault=True)
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
        [(peer, assign)] = assigned(story.submit(1))
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
        sent = assigned(story.come("a"))
        assert [len(assign.bundles) for _, assign in sent] == [1, 1]

    def test_one_that_fits_none_fails_and_stops_nobody(self) -> None:
        story = Story()
        story.come("a")
        effects = self.submit(story, 20_000_000, JOB)
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
