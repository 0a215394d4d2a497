"""The short way of single tasks: nobody can tell it from the long one, except by its speed."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from mycel.core.errors import TooMany

from .api_access import TOKEN
from .api_calls import call
from .api_scheduler import ApiJob, ApiScheduler
from .api_server import Served

BODY = {"python": "waits:here", "arguments": [1], "labels": {"team": "a"}}
PATIENCE_SECONDS = 20.0


def request(body: Any = BODY, *headers: str, query: str = "?wait=5") -> bytes:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [
        f"POST /api/v1/tasks{query} HTTP/1.1",
        "Host: here",
        f"Authorization: Bearer {TOKEN}",
        f"Content-Length: {len(raw)}",
        *headers,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + raw


class Caller:
    """One connection, byte by byte."""

    def __init__(self, server: Served) -> None:
        self.socket = socket.create_connection(("127.0.0.1", server.port), PATIENCE_SECONDS)
        self._file = self.socket.makefile("rb")

    def answer(self) -> tuple[int, dict[str, str], Any]:
        status = int(self._file.readline().split()[1])
        headers = {}
        while line := self._file.readline().decode().strip():
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        return status, headers, json.loads(self._file.read(int(headers["content-length"])))

    @property
    def is_closed(self) -> bool:
        return not self._file.read(1)

    def close(self) -> None:
        self._file.close()
        self.socket.close()


@pytest.fixture
def caller(server: Served) -> Iterator[Caller]:
    made = Caller(server)
    yield made
    made.close()


def end_first(server: Served, value: bytes = b"42", *, lost_before: bool = False) -> None:
    """Ends the one task, as soon as somebody waits for it."""
    backend = server.backend
    assert backend.waiting.wait(PATIENCE_SECONDS)

    def end() -> None:
        job = only_job(backend)
        backend.waiting.clear()
        if lost_before:
            backend.lose_worker()
        backend.end(job, 0, value=value)

    server.call(end)


def only_job(backend: ApiScheduler) -> ApiJob:
    (job,) = backend.jobs_by_id.values()
    return job


def test_the_answer_is_the_one_of_the_long_way(server: Served, caller: Caller) -> None:
    caller.socket.sendall(request())
    end_first(server)
    status, headers, task = caller.answer()
    assert (status, server.backend.put_count) == (201, 1)
    assert headers["location"] == f"/api/v1/tasks/{task['id']}"
    read = call(server, "GET", headers["location"]).json
    assert task == read
    assert task["result"]["json"] == 42


def test_a_request_in_pieces_is_the_applications(server: Served, caller: Caller) -> None:
    raw = request()
    for piece in (raw[:10], raw[10:-5], raw[-5:]):
        caller.socket.sendall(piece)
        server.call(lambda: None)  # the server has had a turn
    end_first(server)
    assert caller.answer()[0] == 201


def test_requests_behind_each_other_are_answered_in_order(server: Served, caller: Caller) -> None:
    caller.socket.sendall(request(BODY | {"name": "first"}) + request(BODY | {"name": "second"}))
    end_first(server)
    assert caller.answer()[2]["name"] == "first"

    def end_second() -> None:
        (job,) = (j for j in server.backend.jobs_by_id.values() if j.submit.name == "second")
        server.backend.end(job, 0, value=b"2")

    assert server.backend.waiting.wait(PATIENCE_SECONDS)
    server.call(end_second)
    assert caller.answer()[2]["name"] == "second"


def test_who_hangs_up_is_forgotten(server: Served) -> None:
    caller = Caller(server)
    caller.socket.sendall(request())
    assert server.backend.waiting.wait(PATIENCE_SECONDS)
    caller.close()
    while not server.call(lambda: server.backend.forgotten_count):
        pass
    assert server.backend.put_count == 1


def test_a_wait_that_runs_out_is_answered_by_the_application(
    server: Served, caller: Caller
) -> None:
    caller.socket.sendall(request(query="?wait=0.05"))
    status, _, task = caller.answer()
    assert (status, task["state"]) == (201, "running")
    assert server.call(lambda: server.backend.forgotten_count) == 1


def test_earlier_attempts_are_read_from_the_store(server: Served, caller: Caller) -> None:
    caller.socket.sendall(request())
    end_first(server, lost_before=True)
    task = caller.answer()[2]
    assert [attempt["state"] for attempt in task["attempts"]] == ["lost", "succeeded"]


def test_a_refusal_leaves_the_connection_usable(server: Served, caller: Caller) -> None:
    def refuse() -> None:
        server.backend.refusal = TooMany("the queue is full", retry_after_seconds=1)

    server.call(refuse)
    caller.socket.sendall(request())
    assert caller.answer()[0] == 429
    server.call(server.backend.reset)
    caller.socket.sendall(request())
    end_first(server)
    assert caller.answer()[0] == 201


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (request(b"{"), 400),
        (request({"python": "nonsense"}), 422),
        (request(query="?wait=soon"), 422),
        (request().replace(TOKEN.encode(), b"wrong"), 401),
        (request(BODY, "Content-Type: text/plain"), 415),
    ],
    ids=["malformed", "unprocessable", "bad wait", "wrong token", "media type"],
)
def test_what_is_wrong_is_refused_by_the_application(
    server: Served, caller: Caller, raw: bytes, status: int
) -> None:
    caller.socket.sendall(raw)
    found, headers, problem = caller.answer()
    assert (found, headers["content-type"]) == (status, "application/problem+json")
    assert problem["status"] == status
    assert not server.backend.jobs_by_id


def test_a_key_goes_the_long_way(server: Served, caller: Caller) -> None:
    caller.socket.sendall(request(BODY, "Idempotency-Key: one", query="?wait=0.01"))
    assert caller.answer()[0] == 201
    assert server.backend.put_count == 0


def test_a_client_that_wants_the_connection_closed_gets_it(server: Served, caller: Caller) -> None:
    caller.socket.sendall(request(BODY, "Connection: close"))
    end_first(server)
    status, headers, _ = caller.answer()
    assert (status, headers["connection"]) == (201, "close")
    assert caller.is_closed
