"""The REST API as the scheduler-nodes document prints it, over a real swarm."""

from __future__ import annotations

import json
import re
import socket
from urllib.parse import urlsplit

import pytest

from .conftest import SwarmMaker
from .rest import Answer, call
from .swarm import Swarm, eventually

DOCUMENTED_BODY = """{
  "model": "llama-2-7b",
  "input": "Explain quantum computing",
  "requirements": {
    "min_memory": 16000000000,
    "gpu_required": true
  }
}"""
UNKNOWN_JOB = "01arz3ndektsv4rrffq69g5fav"
SAMPLES = (
    "hypha_scheduler_tasks_queued",
    "hypha_scheduler_tasks_completed_total",
    "hypha_scheduler_tasks_failed_total",
    "hypha_scheduler_workers_available",
    "hypha_scheduler_workers_busy",
    "hypha_scheduler_worker_selection_duration_seconds",
)


def problem(answer: Answer, status: int) -> str:
    """The detail of a problem document."""
    assert answer.status == status, answer
    assert answer.headers["content-type"] == "application/problem+json"
    document = answer.json
    assert document["status"] == status
    assert document["title"]
    assert document["type"]
    detail: str = document["detail"]
    assert detail
    return detail


def test_the_documented_task_is_queued_read_and_cancelled(swarm: Swarm) -> None:
    submitted = call(swarm, "POST", "/api/v1/tasks", DOCUMENTED_BODY)
    assert submitted.status == 201, submitted
    task = submitted.json
    path = f"/api/v1/tasks/{task['id']}"
    assert submitted.headers["location"] == path
    assert (task["state"], task["reason"]) == ("queued", "no_match")
    assert task["id"] == f"{task['job_id']}.0"
    assert task["model"] == "llama-2-7b"
    assert task["requirements"]["min_memory"] == 16_000_000_000
    assert task["requirements"]["gpu_required"] is True
    assert (task["attempts"], task["result"], task["worker"]) == ([], None, None)
    assert call(swarm, "GET", path).json == task
    listed = call(swarm, "GET", f"/api/v1/tasks?job={task['job_id']}").json
    assert listed == {"items": [task], "next": None}
    for _ in range(2):
        cancelled = call(swarm, "DELETE", path)
        assert (cancelled.status, cancelled.json["state"]) == (200, "cancelled")
    assert call(swarm, "GET", path).json["state"] == "cancelled"


def test_what_has_succeeded_cannot_be_cancelled(swarm: Swarm) -> None:
    done = call(swarm, "POST", "/api/v1/tasks?wait=30", '{"command": ["true"]}')
    assert (done.status, done.json["state"]) == (201, "succeeded")
    path = f"/api/v1/tasks/{done.json['id']}"
    problem(call(swarm, "DELETE", path), 409)
    assert call(swarm, "GET", path).json["state"] == "succeeded"


def test_what_has_failed_cannot_be_cancelled(swarm: Swarm) -> None:
    done = call(swarm, "POST", "/api/v1/tasks?wait=30", '{"command": ["false"]}')
    assert done.json["state"] == "failed"
    problem(call(swarm, "DELETE", f"/api/v1/tasks/{done.json['id']}"), 409)


def test_workers_are_listed_as_documented(swarm: Swarm) -> None:
    answer = call(swarm, "GET", "/api/v1/workers")
    assert answer.status == 200
    items = answer.json["items"]
    assert answer.json["next"] is None
    assert sorted(item["name"] for item in items) == ["worker-1", "worker-2"]
    for item in items:
        assert item["peer_id"].startswith("12D3Koo")
        assert item["state"] == "healthy"
        has = item["capabilities"]
        assert (has["models"], has["gpus"], has["cpu_cores"]) == ([], [], 4)
        assert has["memory"] > 0
        assert set(item["health"]) == {
            "success_rate",
            "avg_completion_time",
            "last_seen",
            "consecutive_failures",
        }
        assert {"load", "rtt_ms", "sources"} <= set(item)


def samples(swarm: Swarm) -> dict[str, float]:
    text = call(swarm, "GET", "/metrics").body.decode()
    return {
        name: float(value)
        for name, value in re.findall(r"^(\w+) ([-+.\deE]+|NaN)$", text, re.MULTILINE)
    }


def test_the_six_metrics_count(swarm: Swarm) -> None:
    before = samples(swarm)
    assert set(SAMPLES) <= set(before)
    assert before["hypha_scheduler_workers_available"] == 2
    for command in (["true"], ["true"], ["false"]):
        call(swarm, "POST", "/api/v1/tasks?wait=30", json.dumps({"command": command}))
    waiting = call(swarm, "POST", "/api/v1/tasks", DOCUMENTED_BODY).json["id"]
    after = samples(swarm)
    completed, failed = SAMPLES[1], SAMPLES[2]
    assert after[completed] == before[completed] + 2
    assert after[failed] == before[failed] + 1
    assert after["hypha_scheduler_tasks_queued"] >= 1
    assert after["hypha_scheduler_worker_selection_duration_seconds"] > 0
    call(swarm, "DELETE", f"/api/v1/tasks/{waiting}")


@pytest.mark.parametrize(
    "body",
    [b"{", b"", b'{"command": ["true"]', b"\xff\xfe", b'{"command": ["true"]} trailing', b"nul"],
)
def test_malformed_json(swarm: Swarm, body: bytes) -> None:
    problem(call(swarm, "POST", "/api/v1/tasks", body), 400)


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"command": 7}, "command"),
        ({"command": ["true"], "priority": "high"}, "priority"),
        ({"command": ["true"], "comand": ["true"]}, "comand"),
        ({"command": ["true"], "requirements": {"cpu_cores": -1}}, "cpu_cores"),
        ({"command": ["true"], "requirements": {"min_memory": -5}}, "min_memory"),
        ({"command": ["true"], "requirements": {"min_memory": "much"}}, "min_memory"),
        ({"command": ["true"], "requirements": {"gpus": {"count": -1}}}, "count"),
        ({"command": ["true"], "requirements": {"gpu": True}}, "gpu"),
        ({"command": ["true"], "timeout": -1}, "timeout"),
        ({"command": ["true"], "timeout": 0}, "timeout"),
        ({"command": []}, "command"),
        ({"command": [""]}, "command"),
        ({"command": ["a\0b"]}, "command"),
        ({"command": ["true"], "env": {"A=B": "c"}}, "env"),
        ({"command": ["true"], "env": {"A": "b\0"}}, "env"),
        ({"python": "no_function"}, "python"),
        ({"python": "math:sqrt", "command": ["true"]}, ""),
        ({"python": "math:sqrt", "arguments": 4}, "arguments"),
        ({}, ""),
        ([], ""),
        ("text", ""),
        ({"model": "m", "input": 7}, "input"),
        ({"command": ["true"], "retry": {"max_attempts": 0}}, "max_attempts"),
    ],
)
def test_well_formed_and_wrong(swarm: Swarm, body: object, path: str) -> None:
    answer = call(swarm, "POST", "/api/v1/tasks", json.dumps(body))
    detail = problem(answer, 422)
    assert path in answer.json.get("path", "") + detail


@pytest.mark.parametrize("number", ["NaN", "1e400", "-0.5", "1e18"])
def test_resources_beyond_reason(swarm: Swarm, number: str) -> None:
    body = '{"command": ["true"], "requirements": {"cpu_cores": ' + number + "}}"
    answer = call(swarm, "POST", "/api/v1/tasks", body)
    assert answer.status in (400, 422), answer


def test_require_satisfiable_refuses_what_nobody_can_do(swarm: Swarm) -> None:
    body = {**json.loads(DOCUMENTED_BODY), "require_satisfiable": True}
    problem(call(swarm, "POST", "/api/v1/tasks", json.dumps(body)), 422)


def test_a_body_over_the_limit(swarm: Swarm) -> None:
    body = json.dumps({"python": "math:sqrt", "arguments": ["x" * 10_000_001]})
    assert "10" in problem(call(swarm, "POST", "/api/v1/tasks", body), 413)


def test_a_body_that_never_ends_is_cut(swarm: Swarm) -> None:
    """Sent in chunks, so that no length announces it."""
    address = urlsplit(swarm.api)
    with socket.create_connection((address.hostname, address.port), timeout=30) as connection:
        connection.sendall(
            f"POST /api/v1/tasks HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {swarm.token}\r\n"
            "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        )
        chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
        try:
            for _ in range(90):
                connection.sendall(chunk)
        except OSError:
            pass  # it has answered, and closed
        assert b" 413 " in connection.recv(4096).split(b"\r\n")[0]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", f"/api/v1/tasks/{UNKNOWN_JOB}.0"),
        ("DELETE", f"/api/v1/tasks/{UNKNOWN_JOB}.0"),
        ("GET", f"/api/v1/tasks/{UNKNOWN_JOB}.0/explain"),
        ("GET", f"/api/v1/tasks/{UNKNOWN_JOB}.0/logs"),
        ("GET", f"/api/v1/tasks/{UNKNOWN_JOB}.0/result"),
        ("GET", "/api/v1/tasks/nonsense"),
        ("GET", f"/api/v1/tasks/{UNKNOWN_JOB}.-1"),
        ("GET", f"/api/v1/tasks/{UNKNOWN_JOB}.99999999999999999999"),
        ("GET", f"/api/v1/jobs/{UNKNOWN_JOB}"),
        ("DELETE", f"/api/v1/jobs/{UNKNOWN_JOB}"),
        ("GET", f"/api/v1/jobs/{UNKNOWN_JOB}/results"),
        ("POST", f"/api/v1/jobs/{UNKNOWN_JOB}/close"),
        ("GET", "/api/v1/nothing"),
    ],
)
def test_unknown_ids(swarm: Swarm, method: str, path: str) -> None:
    problem(call(swarm, method, path), 404)


def test_an_index_beyond_the_job(swarm: Swarm) -> None:
    job = call(swarm, "POST", "/api/v1/tasks?wait=30", '{"command": ["true"]}').json["job_id"]
    problem(call(swarm, "GET", f"/api/v1/tasks/{job}.1"), 404)
    problem(call(swarm, "DELETE", f"/api/v1/tasks/{job}.1"), 404)


@pytest.mark.parametrize("token", [None, "wrong", "ä"])
@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/api/v1/workers"), ("POST", "/api/v1/tasks"), ("GET", "/metrics"), ("GET", "/none")],
)
def test_without_the_token(swarm: Swarm, method: str, path: str, token: str | None) -> None:
    body = '{"command": ["true"]}' if method == "POST" else None
    sent = None if token is None else token.encode().decode("latin-1")
    problem(call(swarm, method, path, body, token=sent), 401)


def test_health_needs_no_token(swarm: Swarm) -> None:
    assert call(swarm, "GET", "/healthz", token=None).status == 200
    assert call(swarm, "GET", "/readyz", token=None).status == 200


def test_a_wrong_method_says_which_are_right(swarm: Swarm) -> None:
    answer = call(swarm, "PUT", "/api/v1/tasks", "{}")
    problem(answer, 405)
    assert "POST" in answer.headers["allow"]


def test_garbage_on_the_port_harms_nobody(swarm: Swarm) -> None:
    for port in swarm.ports.values():
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            connection.sendall(b"\x00\xff garbage \r\n\r\n" * 100)
        with socket.create_connection(("127.0.0.1", port), timeout=30):
            pass
    assert swarm.client.run("tests.end_to_end.workload:add", 1, 1) == 2
    assert all(worker.state == "healthy" for worker in swarm.client.workers())


def test_the_same_key_is_the_same_task(swarm: Swarm) -> None:
    headers = {"Idempotency-Key": "end-to-end"}
    body = '{"command": ["echo", "once"]}'
    first = call(swarm, "POST", "/api/v1/tasks", body, headers=headers)
    again = call(swarm, "POST", "/api/v1/tasks?wait=30", body, headers=headers)
    assert (first.status, again.status) == (201, 200)
    assert again.json["id"] == first.json["id"]
    other = '{"command": ["echo", "twice"]}'
    problem(call(swarm, "POST", "/api/v1/tasks", other, headers=headers), 422)


# Why a task waits


def reasons(swarm: Swarm, task: str) -> dict[str, str]:
    explained = call(swarm, "GET", f"/api/v1/tasks/{task}/explain")
    assert explained.status == 200
    assert explained.json["state"] == "queued"
    assert explained.json["summary"]
    return {
        worker: obstacle["reason"]
        for obstacle in explained.json["obstacles"]
        for worker in obstacle["workers"]
    }


def test_the_explanation_follows_the_workers(make_swarm: SwarmMaker) -> None:
    """Each worker joins with the settings that `mycel.toml` had at that moment."""
    swarm = make_swarm('[worker.models.stable-diffusion-xl]\nendpoint = "http://127.0.0.1:9/v1"\n')
    swarm.up(workers=1)
    (swarm.home / "mycel.toml").write_text('[worker]\nmemory = "32GB"\n')
    swarm.up(workers=2)
    task = call(swarm, "POST", "/api/v1/tasks", DOCUMENTED_BODY).json["id"]
    first = reasons(swarm, task)
    assert "needs the model llama-2-7b, it serves stable-diffusion-xl" in first["worker-1"]
    assert "needs the model llama-2-7b, it serves none" in first["worker-2"]
    command = swarm.mycel("explain", task)
    assert command.code == 0
    assert all(reason in command.out for reason in first.values())
    fitting = '[worker]\nmemory = "32GB"\n[[worker.gpus]]\nmodel = "A100"\nmemory = "40GB"\n'
    fitting += '[worker.models.llama-2-7b]\nendpoint = "http://127.0.0.1:9/v1"\n'
    (swarm.home / "mycel.toml").write_text(fitting)
    swarm.up(workers=3)
    eventually(
        lambda: any(one.worker for one in swarm.client.task(task).attempts),
        "the task went to the worker that fits",
    )
    assert swarm.client.submit_task(command=["echo", "on"], wait=30).value == "on\n"


def test_a_task_runs_when_a_fitting_worker_joins(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm('[worker]\nmemory = "1GB"\n')
    swarm.up(workers=1)
    (swarm.home / "mycel.toml").write_text('[worker]\nmemory = "20GB"\n')
    swarm.up(workers=2)
    needs = {"min_memory": 16_000_000_000, "gpus": {"model": "A100"}}
    task = swarm.client.submit_task(command=["echo", "ran"], requirements=needs).id
    first = reasons(swarm, task)
    assert "needs 16 GB of memory, it has 1 GB" in first["worker-1"]
    assert first["worker-2"] == "needs a GPU, it has none"
    fitting = '[worker]\nmemory = "32GB"\n[[worker.gpus]]\nmodel = "NVIDIA A100-SXM4-40GB"\n'
    fitting += 'memory = "40GB"\nvendor = "nvidia"\n'
    (swarm.home / "mycel.toml").write_text(fitting)
    swarm.up(workers=3)
    done = swarm.client.wait(task, 30)
    assert done.value == "ran\n"
    assert swarm.name_of(done.worker) == "worker-3"
