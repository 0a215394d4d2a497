"""What the REST API refuses, with which status, and what it says."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest

from mycel.api import Limits
from mycel.api.http.problems import Problem
from mycel.api.submission.bodies import RequirementsBody, TaskBody
from mycel.api.submission.conversion import specification
from mycel.core.errors import TooMany
from mycel.core.identifiers import LeaseId, ShapeNumber
from mycel.core.messages import Introduce
from mycel.core.model.jobs import Group
from mycel.swarm import message_codec
from mycel.swarm.frame_limits import CONTROL_BYTES_MAX

from .api_calls import AUTHORIZED, JOB, LIMIT, Answer, call
from .api_server import Served, served


@pytest.fixture(scope="module")
def shared() -> Iterator[Served]:
    with served(Limits(request_bytes=LIMIT)) as server:
        yield server


CALL = {"name": "m:f", "python_version": "3.11", "function": "QUJD"}
TASK_PROBLEMS: list[tuple[Any, str]] = [
    ([], "$"),
    ({}, "$"),
    ({"command": "echo hello"}, "$.command"),
    ({"command": []}, "$.command"),
    ({"command": ["a\0b"]}, "$.command"),
    ({"command": [1]}, "$.command[0]"),
    ({"command": ["true"], "python": "a:b"}, "$"),
    ({"image": "debian"}, "$.command"),
    ({"python": "no_colon"}, "$.python"),
    ({"python": "a:b", "arguments": 3}, "$.arguments"),
    ({"python": "a:b", "input": "x"}, "$"),
    ({"model": "m"}, "$.input"),
    ({"model": "m", "input": 3}, "$.input"),
    ({"model": "m", "input": {}}, "$.input"),
    ({"model": "m", "input": "x", "arguments": []}, "$.arguments"),
    ({"driver": "python", "command": ["true"]}, "$.driver"),
    ({"driver": "shout", "model": "m"}, "$.model"),
    ({"driver": "shout", "command": "hello"}, "$.command"),
    ({"command": ["true"], "environment": "-r other.txt"}, "$.environment"),
    ({"command": ["true"], "environment": [1]}, "$.environment[0]"),
    ({"model": "m", "input": "x", "environment": ["numpy"]}, "$.environment"),
    ({"image": "--privileged", "command": ["true"]}, "$.image"),
    ({"image": "a", "command": ["true"], "mounts": ["here:there"]}, "$.mounts[0]"),
    ({"command": ["true"], "mounts": ["/a:/b"]}, "$.mounts"),
    ({"command": ["true"], "colour": "red"}, "$"),
    ({"command": ["true"], "env": {"A=B": "c"}}, "$.env"),
    ({"command": ["true"], "timeout": -1}, "$.timeout"),
    ({"command": ["true"], "timeout": "soon"}, "$.timeout"),
    ({"command": ["true"], "retry": {"max_attempts": 0}}, "$.retry.max_attempts"),
    ({"command": ["true"], "priority": 0.5}, "$.priority"),
    ({"command": ["true"], "requirements": {"cpu_cores": -1}}, "$.requirements.cpu_cores"),
    ({"command": ["true"], "requirements": {"min_memory": -1}}, "$.requirements.min_memory"),
    ({"command": ["true"], "requirements": {"min_memory": "lots"}}, "$.requirements.min_memory"),
    (
        {"command": ["true"], "requirements": {"software": {"cuda": ">=12 <13"}}},
        "$.requirements.software",
    ),
    ({"command": ["true"], "requirements": {"memory": 1}}, "$.requirements"),
    ({"command": ["true"], "requirements": {"gpus": {"count": 1.5}}}, "$.requirements.gpus.count"),
    ({"command": ["true"], "sandbox": "off"}, "$.sandbox"),
    ({"model": "m", "input": "x", "network": True}, "$"),
    ({"call": CALL, "python": "m:f"}, "$"),
    ({"call": CALL, "driver": "shout"}, "$.call"),
    ({"call": {**CALL, "function": ""}}, "$.call"),
    ({"call": {**CALL, "function": "not base64!"}}, "$.call.function"),
    ({"call": {**CALL, "function": "QUJD" * 11_000}}, "$.call.function"),
    ({"call": {**CALL, "code": "blake3:12"}}, "$.call.code"),
    ({"call": {**CALL, "name": "a\nb"}}, "$.call.name"),
    ({"call": {**CALL, "python_version": "2.7"}}, "$.call.python_version"),
    ({"call": {**CALL, "path": "/etc/passwd"}}, "$.call"),
    ({"command": ["true"], "id": "x"}, "$.id"),
    ({"command": ["true"], "requirements": {"custom": {"a": -1}}}, "$.requirements.custom[...]"),
]


@pytest.mark.parametrize(("body", "path"), TASK_PROBLEMS)
def test_a_wrong_task_is_refused_with_the_place(server: Served, body: Any, path: str) -> None:
    answer = call(server, "POST", "/api/v1/tasks", body)
    assert answer.status == 422, answer.body
    problem = answer.json
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert (problem["status"], problem["title"]) == (422, "Unprocessable")
    assert problem["detail"]
    assert problem["path"] == path
    assert not server.backend.jobs_by_id


@pytest.mark.parametrize(
    "body",
    [
        {"task": {"python": "a:b"}},
        {"task": {"python": "a:b"}, "count": 0},
        {"task": {"python": "a:b"}, "count": -1},
        {"task": {"python": "a:b"}, "count": 1_000_001},
        {"task": {"python": "a:b"}, "arguments": []},
        {"task": {"python": "a:b"}, "arguments": [1]},
        {"task": {"python": "a:b"}, "arguments": {}},
        {"task": {"python": "a:b"}, "arguments": [[]], "count": 1},
        {"task": {"python": "a:b", "arguments": [1]}, "arguments": [[]]},
        {"task": {"model": "m", "input": "x"}, "arguments": [[]]},
        {"task": {"python": "a:b"}, "count": 1, "id": JOB.upper()},
        {"task": {"python": "a:b"}, "count": 1, "id": "x"},
        {"count": 1},
    ],
)
def test_a_wrong_job_is_refused(server: Served, body: Any) -> None:
    assert call(server, "POST", "/api/v1/jobs", body).status == 422
    assert not server.backend.jobs_by_id


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (TaskBody(python="m:f", env={"A": "x" * 200_000}), "$.env"),
        (
            TaskBody(
                command=["true"],
                requirements=RequirementsBody(labels={f"{n:0900}": "" for n in range(200)}),
            ),
            "$.requirements.labels",
        ),
        (TaskBody(python="m:f", env={f"{n:x}": "" for n in range(20_000)}), "$.env"),
    ],
)
def test_what_workers_are_asked_for_has_a_limit(body: TaskBody, path: str) -> None:
    with pytest.raises(Problem, match="may take 128 KiB") as caught:
        specification(body)
    assert caught.value.path == path


def test_the_most_that_workers_are_asked_for_fits_into_a_message() -> None:
    def most(value: Any) -> dict[str, Any]:
        each = 4 + len(str(value)) + 12
        return {f"{n:04x}": value for n in range((128 << 10) // each)}

    asked = RequirementsBody(labels=most(""), software=most("1"), custom=most(1.0))
    found = specification(TaskBody(python="m:f", env=most(""), requirements=asked))
    shape = Group.of(found, "owner").shape
    introduce = Introduce(LeaseId(1), ShapeNumber(1), shape, bytes(10_000))
    frame = message_codec.encode(introduce)
    assert len(frame) < CONTROL_BYTES_MAX


TASK = {"command": ["true"]}
A, B = {"name": "a", "task": TASK}, {"name": "b", "task": TASK}
HUNDRED = list(range(100))
DERIVATION_PROBLEMS: list[tuple[dict[str, Any], str, str]] = [
    ({"stages": [{**A, "needs": ["b"]}, {**B, "needs": ["a"]}]}, "a → b → a", "stages[0].needs"),
    ({"stages": [{**A, "needs": ["a"]}]}, "a → a", "stages[0].needs"),
    (
        {"stages": [A, {**B, "needs": ["c"]}]},
        "no such stage; there are 'a', 'b'",
        "stages[1].needs",
    ),
    ({"stages": [A, A]}, "two stages 'a'", "stages[1].name"),
    ({"stages": [{**A, "name": "1"}]}, "name begins with", "stages[0].name"),
    ({"stages": [{**A, "on_failure": "panic"}]}, "Invalid enum value", "stages[0].on_failure"),
    ({"stages": [A], "task": TASK}, "tasks in them", ""),
    ({"stages": [A] * 101}, "at most 100", "stages"),
    (
        {
            "stages": [
                {"name": "a", "task": TASK, "count": 2},
                {"name": "b", "needs": ["a"], "task": {"command": ["echo", "${needs.a[2]}"]}},
            ]
        },
        "stage 'a' has 2 tasks, from 0 on",
        "stages[1]",
    ),
    (
        {"stages": [A, {**B, "task": {"command": ["echo", "${needs.a}"]}}]},
        "does not need 'a'",
        "stages[1]",
    ),
    (
        {
            "task": {"python": "m:f", "arguments": ["${a}" * 400]},
            "matrix": {"a": ["", "x" * 50_000]},
        },
        "more than 8 million characters",
        "",
    ),
    (
        {"task": {"python": "m:f", "arguments": ["${input}" * 400]}, "inputs": ["x" * 50_000]},
        "more than 8 million characters",
        "",
    ),
    ({"task": TASK, "matrix": {}}, "needs a parameter", "matrix"),
    ({"task": TASK, "matrix": {"a": 3}}, "a list of values", "matrix.a"),
    ({"task": TASK, "matrix": {"a": []}}, "a list of values", "matrix.a"),
    ({"task": TASK, "matrix": {"needs": [1]}}, "cannot be the name", "matrix.needs"),
    (
        {"task": TASK, "matrix": dict.fromkeys("abcd", HUNDRED)},
        "100 × 100 × 100 × 100 = 100,000,000 combinations; a matrix has at most 1,000,000",
        "matrix",
    ),
    (
        {"task": TASK, "matrix": {**dict.fromkeys("abc", HUNDRED), "exclude": [{"a": 1}]}},
        "at most 10,000",
        "matrix",
    ),
    ({"task": TASK, "matrix": {"a": [1], "exclude": [{"a": 1}]}}, "at least one task", "matrix"),
    ({"task": TASK, "matrix": {"a": [1]}, "count": 2}, "count and matrix", ""),
    ({"task": TASK, "inputs": []}, "at least one task", "inputs"),
    (
        {"task": {**TASK, "arguments": ["x"]}, "matrix": {"a": [1]}},
        "as ${name}, not in arguments",
        "task.arguments",
    ),
    (
        {"task": {"python": "a:b", "env": {"X": "${a}"}}, "matrix": {"a": [1]}},
        "share an interpreter",
        "task.env",
    ),
    ({"task": TASK, "count": 2, "overrides": [{}]}, "either tasks or where", "overrides[0]"),
    ({"task": TASK, "count": 2, "overrides": [{"tasks": [2]}]}, "names task 2", ""),
    (
        {"task": TASK, "count": 2, "overrides": [{"tasks": "1-0"}]},
        "backwards",
        "overrides[0].tasks",
    ),
    ({"task": TASK, "count": 2, "overrides": [{"tasks": "x"}]}, "0-9,15", "overrides[0].tasks"),
    (
        {"task": TASK, "matrix": {"a": [1]}, "overrides": [{"where": {"b": 1}}]},
        "no parameter 'b'",
        "overrides[0].where",
    ),
    (
        {"task": TASK, "matrix": {"a": [1]}, "overrides": [{"where": {"a": 2}}]},
        "no task has",
        "overrides[0].where",
    ),
    (
        {"task": {**TASK, "requirements": {"cpu_cores": 0}}, "count": 1},
        "> 0",
        "task.requirements.cpu_cores",
    ),
    (
        {"task": {**TASK, "requirements": {"min_memory": "0GB"}}, "count": 1},
        "leave it out",
        "task.requirements.min_memory",
    ),
]


@pytest.mark.parametrize(("body", "said", "path"), DERIVATION_PROBLEMS)
def test_what_cannot_be_derived_is_refused_with_the_place(
    server: Served, body: dict[str, Any], said: str, path: str
) -> None:
    answer = call(server, "POST", "/api/v1/jobs", body)
    assert answer.status == 422, answer.body
    assert said in answer.json["detail"]
    assert answer.json["path"] == (f"$.{path}" if path else "$")
    assert not server.backend.jobs_by_id


@pytest.mark.parametrize("body", [b"", b"{", b"nonsense", b'{"model": "\xff"}', b'{"name": "a"} x'])
def test_malformed_json_is_400(server: Served, body: bytes) -> None:
    answer = call(server, "POST", "/api/v1/tasks", body)
    assert (answer.status, answer.json["title"]) == (400, "Malformed request")


@pytest.mark.parametrize("depth", [101, 600, 20_000])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/v1/tasks", b'{"python": "a:b", "arguments": %b}'),
        ("/api/v1/tasks?wait=1", b'{"python": "a:b", "arguments": %b}'),
        ("/api/v1/tasks", b'{"python": "a:b", "arguments": [{"$file": %b}]}'),
        ("/api/v1/tasks", b'{"model": "m", "input": {"json": %b}}'),
        ("/api/v1/jobs", b'{"task": {"python": "a:b"}, "arguments": [%b]}'),
        ("/api/v1/jobs", b'{"task": {"python": "a:b"}, "matrix": {"x": [%b]}}'),
        ("/v1/chat/completions", b'{"model": "m", "messages": %b}'),
    ],
)
def test_what_is_nested_too_deeply_is_400(
    server: Served, path: str, body: bytes, depth: int
) -> None:
    deep = b"[" * depth + b'"${x}"' + b"]" * depth
    assert call(server, "POST", path, body % deep).status == 400


def test_raw_parts_are_checked_for_their_encoding(server: Served) -> None:
    body = b'{"python": "a:b", "arguments": ["\xff"]}'
    assert call(server, "POST", "/api/v1/tasks", body).status == 400


def test_a_body_over_the_limit_is_413(server: Served) -> None:
    large = json.dumps({"python": "a:b", "arguments": ["x" * LIMIT]}).encode()
    declared = call(server, "POST", "/api/v1/tasks", large)
    assert (declared.status, declared.json["status"]) == (413, 413)

    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    pieces = (large[at : at + 10_000] for at in range(0, len(large), 10_000))
    connection.request("POST", "/api/v1/jobs", pieces, AUTHORIZED, encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()
    assert not server.backend.jobs_by_id


def test_another_media_type_is_415(server: Served) -> None:
    headers = {"Content-Type": "text/xml"}
    assert call(server, "POST", "/api/v1/tasks", b"{}", headers).status == 415


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/api/v1/nothing",
        "/api/v1/tasks/nonsense",
        f"/api/v1/tasks/{JOB}.0",
        f"/api/v1/tasks/{JOB}.01",
        f"/api/v1/tasks/{JOB}.0/explain",
        f"/api/v1/tasks/{JOB}.0/logs",
        f"/api/v1/jobs/{JOB}",
        f"/api/v1/jobs/{JOB}/results",
        "/api/v1/jobs/nonsense/results",
    ],
)
def test_what_is_not_there_is_404(server: Served, path: str) -> None:
    answer = call(server, "GET", path)
    assert (answer.status, answer.json["status"]) == (404, 404)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/api/v1/tasks", "POST, GET"),
        ("POST", f"/api/v1/jobs/{JOB}/results", "GET"),
        ("DELETE", "/healthz", "GET"),
        ("PATCH", f"/api/v1/tasks/{JOB}.0", "GET, DELETE"),
    ],
)
def test_a_wrong_method_is_405(server: Served, method: str, path: str, allowed: str) -> None:
    answer = call(server, method, path)
    assert (answer.status, answer.headers["Allow"]) == (405, allowed)


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/tasks?state=odd",
        "/api/v1/tasks?stat=queued",
        "/api/v1/tasks?limit=0",
        "/api/v1/tasks?limit=x",
        "/api/v1/tasks?cursor=x",
        f"/api/v1/tasks/{JOB}.0?wait=61",
        f"/api/v1/tasks/{JOB}.0?wait=long",
        f"/api/v1/jobs/{JOB}/results?after=-1",
        f"/api/v1/jobs/{JOB}/results?follow=maybe",
        f"/api/v1/tasks/{JOB}.0/logs?stream=stdin",
    ],
)
def test_wrong_query_parameters_are_422(server: Served, path: str) -> None:
    assert call(server, "GET", path).status == 422


@pytest.mark.parametrize("token", [None, "Bearer wrong", "Basic secret", "secret", ""])
@pytest.mark.parametrize("path", ["/api/v1/tasks", "/api/v1/workers", "/metrics", "/nowhere"])
def test_nothing_without_a_token(server: Served, token: str | None, path: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.request("GET", path, headers={} if token is None else {"Authorization": token})
    answer = Answer(connection.getresponse())
    connection.close()
    assert (answer.status, answer.json["status"]) == (401, 401)
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


def test_probes_need_no_token(server: Served) -> None:
    def status(path: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        connection.request("GET", path)
        code = connection.getresponse().status
        connection.close()
        return code

    assert (status("/healthz"), status("/readyz")) == (200, 200)
    server.backend.is_stalled = lambda: True
    assert (status("/healthz"), status("/readyz")) == (200, 503)


def test_a_full_queue_says_when_to_try_again(server: Served) -> None:
    server.backend.refusal = TooMany("the queue is full", 7)
    answer = call(server, "POST", "/api/v1/tasks", {"command": ["true"]})
    assert (answer.status, answer.headers["Retry-After"]) == (429, "7")


def test_a_stopping_scheduler_says_so(server: Served) -> None:
    server.call(server.backend.stop)
    for path in (f"/api/v1/tasks/{JOB}.0", "/api/v1/workers"):
        answer = call(server, "GET", path)
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
