"""Processes that are killed, frozen and woken under work."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mycel.client import Busy, Conflict, Job

from .conftest import QUICK, SwarmMaker
from .rest import call
from .swarm import WORKLOAD, Swarm, eventually, is_alive

RERUN_SECONDS = 5.0
PATIENT = QUICK.replace("backoff_base = 0.5", "")


def start_gated(swarm: Swarm, folder: Path, count: int, running: int) -> Job:
    """A job whose tasks run until `open_gate`; returns when so many of them do."""
    job = swarm.client.submit_job(
        {"python": f"{WORKLOAD}:wait_for"},
        arguments=[[str(folder), f"task-{n}", "gate"] for n in range(count)],
    )
    eventually(lambda: len(executions(folder)) >= running, f"{running} tasks run")
    return job


def open_gate(folder: Path) -> None:
    (folder / "gate").touch()


def executions(folder: Path) -> list[tuple[str, int, int]]:
    """Task, attempt and pid of everything that ever ran."""
    found = []
    for path in folder.glob("task-*"):
        name, attempt, pid = path.name.split(".")
        found.append((name, int(attempt), int(pid)))
    return found


def check_ended_once(swarm: Swarm, job: Job, count: int) -> list[Any]:
    """Every task has one result, in the journal and for clients."""
    ended = swarm.client.wait_job(job.id, 60)
    assert ended.state == "succeeded", ended
    results = list(swarm.client.results(job.id, follow=False))
    assert sorted(result.index for result in results) == list(range(count))
    assert all(result.value["name"] == f"task-{result.index}" for result in results)
    database = sqlite3.connect(f"file:{swarm.journal}?mode=ro", uri=True)
    try:
        query = "SELECT count(*), count(DISTINCT task_index) FROM results JOIN jobs "
        query += "ON jobs.number = results.job WHERE jobs.id = ?"
        assert database.execute(query, (job.id,)).fetchone() == (count, count)
    finally:
        database.close()
    return results


def test_the_tasks_of_a_killed_worker_run_elsewhere(make_swarm: SwarmMaker, tmp_path: Path) -> None:
    swarm = make_swarm(PATIENT)
    swarm.up(workers=2)
    job = start_gated(swarm, tmp_path, 4, 4)
    victim = swarm.worker("worker-2").peer_id
    lost = {task.id for task in swarm.client.tasks(job=job.id) if task.worker == victim}
    assert lost, "both workers have room for two"
    pids = {pid for _, _, pid in executions(tmp_path)}
    killed_at = swarm.kill("worker-2")
    # The other worker is full: its tasks have to end first.
    open_gate(tmp_path)
    results = check_ended_once(swarm, job, 4)
    seconds = time.time() - killed_at
    print(f"finished elsewhere {seconds:.2f} s after the kill")
    assert seconds < RERUN_SECONDS * 2, "generous: the machine may be busy"
    for task in (swarm.client.task(identifier) for identifier in lost):
        assert task.attempt == 2
        assert [one.state for one in task.attempts] == ["lost", "succeeded"]
        assert [one.number for one in task.attempts] == [1, 2]
        assert task.attempts[0].worker == victim
        assert task.attempts[0].error
        assert task.worker != victim
    assert {result.value["attempt"] for result in results} == {1, 2}
    alive = [pid for pid in pids if is_alive(pid)]
    assert len(alive) <= 2, "the killed worker's interpreters are gone"


def test_a_killed_scheduler_loses_nothing_and_adopts(
    make_swarm: SwarmMaker, tmp_path: Path
) -> None:
    swarm = make_swarm()
    swarm.up(workers=2)
    job = start_gated(swarm, tmp_path, 40, 4)
    single = swarm.client.submit_task(command=["echo", "single"], requirements={"cpu_cores": 0.5})
    swarm.kill("scheduler")
    before = executions(tmp_path)
    open_gate(tmp_path)  # some end while nobody is there to hear of it
    swarm.up()
    results = check_ended_once(swarm, job, 40)
    assert swarm.client.wait(single.id, 30).value == "single\n"
    assert {result.attempt for result in results} == {1}, "what ran was adopted"
    ran = Counter(name for name, _, _ in executions(tmp_path))
    assert set(ran.values()) == {1}, "nothing ran twice"
    committed = {result.value["name"]: result.value["pid"] for result in results}
    assert all(committed[name] == pid for name, _, pid in before)


def test_a_scheduler_killed_again_and_again(make_swarm: SwarmMaker, tmp_path: Path) -> None:
    """Before its workers are back, too."""
    swarm = make_swarm()
    swarm.up(workers=2)
    job = start_gated(swarm, tmp_path, 12, 4)
    for _ in range(3):
        swarm.kill("scheduler")
        done = swarm.mycel("up", "--detach", "--json")
        assert done.code == 0, done
        swarm.take(done.json)
    swarm.up()
    open_gate(tmp_path)
    check_ended_once(swarm, job, 12)
    assert set(Counter(name for name, _, _ in executions(tmp_path)).values()) == {1}


def test_scheduler_and_worker_killed_together(make_swarm: SwarmMaker, tmp_path: Path) -> None:
    swarm = make_swarm()
    swarm.up(workers=2)
    job = start_gated(swarm, tmp_path, 10, 4)
    swarm.kill("scheduler")
    swarm.kill("worker-1")
    open_gate(tmp_path)
    swarm.up()
    results = check_ended_once(swarm, job, 10)
    assert max(result.attempt for result in results) <= 2


def test_everything_killed_at_once(make_swarm: SwarmMaker, tmp_path: Path) -> None:
    swarm = make_swarm()
    swarm.up(workers=2)
    job = start_gated(swarm, tmp_path, 10, 4)
    for name in swarm.pids:
        swarm.kill(name)
    swarm.up()
    open_gate(tmp_path)
    check_ended_once(swarm, job, 10)


def test_a_result_outlives_its_scheduler_and_its_worker(
    make_swarm: SwarmMaker, tmp_path: Path
) -> None:
    """It ends while the scheduler is away; then its worker is stopped in the ordinary way."""
    swarm = make_swarm()
    swarm.up(workers=1)
    job = start_gated(swarm, tmp_path, 2, 2)
    swarm.kill("scheduler")
    open_gate(tmp_path)
    spool = swarm.home / "worker-1" / "spool.db"
    eventually(lambda: spooled(spool) == 2, "the results are on disk")
    os.kill(swarm.pids["worker-1"], signal.SIGTERM)
    eventually(lambda: not is_alive(swarm.pids["worker-1"]), "the worker has stopped")
    swarm.up()
    check_ended_once(swarm, job, 2)
    assert set(Counter(name for name, _, _ in executions(tmp_path)).values()) == {1}


def spooled(path: Path) -> int:
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        count: int = database.execute("SELECT count(*) FROM results").fetchone()[0]
        return count
    except sqlite3.OperationalError:
        return 0
    finally:
        database.close()


def test_a_frozen_worker(make_swarm: SwarmMaker, tmp_path: Path) -> None:
    """It gets no new work, its tasks run again when its lease is over, and what it says when
    it wakes is not accepted a second time."""
    swarm = make_swarm()
    swarm.up(workers=2)
    job = start_gated(swarm, tmp_path, 4, 4)
    frozen = swarm.worker("worker-1").peer_id
    held = {task.id for task in swarm.client.tasks(job=job.id) if task.worker == frozen}
    assert held
    swarm.kill("worker-1", signal.SIGSTOP)
    eventually(
        lambda: (
            frozen not in {one.peer_id for one in swarm.client.workers() if one.state == "healthy"}
        ),
        "its silence is noticed",
    )
    open_gate(tmp_path)  # its interpreters are not frozen: they end now
    results = check_ended_once(swarm, job, 4)
    again = {f"{job.id}.{one.index}" for one in results if one.attempt == 2}
    assert again == held
    assert all(one.worker != frozen for one in results)
    others = [swarm.client.submit_task(command=["true"], wait=30) for _ in range(8)]
    assert all(one.state == "succeeded" and one.worker != frozen for one in others)
    swarm.kill("worker-1", signal.SIGCONT)
    eventually(lambda: swarm.worker_state("worker-1") == "healthy", "it comes back")
    assert list(swarm.client.results(job.id, follow=False)) == results
    eventually(lambda: refused_results(swarm) > 0, "its old results are refused and counted")
    assert swarm.client.stats()["tasks_succeeded"] == 4 + 8
    swarm.kill("worker-2")
    assert swarm.client.submit_task(command=["true"], wait=30).worker == frozen


def refused_results(swarm: Swarm) -> float:
    found = re.search(
        r"^mycel_scheduler_results_refused_total (\S+)", swarm.client.metrics(), re.MULTILINE
    )
    assert found is not None
    return float(found[1])


def test_work_goes_on_without_the_gateway(make_swarm: SwarmMaker, tmp_path: Path) -> None:
    swarm = make_swarm()
    swarm.up(workers=2)
    job = start_gated(swarm, tmp_path, 8, 4)
    swarm.kill("gateway")
    open_gate(tmp_path)
    check_ended_once(swarm, job, 8)
    assert swarm.client.run(f"{WORKLOAD}:add", 1, 2) == 3
    swarm.kill("scheduler")  # the workers know where it was
    done = swarm.mycel("up", "--detach", "--json")
    swarm.take(done.json)
    eventually(lambda: swarm.healthy() == 2, "both workers are back")
    assert swarm.client.run(f"{WORKLOAD}:add", 1, 2) == 3


def test_batches_are_idempotent_and_the_queue_has_a_bound(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm(QUICK + "\n[scheduler.api]\nmax_request_size = '1MB'\n")
    settings = (swarm.home / "mycel.toml").read_text()
    bounded = settings.replace("[scheduler]\n", "[scheduler]\nmax_queued_tasks = 100\n", 1)
    (swarm.home / "mycel.toml").write_text(bounded)
    swarm.up(workers=1)
    task = {"command": ["true"], "requirements": {"cpu_cores": 1000}}  # stays queued
    opened = call(swarm, "POST", "/api/v1/jobs", json.dumps({"task": task, "closed": False}))
    assert opened.status == 201, opened
    job = opened.json["id"]
    path = f"/api/v1/jobs/{job}/tasks"
    first = call(swarm, "POST", path, '{"batch": 0, "count": 60}')
    again = call(swarm, "POST", path, '{"batch": 0, "count": 60}')
    assert (first.status, again.status) == (201, 200)
    assert (first.json["again"], again.json["again"]) == (False, True)
    assert call(swarm, "POST", path, '{"batch": 0, "count": 61}').status == 409
    assert call(swarm, "POST", path, '{"batch": 2, "count": 1}').status == 409
    full = call(swarm, "POST", path, '{"batch": 1, "count": 41}')
    assert full.status == 429
    assert int(full.headers["retry-after"]) >= 1
    assert call(swarm, "POST", path, '{"batch": 1, "count": 40}').status == 201
    with pytest.raises(Busy):
        swarm.client.submit_task(command=["true"])
    swarm.kill("scheduler")
    swarm.up()
    again = call(swarm, "POST", path, '{"batch": 1, "count": 40}')
    assert (again.status, again.json["again"]) == (200, True)
    assert swarm.client.job(job).tasks.queued == 100
    swarm.client.cancel(f"{job}.7")
    assert swarm.client.submit_task(command=["true"], wait=30).state == "succeeded"
    assert call(swarm, "POST", f"/api/v1/jobs/{job}/close").status == 200
    assert call(swarm, "POST", path, '{"batch": 2, "count": 1}').status == 409
    assert swarm.client.cancel(job).state == "cancelled"


def test_the_same_job_again(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm()
    swarm.up(workers=1)
    body = {"id": "01arz3ndektsv4rrffq69g5fav", "task": {"command": ["true"]}, "count": 3}
    first = swarm.client.submit_job_body(body)
    swarm.client.wait_job(first.id, 30)
    swarm.kill("scheduler")
    swarm.up()
    assert swarm.client.submit_job_body(body).id == first.id
    with pytest.raises(Conflict):
        swarm.client.submit_job_body({**body, "count": 4})
    assert swarm.client.stats()["tasks_succeeded"] == 3


def test_a_quick_task_does_not_wait_behind_a_long_job(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm()
    swarm.up(workers=2)
    job = swarm.client.submit_job(
        {"python": f"{WORKLOAD}:wait"}, arguments=[[0.02] for _ in range(2000)]
    )
    eventually(lambda: swarm.client.job(job.id).tasks.succeeded > 20, "the job fills all slots")
    waits = []
    for _ in range(5):
        began = time.monotonic()
        task = swarm.client.submit_task(command=["true"], wait=30)
        waits.append(time.monotonic() - began)
        assert task.state == "succeeded"
    left = swarm.client.job(job.id).tasks
    print(f"waited {', '.join(f'{one:.2f}' for one in waits)} s; {left.queued} were queued")
    assert left.queued > 0, "the job outlasts the quick tasks"
    assert max(waits) < 3.0
    swarm.client.cancel(job.id)
