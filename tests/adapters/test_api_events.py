"""The stream of events: what it carries, how it is resumed, and who is cut off."""

from __future__ import annotations

import http.client
import json
import socket
from typing import Any

import pytest

from mycel.api import event_listeners
from mycel.client import Client
from mycel.core.effects import Happening
from mycel.core.identifiers import JobId

from .api_access import TOKEN
from .api_calls import AUTHORIZED, JOB, call, submit
from .api_scheduler import WORKER
from .api_server import Served


class Listening:
    """One open stream; `next` blocks until there is an event."""

    def __init__(self, server: Served, query: str = "", last: str | None = None) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        headers = AUTHORIZED | ({} if last is None else {"Last-Event-ID": last})
        self._connection.request("GET", f"/api/v1/events{query}", headers=headers)
        self._response = self._connection.getresponse()
        assert self._response.status == 200, self._response.read()
        assert self._response.headers["Content-Type"] == "text/event-stream"

    def next(self) -> tuple[str | None, str, Any]:
        fields: dict[str, str] = {}
        while True:
            raw = self._response.readline()
            assert raw, "the stream is over"
            line = raw.decode().rstrip("\n")
            if line:
                name, _, value = line.partition(": ")
                fields[name] = value
            elif "data" in fields:
                return fields.get("id"), fields["event"], json.loads(fields["data"])
            else:
                fields = {}

    def close(self) -> None:
        self._connection.close()


def kinds(server: Served, query: str) -> list[str]:
    body = call(server, "GET", f"/api/v1/events{query}").body.decode()
    return [line[7:] for line in body.split("\n") if line.startswith("event: ")]


def test_ends_carry_their_commit_and_are_taken_up_behind_it(server: Served) -> None:
    first = submit(server, {"command": ["true"]})
    second = submit(server, {"command": ["false"]})
    stream = Listening(server, "?after=0")
    events = [stream.next() for _ in range(4)]
    stream.close()
    assert [(identifier, kind) for identifier, kind, _ in events] == [
        (None, "task.succeeded"),
        ("1", "job.succeeded"),
        (None, "task.failed"),
        ("2", "job.failed"),
    ]
    assert events[0][2]["task_id"] == first["id"]
    assert (events[2][2]["exit_code"], events[2][2]["attempt"]) == (1, 1)
    again = Listening(server, last="1")
    assert again.next()[2]["task_id"] == second["id"]
    again.close()


def test_a_task_of_many_carries_its_own_commit(server: Served) -> None:
    body = {"task": {"python": "m:f"}, "arguments": [[1], [2]], "id": JOB}
    assert call(server, "POST", "/api/v1/jobs", body).status == 201
    stream = Listening(server, "?after=0")
    found = [stream.next()[:2] for _ in range(3)]
    stream.close()
    assert found == [("1", "task.succeeded"), (None, "task.succeeded"), ("2", "job.succeeded")]


def test_what_happens_is_told_to_those_who_listen(server: Served) -> None:
    task = submit(server, {"python": "waits:here"})
    job = JobId(task["job_id"])
    stream = Listening(server)
    delayed = Happening(
        "task.delayed", 1.5, job, 0, WORKER, "owner", {"attempt": 1, "next_try_seconds": 2.0}
    )
    server.call(lambda: server.backend.tell([delayed]))
    identifier, kind, data = stream.next()
    assert (identifier, kind) == (None, "task.delayed")
    assert data["task_id"] == task["id"]
    assert (data["attempt"], data["next_try_seconds"], data["worker"]) == (1, 2.0, WORKER)
    server.call(lambda: server.backend.end(server.backend.jobs_by_id[job], 0))
    assert stream.next()[1] == "task.succeeded"
    stream.close()


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("?kinds=job.*", ["job.succeeded", "job.failed"]),
        ("?kinds=task.failed,worker.*", ["task.failed"]),
        ("", ["task.succeeded", "job.succeeded", "task.failed", "job.failed"]),
    ],
)
def test_kinds_are_chosen(server: Served, query: str, expected: list[str]) -> None:
    submit(server, {"command": ["true"]})
    submit(server, {"command": ["false"]})
    joined = query + ("&" if query else "?") + "follow=false"
    assert kinds(server, joined) == expected


def test_one_job_or_one_task_alone(server: Served) -> None:
    task = submit(server, {"command": ["true"]})
    submit(server, {"command": ["false"]})
    assert kinds(server, f"?job={task['job_id']}&follow=no") == ["task.succeeded", "job.succeeded"]
    assert kinds(server, f"?task={task['id']}&follow=no") == ["task.succeeded"]


@pytest.mark.parametrize("last", ["1", "99"])
def test_a_gap_is_told(server: Served, last: str) -> None:
    for _ in range(3):
        submit(server, {"command": ["true"]})
    server.call(lambda: setattr(server.backend.store, "sequences", lambda: (2, 3)))
    stream = Listening(server, last=last)
    identifier, kind, _ = stream.next()
    stream.close()
    assert (kind, identifier) == ("reset", "2" if last == "1" else "3")


@pytest.mark.parametrize(
    ("query", "last", "status"),
    [
        ("?kinds=task.exploded", None, 422),
        ("?task=nonsense", None, 404),
        (f"?job={JOB}", None, 404),
        ("?until=5", None, 422),
        ("", "abc", 422),
        ("?after=-1", None, 422),
    ],
)
def test_bad_requests_are_refused(
    server: Served, query: str, last: str | None, status: int
) -> None:
    headers = {} if last is None else {"Last-Event-ID": last}
    assert call(server, "GET", f"/api/v1/events{query}", None, headers).status == status


def test_so_many_may_listen_and_no_more(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_listeners, "LISTENERS_MAX", 1)
    stream = Listening(server)
    refused = call(server, "GET", "/api/v1/events")
    stream.close()
    assert refused.status == 429
    assert "Retry-After" in refused.headers


def test_who_falls_behind_is_cut_off_and_goes_on_later(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_listeners, "HAPPENINGS_MAX", 10)
    stream = Listening(server)
    flood = [Happening("worker.heard", 1.0, worker=WORKER)] * 11
    server.call(lambda: server.backend.tell(flood))
    with pytest.raises(http.client.IncompleteRead):
        stream._response.read()
    stream.close()


def test_the_client_yields_events_and_takes_them_up_where_they_broke(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_listeners, "HAPPENINGS_MAX", 10)
    with Client(server.api, TOKEN) as client:
        submit(server, {"command": ["true"]})
        assert [event.kind for event in client.events(follow=False)] == [
            "task.succeeded",
            "job.succeeded",
        ]
        events = client.events(after=0)
        assert [next(events).kind for _ in range(2)] == ["task.succeeded", "job.succeeded"]
        flood = [Happening("worker.heard", 1.0, worker=WORKER)] * 11
        server.call(lambda: server.backend.tell(flood))
        submit(server, {"command": ["false"]})
        following = next(events)
        assert (following.kind, following.data["exit_code"]) == ("task.failed", 1)


def test_who_hangs_up_is_not_waited_for(server: Served) -> None:
    task = submit(server, {"model": "m", "input": "x"})
    for path in (
        f"/api/v1/tasks/{task['id']}?wait=60",
        f"/api/v1/tasks/{task['id']}/result?wait=60",
        f"/api/v1/jobs/{task['job_id']}?wait=60",
    ):
        before = server.backend.forgotten_count
        server.backend.waiting.clear()
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            request = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
            client.sendall(request.encode())
            assert server.backend.waiting.wait(20)
        assert server.backend.forgets.acquire(timeout=20)
        assert server.backend.forgotten_count == before + 1
