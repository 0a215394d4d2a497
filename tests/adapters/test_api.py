"""What clients of the REST API may rely on, over real sockets."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
from functools import partial
from typing import Any

import msgspec
import pytest

from mycel.api import PortInUse, bind
from mycel.api.router import ROUTES
from mycel.core.events import Submit
from mycel.core.model.work import Bounds

from .api_calls import AUTHORIZED, JOB, Answer, call, submit
from .api_scheduler import ApiJob
from .api_server import Served

NOWHERE = {"cpu_cores": 1000}
"""No worker has so many: such a task stays queued."""
DOCUMENTED_BODY = b"""{
  "model": "llama-2-7b",
  "input": "Explain quantum computing",
  "requirements": {
    "min_memory": 16000000000,
    "gpu_required": true
  }
}"""


def job_of(server: Served, task: dict[str, Any]) -> ApiJob:
    return server.backend.jobs_by_id[task["job_id"]]


# The document's calls


def test_the_documented_submission_is_taken_as_printed(server: Served) -> None:
    headers = {"Content-Type": "application/json"}
    answer = call(server, "POST", "/api/v1/tasks", DOCUMENTED_BODY, headers)
    assert answer.status == 201
    task = answer.json
    assert answer.headers["Location"] == f"/api/v1/tasks/{task['id']}"
    assert task["id"] == f"{task['job_id']}.0"
    assert (task["state"], task["reason"]) == ("queued", "no_match")
    assert (task["model"], task["input"]) == ("llama-2-7b", "Explain quantum computing")
    assert task["requirements"]["min_memory"] == 16_000_000_000
    assert task["requirements"]["gpu_required"] is True
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", task["created_at"])
    assert call(server, "GET", f"/api/v1/tasks/{task['id']}").json == task


def test_a_task_is_cancelled_once_and_again(server: Served) -> None:
    task = submit(server, {"model": "m", "input": "x"})
    for _ in range(2):
        answer = call(server, "DELETE", f"/api/v1/tasks/{task['id']}")
        assert (answer.status, answer.json["state"]) == (200, "cancelled")


def test_a_finished_task_cannot_be_cancelled(server: Served) -> None:
    task = submit(server, {"command": ["true"]})
    answer = call(server, "DELETE", f"/api/v1/tasks/{task['id']}")
    assert answer.status == 409
    assert answer.headers["Content-Type"] == "application/problem+json"


def test_workers_are_listed_with_what_they_have_and_do(server: Served) -> None:
    for command in (["true"], ["false"]):
        submit(server, {"command": command})
    for _ in range(2):
        submit(server, {"python": "waits:here"})
    server.call(lambda: server.backend.measure_round_trip(0.0015))
    [worker] = call(server, "GET", "/api/v1/workers").json["items"]
    assert worker["capabilities"]["models"] == ["llama-2-7b"]
    a100 = {"model": "A100", "memory": 40_000_000_000, "vendor": "", "family": "a100"}
    assert worker["capabilities"]["gpus"] == [a100]
    assert worker["load"]["running"] == 2
    health = worker["health"]
    assert (health["success_rate"], health["avg_completion_time"]) == (1.0, 0.0), "a task failed"
    assert (health["last_seen"] > "2026", health["consecutive_failures"]) == (True, 0)
    assert worker["rtt_ms"] == 1.5


def test_metrics_and_totals_are_there(server: Served) -> None:
    for command in (["true"], ["true"], ["true"], ["false"]):
        submit(server, {"command": command})
    for _ in range(15):
        submit(server, {"model": "m", "input": "x"})
    metrics = call(server, "GET", "/metrics")
    assert b"hypha_scheduler_tasks_queued 15.0" in metrics.body
    stats = call(server, "GET", "/api/v1/stats").json
    assert (stats["queue_depth"], stats["success_rate"]) == (15, 0.75)
    assert stats["average_latency_seconds"] >= 0
    assert stats["completion_rate"] > 0


# Waiting


def test_submit_and_result_are_one_question(server: Served) -> None:
    before = server.backend.reads
    body = {"python": "json:dumps", "arguments": [1, {"a": 2}], "name": "n", "labels": {"x": "y"}}
    task = submit(server, body, "?wait=10")
    assert task["state"] == "succeeded"
    assert task["result"]["json"] == [1, {"a": 2}]
    assert task["result"]["digest"].startswith("blake3:")
    assert task["arguments"] == [1, {"a": 2}]
    assert [attempt["state"] for attempt in task["attempts"]] == ["succeeded"]
    assert (task["name"], task["labels"], task["attempt"]) == ("n", {"x": "y"}, 1)
    assert len(server.backend.asked) == 1
    assert server.backend.reads == before


def test_a_wait_that_runs_out_answers_with_the_task_as_it_is(server: Served) -> None:
    task = submit(server, {"model": "m", "input": {"text": "x"}}, "?wait=0.01")
    assert task["state"] == "queued"
    assert server.backend.forgotten_count == 1
    assert call(server, "GET", f"/api/v1/tasks/{task['id']}?wait=0.01").json["state"] == "queued"


def test_a_wait_ends_with_the_task(server: Served) -> None:
    task = submit(server, {"python": "waits:here"})
    job = job_of(server, task)
    server.call(server.backend.lose_worker)
    answers: list[Answer] = []
    path = f"/api/v1/tasks/{task['id']}"
    waiter = threading.Thread(target=lambda: answers.append(call(server, "GET", f"{path}?wait=20")))
    waiter.start()
    server.call(lambda: server.backend.end(job, 0, value=b'"v"'))
    waiter.join()
    assert answers[0].json["result"]["json"] == "v"
    assert [attempt["state"] for attempt in answers[0].json["attempts"]] == ["lost", "succeeded"]
    assert call(server, "GET", f"{path}/result?wait=1").json["json"] == "v"


def test_a_task_without_resources_gets_one_core(server: Served) -> None:
    submit(server, {"command": ["true"]})
    submit(server, {"command": ["true"], "requirements": {"min_memory": "1kB", "cpu_cores": 0.5}})
    first, second = (event for event in server.backend.asked if isinstance(event, Submit))
    assert first.specification.requirements.cpu_cores == 1
    assert not first.specification.requirements_given
    assert second.specification.requirements.cpu_cores == 0.5
    assert second.specification.requirements.min_memory == 1000
    assert second.specification.requirements_given


def test_only_what_a_task_names_limits_it(server: Served) -> None:
    submit(server, {"command": ["true"], "requirements": {"arch": "x86_64"}})
    named = {"min_memory": "1kB", "cpu_cores": 0.5}
    task = submit(
        server,
        {"command": ["true"], "requirements": named, "network": True, "sandbox": "required"},
    )
    first, second = (event for event in server.backend.asked if isinstance(event, Submit))
    assert first.specification.work.bounds == Bounds()
    assert second.specification.work.bounds == Bounds(True, "required", 1000, 0.5)
    assert (task["network"], task["sandbox"]) == (True, "required")


# Results and logs


def test_processes_leave_an_exit_code_and_logs(server: Served) -> None:
    task = submit(server, {"command": ["true"]}, "?wait=5")
    path = f"/api/v1/tasks/{task['id']}"
    assert task["result"] == {"text": "out\n", "exit_code": 0}
    assert call(server, "GET", f"{path}/logs").json == {"stdout": "out\n", "stderr": "err\n"}
    text = call(server, "GET", f"{path}/logs?stream=stderr")
    assert (text.body, text.headers.get_content_type()) == (b"err\n", "text/plain")


def test_what_failed_has_an_error_and_no_result(server: Served) -> None:
    task = submit(server, {"python": "fails:always"}, "?wait=5")
    assert (task["state"], task["error"], task["result"]) == ("failed", "ValueError: no", None)
    answer = call(server, "GET", f"/api/v1/tasks/{task['id']}/result")
    assert answer.status == 409
    assert "ValueError: no" in answer.json["detail"]


def test_what_has_not_ended_has_no_result(server: Served) -> None:
    task = submit(server, {"model": "m", "input": "x"})
    answer = call(server, "GET", f"/api/v1/tasks/{task['id']}/result")
    assert answer.status == 409
    assert "?wait" in answer.json["detail"]


def test_a_task_explains_itself(server: Served) -> None:
    task = submit(server, {"model": "m", "input": "x"})
    explanation = call(server, "GET", f"/api/v1/tasks/{task['id']}/explain").json
    assert explanation["obstacles"][0]["reason"] == "needs the model m, it serves llama-2-7b"


# Jobs


def test_a_job_in_batches(server: Served) -> None:
    task = {"python": "json:dumps"}
    opened = call(server, "POST", "/api/v1/jobs", {"task": task, "closed": False})
    assert (opened.status, opened.json["tasks"]["total"]) == (201, 0)
    path = f"/api/v1/jobs/{opened.json['id']}"
    batches = [
        call(server, "POST", f"{path}/tasks", {"batch": batch, "arguments": [[batch], {"k": 1}]})
        for batch in (0, 1, 0)
    ]
    assert [answer.status for answer in batches] == [201, 201, 200]
    assert [answer.json["first"] for answer in batches] == [0, 2, 0]
    closed = call(server, "POST", f"{path}/close").json
    assert (closed["state"], closed["batches"]) == ("succeeded", 2)
    lines = [json.loads(line) for line in call(server, "GET", f"{path}/results").body.splitlines()]
    assert [line["value"] for line in lines] == [[0], {"k": 1}, [1], {"k": 1}]
    after = lines[2]["sequence"]
    rest = call(server, "GET", f"{path}/results?after={after}").body.splitlines()
    assert [json.loads(line)["index"] for line in rest] == [3]


def test_followed_results_end_with_the_job(server: Served) -> None:
    body = {"task": {"python": "waits:here"}, "count": 2}
    job_id = call(server, "POST", "/api/v1/jobs", body).json["id"]
    job = server.backend.jobs_by_id[job_id]
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.request("GET", f"/api/v1/jobs/{job_id}/results?follow", headers=AUTHORIZED)
    response = connection.getresponse()
    for index in (1, 0):
        server.call(partial(server.backend.end, job, index, value=b"1"))
        assert json.loads(response.readline())["index"] == index
    assert response.read() == b""
    connection.close()


def test_a_stream_that_is_cut_short_does_not_look_complete(server: Served) -> None:
    body = {"task": {"python": "waits:here"}, "count": 1}
    job_id = call(server, "POST", "/api/v1/jobs", body).json["id"]
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.request("GET", f"/api/v1/jobs/{job_id}/results?follow", headers=AUTHORIZED)
    response = connection.getresponse()
    server.call(server.backend.stop)
    with pytest.raises(http.client.IncompleteRead):
        response.read()
    connection.close()


def test_a_job_may_bring_its_id(server: Served) -> None:
    body: dict[str, Any] = {"id": JOB, "task": {"command": ["true"]}, "count": 3, "name": "n"}
    first, second, third = (call(server, "POST", "/api/v1/jobs", body) for _ in range(3))
    assert (first.status, second.status) == (201, 200)
    assert first.json["id"] == second.json["id"] == JOB
    assert second.json == third.json
    assert call(server, "POST", "/api/v1/jobs", body | {"count": 4}).status == 409
    assert call(server, "GET", f"/api/v1/jobs/{JOB}?wait=1").json == second.json


def test_an_idempotency_key_names_one_request(server: Served) -> None:
    headers = {"Idempotency-Key": "k"}
    body: dict[str, Any] = {"python": "json:dumps", "arguments": []}
    answers = [
        call(server, "POST", "/api/v1/tasks?wait=5", body, headers),
        call(server, "POST", "/api/v1/tasks?wait=5", body, headers),
        call(server, "POST", "/api/v1/tasks", body | {"priority": 1}, headers),
        call(server, "POST", "/api/v1/jobs", {"task": body, "count": 1}, headers),
    ]
    assert [answer.status for answer in answers] == [201, 200, 422, 201]
    assert answers[0].json == answers[1].json


def test_lists_have_pages_and_filters(server: Served) -> None:
    jobs = []
    for needs in ({}, NOWHERE):
        body = {
            "task": {"python": "json:dumps", "requirements": needs},
            "arguments": [[n] for n in range(3)],
        }
        jobs.append(call(server, "POST", "/api/v1/jobs", body).json["id"])
    seen: list[str] = []
    cursor = ""
    while True:
        page = call(server, "GET", f"/api/v1/tasks?limit=2{cursor}").json
        seen += [task["id"] for task in page["items"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert seen == [f"{job}.{n}" for job in reversed(jobs) for n in range(3)]
    queued = call(server, "GET", "/api/v1/tasks?state=queued").json["items"]
    assert {task["job_id"] for task in queued} == {jobs[1]}
    assert len(call(server, "GET", f"/api/v1/tasks?job={jobs[0]}").json["items"]) == 3
    listed = call(server, "GET", "/api/v1/jobs?limit=1").json
    assert (listed["items"][0]["id"], listed["next"]) == (jobs[1], jobs[1])
    older = call(server, "GET", f"/api/v1/jobs?cursor={listed['next']}").json
    assert [job["id"] for job in older["items"]] == [jobs[0]]
    found = call(server, "GET", f"/api/v1/jobs?prefix={jobs[0]}").json["items"]
    assert [job["id"] for job in found] == [jobs[0]]
    found = call(server, "GET", f"/api/v1/jobs?ending={jobs[1][-9:]}").json["items"]
    assert [job["id"] for job in found] == [jobs[1]]
    cancelled = call(server, "DELETE", f"/api/v1/jobs/{jobs[1]}").json
    assert (cancelled["state"], cancelled["tasks"]["cancelled"]) == ("cancelled", 3)


def test_lists_are_filtered_by_what_jobs_and_tasks_are(server: Served) -> None:
    for name in ("sweep one", "sweep two", "other"):
        body = {"name": name, "task": {"python": "json:dumps"}, "arguments": [[1], [2]]}
        call(server, "POST", "/api/v1/jobs", body)
    task = {"python": "json:dumps", "requirements": NOWHERE}
    waiting = {"name": "waits", "task": task, "arguments": [[1]]}
    call(server, "POST", "/api/v1/jobs", waiting)

    def jobs(query: str) -> list[str]:
        items = call(server, "GET", f"/api/v1/jobs?{query}").json["items"]
        return [job["name"] for job in items]

    assert jobs("name=sweep*") == ["sweep two", "sweep one"]
    assert jobs("name=sweep&user=owner") == []
    assert jobs("user=nobody") == []
    assert jobs("state=queued") == ["waits"]
    assert jobs("state=succeeded&limit=2") == ["other", "sweep two"]
    assert jobs("state=succeeded&name=*one&limit=1") == ["sweep one"]
    assert jobs("since=2200-01-01T00:00:00Z") == []
    assert len(jobs("since=2023-11-14T22:13:19Z&until=2200-01-01T00:00:00%2B00:00")) == 4
    for wrong in (
        "state=lost",
        "since=yesterday",
        "since=2023-11-14T22:13:21",
        "name=" + "x" * 300,
    ):
        assert call(server, "GET", f"/api/v1/jobs?{wrong}").status == 422
    tasks = call(server, "GET", "/api/v1/tasks?name=sweep*&limit=3").json
    assert [task["name"] for task in tasks["items"]] == ["sweep two", "sweep two", "sweep one"]
    rest = call(server, "GET", f"/api/v1/tasks?name=sweep*&cursor={tasks['next']}").json
    assert [task["name"] for task in rest["items"]] == ["sweep one"]
    assert call(server, "GET", "/api/v1/tasks?stage=train").json["items"] == []


def test_a_list_has_each_tasks_own_arguments(server: Served) -> None:
    for function in ("json:dumps", "waits:here"):
        body = {"task": {"python": function}, "arguments": [[1], {"a": 2}]}
        call(server, "POST", "/api/v1/jobs", body)
    listed = call(server, "GET", "/api/v1/tasks").json["items"]
    assert [task["arguments"] for task in listed] == [[1], {"a": 2}] * 2
    single = call(server, "GET", f"/api/v1/tasks/{listed[0]['id']}").json
    assert single == listed[0]


# The server


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(PortInUse, match=f"127.0.0.1:{port} is in use"):
            bind("127.0.0.1", port)


def test_every_route_is_described(server: Served) -> None:
    document = call(server, "GET", "/openapi.json").json
    described = {(m.upper(), path) for path, methods in document["paths"].items() for m in methods}
    assert described == {(one.method, one.path.replace(":path", "")) for one in ROUTES}
    references = set(msgspec.json.encode(document).decode().split('"#/components/schemas/')[1:])
    names = {reference.partition('"')[0] for reference in references}
    assert names <= set(document["components"]["schemas"])
