"""How many workers the queue deserves, and which of them go."""

from __future__ import annotations

import itertools
from typing import Any

from mycel.core.agent.pilot_plan import Demand, PilotPlan, PilotSettings, PilotWorker, Turn

NOTHING = Demand(0, 0)


def plan(**settings: Any) -> PilotPlan:
    chosen = {"most": 4, "tasks_per_worker": 2, "idle_seconds": 60.0, **settings}
    return PilotPlan(PilotSettings(**chosen))


def worker(name: str = "a", tasks: int = 0, **more: Any) -> PilotWorker:
    return PilotWorker(name, **{"pending": False, "joined": True, "tasks": tasks, **more})


def pending(name: str) -> PilotWorker:
    return PilotWorker(name, pending=True)


def test_the_queue_deserves_a_worker_for_so_many_tasks() -> None:
    assert plan().turn(Demand(5, 0), [], 0.0) == Turn(start=3)
    assert plan().turn(Demand(100, 0), [], 0.0) == Turn(start=4)
    assert plan().turn(NOTHING, [], 0.0) == Turn()
    assert plan(least=1).turn(NOTHING, [], 0.0) == Turn(start=1)


def test_what_waits_for_its_allocation_counts() -> None:
    assert plan().turn(Demand(5, 0), [pending("a"), pending("b")], 0.0) == Turn(start=1)


def test_allocations_that_are_not_needed_any_more_are_cancelled_the_newest_first() -> None:
    turn = plan().turn(Demand(1, 0), [pending("a"), pending("b"), pending("c")], 0.0)
    assert turn == Turn(cancel=("c", "b"))


def test_only_what_has_been_idle_for_a_while_is_drained() -> None:
    made = plan()
    busy, idle = worker("a", tasks=1), worker("b")
    assert made.turn(Demand(0, 1), [busy, idle], 0.0) == Turn()
    assert made.turn(Demand(0, 1), [busy, idle], 59.0) == Turn()
    assert made.turn(Demand(0, 1), [busy, idle], 60.0) == Turn(drain=("b",))


def test_a_task_in_between_makes_it_wait_anew() -> None:
    made = plan()
    made.turn(NOTHING, [worker()], 0.0)
    made.turn(Demand(0, 1), [worker(tasks=1)], 30.0)
    assert made.turn(NOTHING, [worker()], 60.0) == Turn()
    assert made.turn(NOTHING, [worker()], 120.0) == Turn(drain=("a",))


def test_an_allocation_ends_when_its_worker_is_drained_and_runs_nothing() -> None:
    made = plan()
    assert made.turn(NOTHING, [worker(drained=True, tasks=1)], 0.0) == Turn()
    assert made.turn(NOTHING, [worker(drained=True)], 1.0) == Turn(cancel=("a",))


def test_work_that_comes_while_one_is_drained_gets_another() -> None:
    turn = plan().turn(Demand(2, 0), [worker(drained=True)], 0.0)
    assert turn == Turn(start=1, cancel=("a",))


def test_workers_that_never_join_are_tried_ever_more_seldom() -> None:
    made, now, starts = plan(), 0.0, []
    for number in range(4):
        while not made.turn(Demand(8, 0), [], now).start:
            now += 1.0
        starts.append(now)
        made.turn(Demand(8, 0), [worker(f"w{number}", joined=False)], now)
        made.turn(Demand(8, 0), [], now)
    assert made.failures == 4
    gaps = [later - sooner for sooner, later in itertools.pairwise(starts)]
    assert gaps == [10.0, 20.0, 40.0]
    made.turn(Demand(8, 0), [worker("good")], now)
    assert made.failures == 0


def test_at_the_end_everything_goes_but_what_runs() -> None:
    made = plan(least=2)
    made.is_closing = True
    workers = [pending("a"), worker("b", tasks=1), worker("c")]
    made.turn(Demand(9, 1), workers, 0.0)
    assert made.turn(Demand(9, 1), workers, 1.0) == Turn(drain=("c",), cancel=("a",))
