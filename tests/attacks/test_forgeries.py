"""A member with a worker's invite claims attempts that it was never given: none is taken for one,
and what the workers have really been given is.

The forgers know everything but the secret: all numbers, and all genuine authenticators.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from mycel.core.effects import (
    Effect,
    Hangup,
    KeepCheckpoint,
    Note,
    ReadCheckpoint,
    Send,
    TaskStreamed,
    TaskWrote,
)
from mycel.core.identifiers import AttemptId, LeaseId, PeerId, fenced
from mycel.core.journal import PartKept, TaskEnded
from mycel.core.messages import (
    Accepted,
    CheckpointPart,
    CheckpointWanted,
    Kill,
    Outcome,
    Progressed,
    Refused,
    ResultPart,
    Results,
    Returned,
    Started,
    Streamed,
    Text,
    Welcome,
    WorkMessage,
    Written,
)
from mycel.core.model.resources import GpuRequirement, Requirements
from mycel.core.scheduler.tasks.attempt_proofs import ACCOUNT_SECONDS, FORGERIES_MAX
from tests.adapters.store_harness import Harness, MemoryHarness, SqliteHarness

from .forging import (
    FORGED,
    GENUINE,
    JOBS,
    MALLORY,
    TASKS,
    WORKERS,
    Court,
    Given,
    changed,
    first_boot,
    forgeries,
)

OUTCOMES_AND_SUCH = 10_000
AT_ONCE = 300
"""Fewer than shut a worker out: each of them is looked at."""


@pytest.fixture(params=["sqlite", "memory"])
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harness]:
    made = SqliteHarness(tmp_path / "journal.db") if request.param == "sqlite" else MemoryHarness()
    yield made
    made.close()


def sent(effects: list[Effect]) -> list[object]:
    return [one.message for one in effects if isinstance(one, Send)]


def touched(effects: list[Effect]) -> list[Effect]:
    """What a task, or what is kept of it, has to do with."""
    kinds = (KeepCheckpoint, ReadCheckpoint, TaskStreamed, TaskWrote)
    return [one for one in effects if isinstance(one, kinds)]


def authenticators_of_another_scheduler() -> dict[tuple[int, int], bytes]:
    other = Court(MemoryHarness())
    first_boot(other)
    return {(one.job, one.index): one.authenticator for one in other.given}


def test_ten_thousand_forgeries_are_refused_and_the_genuine_taken(harness: Harness) -> None:
    court = Court(harness)
    past = first_boot(court)
    court.boot()
    before = len(court.ends())
    assert len(past.out) > 100
    foreign = authenticators_of_another_scheduler()
    made: dict[PeerId, list[Given]] = {peer: [] for peer in (*WORKERS, MALLORY)}
    kinds: Counter[str] = Counter()
    for place, one in enumerate(past.out):
        others = [past.out[(place + step) % len(past.out)] for step in (1, 7, 50, 101)]
        for kind, forged in forgeries(one, others, foreign, boot=2):
            kinds[kind] += 1
            made[forged.worker].append(forged)
    for one in past.ended:
        kinds["after its end"] += 1
        made[one.worker].append(one)
    tried: Counter[str] = Counter()
    for peer, all_of_it in made.items():
        for first in range(0, len(all_of_it), AT_ONCE):
            batch = all_of_it[first : first + AT_ONCE]
            court.now += ACCOUNT_SECONDS
            assert accepted(court, peer, batch, tried) == []
    print(dict(tried), dict(kinds))
    assert min(tried.values()) >= 3000
    assert sum(tried.values()) >= OUTCOMES_AND_SUCH
    assert court.machine.state.forgeries_refused >= OUTCOMES_AND_SUCH // 3 * 2
    assert len(court.ends()) == before, "nothing has ended by them"
    assert not court.machine.state.attempts, "and nothing is taken for being out"
    assert controls(court, past.out) == len(past.out)


def accepted(court: Court, peer: PeerId, batch: list[Given], tried: Counter[str]) -> list[Given]:
    """Which of them were believed: as held attempts, as outcomes, or for their checkpoints."""
    believed: list[Given] = []
    attempts = {one.attempt for one in batch}
    effects = court.come(peer, [one.held() for one in batch])
    [welcome] = [one for one in sent(effects) if isinstance(one, Welcome)]
    tried["held attempts"] += len(batch)
    believed += [one for one in batch if one.attempt in court.machine.state.attempts]
    assert set(welcome.kill) == attempts, "the worker is told to drop them"
    for one in batch:
        part = CheckpointPart(one.attempt, 1, 0, 6, b"", b"forged")
        took = court.hear(peer, part) + court.hear(peer, CheckpointWanted(one.attempt, 0))
        tried["checkpoints"] += 1
        if touched(took) or court.machine.task_of(peer, one.attempt) is not None:
            believed.append(one)
    court.now += ACCOUNT_SECONDS
    court.come(peer, [], [one.outcome(FORGED) for one in batch])
    court.hear(peer, Results(0.0, [one.outcome(FORGED) for one in batch], []))
    tried["outcomes"] += 2 * len(batch)
    believed += [one for one in batch if one.attempt in court.machine.state.attempts]
    court.leave(peer)
    return believed


def controls(court: Court, genuine: list[Given]) -> int:
    """How many of the genuine ones are taken: half as outcomes, half as running, which end."""
    for peer in WORKERS:
        mine = [one for one in genuine if one.worker == peer]
        held, ended = mine[::2], mine[1::2]
        effects = court.come(peer, [one.held() for one in held], [one.outcome() for one in ended])
        [welcome] = [one for one in sent(effects) if isinstance(one, Welcome)]
        assert welcome.kill == []
        for one in held:
            took = court.hear(peer, CheckpointWanted(one.attempt, 0))
            assert [type(effect) for effect in touched(took)] == [ReadCheckpoint]
        court.hear(peer, Results(0.0, [one.outcome() for one in held], []))
    ended_by = {
        (one.job, one.index): (one.worker, one.attempt)
        for one in court.entries
        if isinstance(one, TaskEnded) and one.state == "succeeded" and one.value == GENUINE
    }
    return sum(ended_by.get((one.job, one.index)) == (one.worker, one.attempt) for one in genuine)


def everything_said_of(one: Given) -> list[WorkMessage]:
    attempt = one.attempt
    return [
        Started(0.0, [(attempt, 0.0)]),
        Progressed([(attempt, b'{"progress":0.9}')]),
        Streamed([(attempt, FORGED)]),
        Written([Text(attempt, 1, 0, FORGED)]),
        CheckpointPart(attempt, 1, 0, 6, b"", b"forged"),
        CheckpointWanted(attempt, 0),
        ResultPart(attempt, 0, FORGED),
        Accepted(attempt, 1),
        Refused([attempt], "no_room", "no"),
        Returned([attempt], [], "no"),
        Results(0.0, [one.outcome(FORGED)], []),
    ]


def test_within_a_boot_only_the_worker_that_was_given_an_attempt_is_heard_of_it(
    harness: Harness,
) -> None:
    """Whatever another one shows: here it is all genuine."""
    court = Court(harness)
    for worker in WORKERS:
        court.come(worker)
    court.submit(TASKS)
    out = court.out()
    assert len(out) > TASKS // 2
    court.come(MALLORY)
    for one in out:
        known = court.machine.state.attempts[one.attempt]
        slots = known.slots
        for thief in (MALLORY, *WORKERS):
            if thief == one.worker:
                continue
            for message in everything_said_of(one):
                effects = court.hear(thief, message)
                assert not touched(effects), message
            assert court.machine.task_of(thief, one.attempt) is None
        assert court.machine.state.attempts[one.attempt] is known
        assert (known.started_at, known.progress, known.slots) == (None, b"", slots)
    court.come(MALLORY, [one.held() for one in out], [one.outcome(FORGED) for one in out])
    assert court.out()[: len(out)] == out
    assert court.ends() == []
    assert not [one for one in court.entries if isinstance(one, PartKept)]
    for one in out:
        court.hear(one.worker, Results(0.0, [one.outcome()], []))
    ends = [one for one in court.ends() if isinstance(one, TaskEnded)]
    assert {end.value for end in ends} == {GENUINE}
    assert len(ends) == len(out)


def made_up(court: Court, count: int) -> list[Given]:
    """For all tasks there are, with numbers of all boots there may have been."""
    jobs = list(court.machine.state.jobs)
    return [
        Given(
            MALLORY,
            AttemptId(fenced(1 + number % 3, 1_000_000 + number)),
            jobs[number % len(jobs)],
            number // len(jobs) % TASKS,
            LeaseId(1),
            b"0123456789abcdef",
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("same", [False, True], ids=["many numbers", "one number"])
@pytest.mark.parametrize("way", ["held", "outcomes", "results"])
def test_sixty_thousand_at_once_are_cheap_to_refuse_and_shut_their_worker_out(
    way: str, same: bool
) -> None:
    court = Court(MemoryHarness())
    for _ in range(JOBS):
        court.submit(TASKS, Requirements(cpu_cores=1.0, gpus=GpuRequirement(1.0)))
    forged = made_up(court, 60_000)
    if same:
        forged = [changed(one, attempt=forged[0].attempt) for one in forged]
    held = [one.held() for one in forged] if way == "held" else []
    outcomes = [one.outcome(FORGED) for one in forged] if way != "held" else []
    if way == "results":
        court.come(MALLORY)
    hashed = court.hashed
    if way == "results":
        effects = court.hear(MALLORY, Results(0.0, outcomes, []))
    else:
        effects = court.come(MALLORY, held, outcomes)
    assert [one.peer for one in effects if isinstance(one, Hangup)] == [MALLORY]
    notes = [one for one in effects if isinstance(one, Note) and one.event == "forgeries_refused"]
    assert len(notes) == 1, "one line, however many they are"
    assert court.machine.state.forgeries_refused == FORGERIES_MAX
    assert court.ends() == []
    assert court.hashed - hashed <= FORGERIES_MAX, "the rest is not looked at"
    court.leave(MALLORY)
    again = court.come(MALLORY, held, outcomes)
    assert [type(one) for one in again] == [Hangup], "it is not even looked at"
    court.now += ACCOUNT_SECONDS
    assert [one for one in sent(court.come(MALLORY)) if isinstance(one, Welcome)]


def test_a_worker_with_much_for_a_journal_that_is_lost_gets_rid_of_it_by_and_by() -> None:
    """Its numbers may be those of other tasks by now. It is honest, and must come in at last."""
    lost, court = Court(MemoryHarness()), Court(MemoryHarness())
    for one in (lost, court):
        first_boot(one)
        one.boot()
    kept = {given.attempt: given.outcome() for given in lost.given}
    count = len(kept)
    for number in range(count, 2 * FORGERIES_MAX + 10):
        attempt = AttemptId(fenced(1, 1_000_000 + number))
        kept[attempt] = Outcome(attempt, lost.given[0].job, number % TASKS, "failed")
    for _ in range(4):
        effects = court.come(WORKERS[0], [], list(kept.values()))
        for message in sent(effects):
            dropped = message.kill if isinstance(message, Welcome) else []
            dropped = message.attempts if isinstance(message, Kill) else dropped
            for attempt in dropped:
                kept.pop(attempt, None)
        court.now += ACCOUNT_SECONDS
    assert not kept
    assert court.machine.state.workers[WORKERS[0]].is_healthy


def test_an_attempt_from_before_authenticators_runs_again_and_counts_for_nothing() -> None:
    court = Court(MemoryHarness())
    past = first_boot(court)
    court.boot()
    mine = [one for one in past.out if one.worker == WORKERS[0]]
    before = len(court.ends())
    bare = [changed(one, authenticator=b"").outcome() for one in mine]
    waiting = court.machine.state.queued
    court.come(WORKERS[0], [], bare)
    assert court.machine.state.queued == waiting, "they are to be sent again"
    assert len(court.ends()) == before, "and their number of tries is what it was"
