"""Messages stay within what a frame may be, however large arguments and results are."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from mycel.core import events, messages
from mycel.core.effects import Effect, Record, Send, SendAhead
from mycel.core.identifiers import AttemptId, JobNumber, PeerId, RequestId, fenced, ulid
from mycel.core.journal import BlockAppended, Restored
from mycel.core.machine_settings import SchedulerSettings, WorkerSettings
from mycel.core.messages import (
    MESSAGE_BYTES,
    WIRE_VERSION,
    Assign,
    Fetch,
    Outcome,
    Register,
    ResultPart,
    Results,
    in_parts,
)
from mycel.core.model.jobs import Specification
from mycel.core.model.resources import Capabilities, Ledger, Requirements
from mycel.core.model.work import Work
from mycel.core.scheduler import Scheduler
from mycel.core.worker import WorkerMachine

from .keys import SECRET, keyed

MEGABYTE = 1 << 20
SCHEDULER = PeerId("scheduler")
WORKER = PeerId("worker")
MACHINE = Capabilities(cpu_cores=1.0, memory=1 << 30, drivers=("process",))


def outcome(number: int, size: int) -> Outcome:
    return Outcome(AttemptId(number), JobNumber(1), number, "succeeded", value=b"x" * size)


@given(st.lists(st.integers(0, 12), max_size=12))
def test_parts_are_whole_and_in_order(megabytes: list[int]) -> None:
    outcomes = [outcome(number, size * MEGABYTE) for number, size in enumerate(megabytes, 1)]
    parts = list(in_parts(outcomes))
    assert [one for part in parts for one in part] == outcomes
    for part in parts:
        assert len(part) == 1 or sum(one.size for one in part) <= MESSAGE_BYTES


def sent(effects: list[Effect]) -> list[object]:
    return [effect.message for effect in effects if isinstance(effect, (Send, SendAhead))]


def scheduler_with_worker() -> Scheduler:
    scheduler = Scheduler(
        SchedulerSettings(), digest=lambda value: b"", keyed=keyed, random=lambda: 0.5
    )
    empty = Restored([], [], [], [], [], 0, 0, 0, 0)
    scheduler.handle(events.Restart(1, empty, SECRET), 0.0)
    free = Ledger(MACHINE).free
    register = Register(WIRE_VERSION, 1, 0.0, "worker", MACHINE, free, (), [], [], [])
    scheduler.handle(events.Received(WORKER, register, 0.0), 0.0)
    return scheduler


def test_tasks_that_come_in_one_turn_go_out_in_one_message() -> None:
    scheduler = scheduler_with_worker()
    specification = Specification(Work("process"), Requirements(cpu_cores=1.0))

    def submit(number: int) -> events.Submit:
        job = ulid(number, bytes(10))
        return events.Submit(RequestId(number), job, "", "owner", specification, 1, b"", close=True)

    [_, first] = sent(scheduler.handle(submit(1), 0.1))
    assert isinstance(first, Assign)
    window = messages.Window(first.shape, 5)
    scheduler.handle(events.Received(WORKER, Results(0.2, [], [window]), 0.2), 0.2)
    assert scheduler.handle(submit(2), 0.3, more=True) == []
    effects = scheduler.handle(submit(3), 0.3)
    jobs = {fenced(1, 2), fenced(1, 3)}
    [record] = [effect for effect in effects if isinstance(effect, Record)]
    assert {entry.job for entry in record.entries if isinstance(entry, BlockAppended)} == jobs
    [assign] = sent(effects)
    assert isinstance(assign, Assign)
    assert {bundle.job for bundle in assign.bundles} == jobs


def test_large_arguments_go_in_several_messages() -> None:
    scheduler = scheduler_with_worker()
    arguments = msgspec.json.encode([["x" * (3 * MEGABYTE)] for _ in range(5)])
    specification = Specification(Work("process"), Requirements(cpu_cores=1.0))
    submit = events.Submit(
        RequestId(1), ulid(1, bytes(10)), "", "owner", specification, 5, arguments, True
    )
    found = sent(scheduler.handle(submit, 0.1))
    [first, *_] = [message for message in found if isinstance(message, Assign)]
    window = messages.Window(first.shape, 5)
    found += sent(scheduler.handle(events.Received(WORKER, Results(0.2, [], [window]), 0.2), 0.2))
    assigned = [message for message in found if isinstance(message, Assign)]
    assert sum(len(one.bundles[0].indices) for one in assigned) == 5
    for one in assigned:
        assert sum(map(len, one.bundles[0].arguments)) <= MESSAGE_BYTES


def test_a_worker_with_many_large_results_registers_in_parts() -> None:
    settings = WorkerSettings(inline_bytes_max=4 * MEGABYTE)
    worker = WorkerMachine(settings, MACHINE, name="worker", digest=lambda value: b"")
    kept = [outcome(number, 3 * MEGABYTE) for number in range(1, 6)]
    worker.handle(events.SpoolLoaded(1, {SCHEDULER: kept}), 0.0)
    register, *later = sent(worker.handle(events.LinkUp(SCHEDULER), 1.0))
    assert isinstance(register, Register)
    follow = [one for message in later if isinstance(message, Results) for one in message.outcomes]
    assert [*register.outcomes, *follow] == kept
    assert {held.attempt for held in register.attempts} == {one.attempt for one in follow}


def test_a_long_result_is_announced_and_fetched_piece_by_piece() -> None:
    worker = WorkerMachine(WorkerSettings(), MACHINE, name="worker", digest=lambda value: b"")
    worker.handle(events.SpoolLoaded(1, {SCHEDULER: [outcome(7, 3 * MEGABYTE)]}), 0.0)
    [register] = sent(worker.handle(events.LinkUp(SCHEDULER), 1.0))
    assert isinstance(register, Register)
    [announced] = register.outcomes
    assert (announced.value, announced.value_size) == (b"", 3 * MEGABYTE)

    def ask(attempt: int, offset: int) -> ResultPart:
        fetch = Fetch(AttemptId(attempt), offset, 2 * MEGABYTE)
        [part] = sent(worker.handle(events.Received(SCHEDULER, fetch, 2.0), 2.0))
        assert isinstance(part, ResultPart)
        return part

    assert len(ask(7, 0).data) == 2 * MEGABYTE
    assert len(ask(7, 2 * MEGABYTE).data) == MEGABYTE
    assert ask(8, 0).data == b""
