"""Who may do what over the API, and whose jobs they see."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from mycel.access.tokens import Statement, bind, from_text, inspect, narrow, to_text

from .api_access import OWNER_PUBLIC, REVOKED, token_of
from .api_calls import Answer, call
from .api_server import Served, served

TASK = {"command": ["true"]}


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with served() as made:
        yield made


def user(name: str, *actions: str, **limits: Any) -> str:
    return token_of(Statement(user=name, actions=actions or ("submit", "read", "cancel"), **limits))


def as_user(token: str, server: Served, method: str, path: str, body: Any = None) -> Answer:
    return call(server, method, path, body, {"Authorization": f"Bearer {token}"})


def test_a_user_sees_its_own_jobs_and_the_owner_all(server: Served) -> None:
    alice, bob = user("alice"), user("bob")
    task = as_user(alice, server, "POST", "/api/v1/tasks", TASK)
    assert task.status == 201
    job = task.json["job_id"]
    assert as_user(alice, server, "GET", f"/api/v1/jobs/{job}").json["user"] == "alice"
    for method, path in (
        ("GET", f"/api/v1/jobs/{job}"),
        ("GET", f"/api/v1/tasks/{job}.0"),
        ("GET", f"/api/v1/tasks/{job}.0/logs"),
        ("GET", f"/api/v1/jobs/{job}/results"),
        ("DELETE", f"/api/v1/jobs/{job}"),
        ("POST", f"/api/v1/jobs/{job}/close"),
        ("GET", f"/api/v1/tasks?job={job}"),
        ("GET", f"/api/v1/events?job={job}"),
    ):
        assert as_user(bob, server, method, path).status == 404, path
    assert call(server, "GET", f"/api/v1/jobs/{job}").status == 200

    def listed(token: str | None, path: str) -> set[str]:
        answer = call(server, "GET", path) if token is None else as_user(token, server, "GET", path)
        return {item.get("job_id", item["id"]) for item in answer.json["items"]}

    for path in ("/api/v1/jobs", "/api/v1/tasks", f"/api/v1/jobs?prefix={job[:12]}"):
        assert job in listed(alice, path), path
        assert job in listed(None, path), path
        assert job not in listed(bob, path), path


def test_a_part_of_a_user_is_the_users_own(server: Served) -> None:
    alice = user("anna")
    part = to_text(narrow(OWNER_PUBLIC, from_text(alice), Statement(user="anna/ci")))
    job = as_user(part, server, "POST", "/api/v1/tasks", TASK).json["job_id"]
    assert as_user(alice, server, "GET", f"/api/v1/jobs/{job}").json["user"] == "anna/ci"
    own = as_user(alice, server, "POST", "/api/v1/tasks", TASK).json["job_id"]
    assert as_user(part, server, "GET", f"/api/v1/jobs/{own}").status == 404


def test_actions_are_held(server: Served) -> None:
    reader, writer = user("r", "read"), user("w", "submit")
    assert as_user(reader, server, "GET", "/api/v1/workers").status == 200
    refused = as_user(reader, server, "POST", "/api/v1/tasks", TASK)
    assert (refused.status, refused.json["detail"]) == (403, "this token does not allow to submit")
    assert as_user(writer, server, "GET", "/api/v1/jobs").status == 403
    assert as_user(writer, server, "DELETE", "/api/v1/tasks/x").status == 403
    everything = user("e")
    assert as_user(everything, server, "POST", "/api/v1/revocations", {"records": []}).status == 403
    assert as_user(everything, server, "GET", "/api/v1/events").status == 403


def test_limits_are_held_on_every_way_in(server: Served) -> None:
    low = user("low", priority_max=3, caps={"cpu_cores": 2.0})
    for path, wrap in (
        ("/api/v1/tasks", lambda task: task),
        ("/api/v1/tasks?wait=5", lambda task: task),
        ("/api/v1/jobs", lambda task: {"task": task, "count": 2}),
        ("/api/v1/jobs", lambda task: {"stages": [{"name": "a", "task": task, "count": 2}]}),
    ):
        allowed = as_user(low, server, "POST", path, wrap({**TASK, "priority": 3}))
        assert allowed.status == 201, allowed.body
        refused = as_user(low, server, "POST", path, wrap({**TASK, "priority": 4}))
        assert (refused.status, "priorities up to 3" in refused.json["detail"]) == (403, True)
        large = {**TASK, "requirements": {"cpu_cores": 3}}
        assert as_user(low, server, "POST", path, wrap(large)).status == 403


def test_workers_will_be_shown_the_users_token(server: Served) -> None:
    token = user("shown")
    as_user(token, server, "POST", "/api/v1/tasks", TASK)
    kept, rights = server.call(lambda: server.backend.shown_credentials[-1])
    assert (kept, rights.user) == (from_text(token), "shown")


def test_ids_and_keys_belong_to_a_user(server: Served) -> None:
    one, two = user("one"), user("two")
    key = {"Idempotency-Key": "same"}
    first = call(
        server, "POST", "/api/v1/tasks", TASK, {"Authorization": f"Bearer {one}"} | key
    ).json["id"]
    second = call(
        server, "POST", "/api/v1/tasks", TASK, {"Authorization": f"Bearer {two}"} | key
    ).json["id"]
    assert first != second


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (token_of(Statement(actions=("read",))), "names no user"),
        (user("late", expires_at=time.time() - 100), "expired"),
        (to_text(bind(OWNER_PUBLIC, from_text(user("x")), "12D3KooWx")), "bound to a peer"),
        ("mycel_AAAA", "no token"),
        ("secret", "tokens begin with"),
    ],
)
def test_bad_tokens_get_a_reason(server: Served, token: str, reason: str) -> None:
    answer = as_user(token, server, "GET", "/api/v1/jobs")
    assert answer.status == 401
    assert reason in answer.json["detail"]
    assert token not in answer.json["detail"]


def test_a_revocation_holds_for_a_token_that_was_good(server: Served) -> None:
    token = user("gone")
    assert as_user(token, server, "GET", "/api/v1/jobs").status == 200
    [revoked] = inspect(OWNER_PUBLIC, from_text(token)).revocation_ids
    REVOKED.add(revoked)
    answer = as_user(token, server, "GET", "/api/v1/jobs")
    assert (answer.status, answer.json["detail"]) == (401, "this token was revoked")
    assert as_user(user("gone"), server, "GET", "/api/v1/jobs").status == 200
