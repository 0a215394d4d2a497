"""What programs that use `mycel.Client` may rely on."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import mycel
from mycel.client import (
    Busy,
    Client,
    Conflict,
    ConnectionLost,
    Invalid,
    NotFound,
    NotRunning,
    TaskCancelled,
    TaskFailed,
    Unauthorized,
    WaitTimedOut,
)
from mycel.client.batches import BATCH_BYTES_MAX, batches, outline
from mycel.core.errors import TooMany
from mycel.core.events import Append, Submit
from mycel.core.model.derivation import BATCH_TASKS_MAX

from .api_access import TOKEN
from .api_server import Served


@pytest.fixture
def client(server: Served) -> Iterator[Client]:
    with mycel.Client(server.api, TOKEN) as client:
        yield client


def test_a_function_is_run_and_its_value_returned(client: Client) -> None:
    assert client.run("json:dumps", 1, [2]) == [1, [2]]
    assert client.run("json:dumps", name="x") == {"name": "x"}
    both = client.run("json:dumps", 1, name="x")
    assert both == {"$positional": [1], "$named": {"name": "x"}}  # as the worker gets them


def test_a_failure_is_raised(client: Client) -> None:
    with pytest.raises(TaskFailed, match="ValueError: no") as failed:
        client.run("fails:always")
    assert failed.value.error == "ValueError: no"
    task = client.submit_task(command=["false"])
    with pytest.raises(TaskFailed, match="task") as failed:
        client.result(task.id)
    assert failed.value.exit_code == 1


def test_values_come_in_the_order_of_the_arguments(server: Served, client: Client) -> None:
    assert list(client.map("json:dumps", [1, (2, 3), {"a": 4}])) == [[1], [2, 3], {"a": 4}]
    values = client.map("waits:here", range(3))
    collected: list[object] = []
    reader = threading.Thread(target=lambda: collected.extend(values))
    reader.start()
    submitted = client.find_jobs("0")
    while len(submitted) < 2:
        submitted = client.find_jobs("0")
    job = next(job for job in server.backend.jobs_by_id.values() if not job.results)
    for index in (2, 0, 1):
        server.call(partial(server.backend.end, job, index, value=b"%d" % index))
    reader.join()
    assert collected == [0, 1, 2]


def test_a_big_job_goes_in_batches(server: Served, client: Client) -> None:
    numbers = range(2 * BATCH_TASKS_MAX + 5)
    assert list(client.map("json:dumps", numbers)) == [[number] for number in numbers]
    kinds = Append, Submit
    sent = [event.count for event in server.backend.asked if isinstance(event, kinds)]
    assert (sum(sent), max(sent) <= BATCH_TASKS_MAX) == (len(numbers), True)
    job = client.submit_job({"command": ["true"]}, count=BATCH_TASKS_MAX + 1, name="n")
    assert (job.tasks.total, job.name) == (BATCH_TASKS_MAX + 1, "n")
    assert client.wait_job(job.id).state == "succeeded"


@pytest.mark.parametrize(
    ("own", "cancelled"),
    [
        ({}, BATCH_TASKS_MAX),
        ({"id": "0" * 26}, 0),  # the caller can go on with it
    ],
)
def test_a_big_job_that_is_broken_off(client: Client, own: dict[str, str], cancelled: int) -> None:
    body = {"task": {"python": "waits:here"}, "arguments": [[1]] * (BATCH_TASKS_MAX + 1), **own}
    with pytest.raises(KeyboardInterrupt):
        client.submit_job_in_parts(body, progress=_interrupt)
    [job] = client.jobs()
    assert job.tasks.cancelled == cancelled


def _interrupt(sent: int) -> None:
    raise KeyboardInterrupt


def test_a_dry_run_takes_what_a_submission_takes() -> None:
    many = [[number] for number in range(BATCH_TASKS_MAX + 5)]
    task = {"python": "m:f"}
    assert outline({"task": task, "arguments": many}) == {
        "task": task,
        "count": len(many),
        "closed": True,
    }
    stages = [
        {"name": "a", "task": task, "arguments": many},
        {"name": "b", "task": {"command": ["b"]}, "inputs": ["x"] * len(many), "needs": ["a"]},
        {"name": "c", "task": {"command": ["c"]}},
    ]
    outlined = outline({"stages": stages})
    counts = {stage["name"]: stage["count"] for stage in outlined["stages"]}
    assert counts == {"a": len(many), "b": len(many), "c": 1}
    assert not any({"arguments", "inputs"} & stage.keys() for stage in outlined["stages"])
    few: dict[str, Any] = {"task": task, "count": 3}
    assert outline(few) == few


def test_batches_stay_below_the_size_of_a_request() -> None:
    large = "x" * (BATCH_BYTES_MAX // 3)
    sizes = [len(batch) for batch in batches([large] * 7)]
    assert len(sizes) == 4
    assert max(sizes) < BATCH_BYTES_MAX + 10


@pytest.mark.parametrize("number", [float("inf"), -float("inf")])
def test_numbers_that_json_lacks_arrive(number: float, server: Served, client: Client) -> None:
    assert client.run("json:dumps", 1.5, {"rate": number}) == [1.5, {"rate": number}]
    assert list(client.map("json:dumps", [[number], [2.5]])) == [[number], [2.5]]
    [nan] = client.run("json:dumps", float("nan"))
    assert nan != nan
    with pytest.raises(ValueError, match="NaN or infinite"):  # there it says nothing
        client.submit_job({"command": ["a"], "requirements": {"cpu_cores": number}}, count=1)


@pytest.mark.parametrize(
    "value", [b"bytes", {1: "one"}, {1, 2}, datetime(2030, 1, 1, tzinfo=UTC), Path("a"), 1j]
)
def test_what_json_would_change_is_refused(value: object, server: Served, client: Client) -> None:
    with pytest.raises(TypeError, match=r"\$\.arguments\[1\]\.x"):
        client.run("json:dumps", 1, {"x": value})
    with pytest.raises(TypeError, match=r"\$\.arguments"):
        list(client.map("json:dumps", [value]))
    with pytest.raises(TypeError, match="submit the function itself"):
        client.submit_job({"python": "json:dumps"}, arguments=[[value]])
    assert not server.backend.asked


def test_waiting_has_an_end(server: Served, client: Client) -> None:
    task = client.submit_task(model="m", input="x", wait=0.01)
    assert (task.state, task.reason) == ("queued", "no_match")
    with pytest.raises(WaitTimedOut, match="it goes on"):
        client.wait(task.id, timeout=0.01)
    cancelled = client.cancel(task.id)
    assert cancelled.state == "cancelled"
    with pytest.raises(TaskCancelled):
        client.result(task.id)


def test_jobs_tasks_and_workers_are_listed(client: Client) -> None:
    jobs = [client.submit_job({"python": "waits:here"}, count=3) for _ in range(2)]
    assert [job.id for job in client.jobs()] == [job.id for job in reversed(jobs)]
    assert [job.id for job in client.jobs(limit=1)] == [jobs[1].id]
    assert len(list(client.tasks())) == 6
    assert len(list(client.tasks(limit=4))) == 4
    assert [task.id for task in client.tasks(job=jobs[0].id, limit=2)] == [
        f"{jobs[0].id}.0",
        f"{jobs[0].id}.1",
    ]
    assert client.cancel(jobs[0].id).state == "cancelled"
    assert client.wait_job(jobs[0].id).tasks.cancelled == 3
    assert [worker.name for worker in client.workers()] == ["worker-1"]
    waiting = client.submit_task(model="m", input="x")
    assert client.stats()["queue_depth"] == 1
    assert client.explain(waiting.id).obstacles[0].workers == ["worker-1"]


def test_notebooks_show_tables(client: Client) -> None:
    task = client.submit_task(command=["false", "<&>"], wait=1)
    assert "<th>state</th><td>failed</td>" in task._repr_html_()
    assert "false &lt;&amp;&gt;" in task._repr_html_()
    assert "1 of 1 have ended" in client.job(task.job_id)._repr_html_()
    assert "<td>worker-1</td>" in client.workers()[0]._repr_html_()


def test_logs_are_exact(client: Client) -> None:
    task = client.submit_task(command=["true"], wait=5)
    assert client.logs(task.id).stderr == "err\n"
    assert client.log(task.id, "stdout") == b"out\n"


def test_problems_become_typed_errors(server: Served, client: Client) -> None:
    with pytest.raises(Invalid, match=r"at \$.command") as invalid:
        client.submit_task(command="echo")
    assert (invalid.value.status, invalid.value.path) == (422, "$.command")
    with pytest.raises(NotFound):
        client.task("01jabcdefghjkmnpqrstvwxyz0.0")
    done = client.submit_task(command=["true"])
    with pytest.raises(Conflict):
        client.cancel(done.id)
    with Client(server.api, "wrong") as stranger, pytest.raises(Unauthorized):
        stranger.workers()
    server.backend.refusal = TooMany("full", 3)
    with pytest.raises(Busy) as busy:
        client.submit_task(command=["true"])
    assert busy.value.retry_after_seconds == 3


def test_the_same_key_is_the_same_task(client: Client) -> None:
    first, second = (client.submit_task(command=["true"], idempotency_key="k") for _ in range(2))
    assert first.id == second.id


def test_nobody_there_says_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(NotRunning, match="start one with 'mycel up'"):
        Client(f"http://127.0.0.1:{port}", "t").workers()


def test_a_connection_that_breaks_off_is_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = Client(f"http://127.0.0.1:{listener.getsockname()[1]}", "t")

        def answer_half() -> None:
            connection, _ = listener.accept()
            connection.recv(1000)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
            connection.close()

        thread = threading.Thread(target=answer_half)
        thread.start()
        with pytest.raises(ConnectionLost):
            client.workers()
        thread.join()


def test_threads_share_a_client(client: Client) -> None:
    with ThreadPoolExecutor(8) as pool:
        values = list(pool.map(lambda number: client.run("json:dumps", number), range(100)))
    assert values == [[number] for number in range(100)]


def test_submission_with_wait_is_one_request(server: Served, client: Client) -> None:
    client.run("json:dumps", 1)
    assert [type(event) for event in server.backend.asked] == [Submit]


def test_an_address_is_checked() -> None:
    with pytest.raises(ValueError, match="an address is like"):
        Client("ftp://somewhere", "t")


def test_importing_mycel_imports_nothing_heavy() -> None:
    code = "import sys, mycel; print([m for m in sys.modules if m.split('.')[0] in "
    code += "('msgspec', 'uvicorn', 'asyncio', 'cyclopts', 'rich', 'socket')])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout.strip() == "[]"
