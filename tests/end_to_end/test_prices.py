"""What tasks cost, what is too dear, and when a worker takes work at all."""

from __future__ import annotations

import time

import pytest

from .conftest import QUICK, SwarmMaker
from .swarm import eventually

PRICES = (
    QUICK
    + """
[worker.price]
floor = 0.5
cpu_core_hour = 36000.0
"""
)
"""Ten for a second of a core."""


def test_tasks_say_what_they_have_cost(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm(PRICES)
    swarm.up(workers=1)
    announced = swarm.worker("worker-1").capabilities["price"]
    assert (announced["floor"], announced["cpu_core_hour"]) == (0.5, 36000.0)
    quick = swarm.client.submit_task(wait=30, command=["true"])
    slow = swarm.client.submit_task(wait=30, command=["sleep", "0.5"])
    costs = [swarm.client.get(f"/api/v1/tasks/{one.id}")["cost"] for one in (quick, slow)]
    assert 0.5 <= costs[0] < costs[1]
    assert 4.0 <= costs[1] < 500.0
    # Free of charge for who is not to pay: it waits, and says why.
    dear = swarm.client.submit_task(command=["true"], max_cost=0.1)
    reasons = [row.reason for row in swarm.client.explain(dear.id).obstacles]
    assert reasons == ["may cost 0.1, it asks 0.5"]


def test_an_attempt_ends_before_it_costs_too_much(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm(PRICES.replace("floor = 0.5", "floor = 0.0"))
    swarm.up(workers=1)
    retry = {"on_error": True, "max_attempts": 3}
    process = swarm.client.submit_task(
        wait=30, command=["sleep", "30"], max_cost=0.1, timeout=20, retry=retry
    )
    function = swarm.client.submit_task(
        wait=30, python="time:sleep", arguments=[30], max_cost=0.1, retry=retry
    )
    for task in (process, function):
        assert (task.state, task.reason, task.code) == ("failed", "max_cost", "max_cost"), task
        assert "stopped before it cost more than 0.1" in (task.error or "")
        assert 0.0 < swarm.client.get(f"/api/v1/tasks/{task.id}")["cost"] <= 0.1
        assert len(task.attempts) == 1
    affordable = swarm.client.submit_task(wait=30, command=["sleep", "0.2"], max_cost=100.0)
    assert affordable.state == "succeeded"


def test_retries_end_where_the_next_one_would_be_too_dear(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm(PRICES)
    swarm.up(workers=1)
    retry = {"on_error": True, "max_attempts": 3}
    task = swarm.client.submit_task(
        wait=30, command=["sh", "-c", "sleep 0.3; exit 3"], max_cost=5.0, retry=retry
    )
    assert (task.state, task.reason) == ("failed", "max_cost")
    assert len(task.attempts) == 1
    assert "could cost more than 5 in all" in (task.error or "")


@pytest.mark.parametrize("is_open", [True, False])
def test_a_worker_takes_work_in_its_hours_only(make_swarm: SwarmMaker, is_open: bool) -> None:
    now = time.localtime()
    hour = now.tm_hour if is_open else (now.tm_hour + 12) % 24
    hours = f"{(hour - 1) % 24:02}:00-{(hour + 2) % 24:02}:00"
    swarm = make_swarm(QUICK + f'[worker.accept]\nhours = ["{hours}"]\n')
    swarm.up(workers=1)
    task = swarm.client.submit_task(wait=30 if is_open else 0.1, command=["true"])
    if is_open:
        assert task.state == "succeeded"
        return
    closed_for = f"it takes work at {hours} only"
    eventually(lambda: swarm.worker("worker-1").closed_for == closed_for, "it says its hours")
    assert closed_for in swarm.mycel("explain", task.id).out
