"""Long results, deadlines, poison, health and events, in a swarm of real processes."""

from __future__ import annotations

import itertools
from pathlib import Path

from mycel.client import Client
from mycel.client.event_stream import Event

from .conftest import SwarmMaker
from .swarm import WORKLOAD, Swarm, eventually

LONG = 20_000_000


def values(swarm: Swarm) -> list[Path]:
    return list((swarm.home / "scheduler" / "journal.db.values").glob("*/*"))


def test_a_long_result_is_kept_in_a_file_and_outlives_the_scheduler(
    make_swarm: SwarmMaker,
) -> None:
    swarm = make_swarm()
    swarm.up(workers=1)
    assert swarm.client.run(f"{WORKLOAD}:repeat", "abcde", LONG // 5) == "abcde" * (LONG // 5)
    [file] = values(swarm)
    assert file.stat().st_size == LONG + 2
    [task] = swarm.client.tasks()
    assert task.result is not None
    assert task.result.size == LONG + 2
    assert task.result.digest is not None
    [line] = swarm.client.results(task.job_id)
    assert (line.size, line.value, line.digest) == (LONG + 2, None, task.result.digest)
    swarm.kill("scheduler")
    stray = file.with_name("7.7")
    stray.write_bytes(b"a value that nobody refers to")
    swarm.up()
    assert swarm.client.result(task.id) == "abcde" * (LONG // 5)
    assert values(swarm) == [file]
    assert list(swarm.client.map(f"{WORKLOAD}:repeat", [["x", 3], ["y", 1 << 21]])) == [
        "xxx",
        "y" * (1 << 21),
    ]


def test_what_waits_past_its_deadline_fails(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm()
    swarm.up(workers=1)
    wanted = {"cpu_cores": 4000}
    task = swarm.client.submit_task(command=["true"], requirements=wanted, deadline=0.5, wait=30)
    assert (task.state, task.reason) == ("failed", "deadline")
    assert "deadline" in (task.error or "")


def test_a_task_that_kills_its_interpreters_is_stopped(make_swarm: SwarmMaker) -> None:
    retry = "[scheduler.retry]\nmax_attempts = 9\npoison_attempts = 3\nbackoff_base = 0.5\n"
    swarm = make_swarm(retry + "[worker]\ncpu_cores = 2\n")
    swarm.up(workers=2)
    with Client(swarm.client.api, swarm.token) as listener:
        swarm.client.submit_task(command=["true"], wait=30)
        events = listener.events(after=0)
        assert next(events).kind == "task.succeeded"  # it listens
        task = swarm.client.submit_task(
            python=f"{WORKLOAD}:kill_myself", retry={"on_error": True}, wait=60
        )
        assert (task.state, task.reason) == ("failed", "poison")
        assert [one.state for one in task.attempts] == ["failed"] * 3, task.attempts
        told = list(itertools.takewhile(lambda event: event.kind != "job.failed", events))
    delays = [one for one in told if one.kind == "task.delayed"]
    assert [one.data["attempt"] for one in delays] == [1, 2]
    assert all(one.data["next_try_seconds"] > 0 for one in delays)
    assert [one.kind for one in told if one.data.get("task_id") == task.id][-1] == "task.failed"


def test_health_survives_a_restart_of_the_scheduler(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm()
    swarm.up(workers=1)
    for code in ("0", "0", "0", "1"):
        swarm.client.submit_task(command=["sh", "-c", f"exit {code}"], wait=30)
    [before] = swarm.client.workers()
    assert before.health.success_rate == 1.0, "the failure was the task's own"
    journal = swarm.home / "scheduler" / "journal.db"
    eventually(lambda: measured(journal) == (3.0, 0.0), "its health is in the journal")
    swarm.kill("scheduler")
    swarm.up()
    eventually(lambda: bool(swarm.client.workers()), "the worker is back")
    [after] = swarm.client.workers()
    assert after.health.success_rate == 1.0
    assert after.health.avg_completion_time == before.health.avg_completion_time


def measured(journal: Path) -> tuple[float, float] | None:
    import sqlite3

    database = sqlite3.connect(f"file:{journal}?mode=ro", uri=True)
    try:
        found: tuple[float, float] | None = database.execute(
            "SELECT succeeded, failed FROM workers"
        ).fetchone()
        return found
    finally:
        database.close()


def test_events_go_on_over_a_restart_of_the_scheduler(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm()
    swarm.up(workers=1)
    first = swarm.client.submit_task(command=["true"], wait=30)
    ends = list(swarm.client.events(follow=False, kinds="task.*,job.*"))
    assert [event.kind for event in ends] == ["task.succeeded", "job.succeeded"]
    last = ends[-1].id
    assert last is not None
    swarm.kill("scheduler")
    swarm.up()
    second = swarm.client.submit_task(command=["false"], wait=30)
    later: list[Event] = list(swarm.client.events(follow=False, after=last))
    assert [event.kind for event in later] == ["task.failed", "job.failed"]
    assert later[0].data["task_id"] == second.id != first.id
