"""Commands about jobs that were submitted before."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mycel.client import Client

from .api_access import TOKEN
from .api_server import Served
from .test_login import Terminal


@pytest.fixture
def client(shared: Served, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    shared.call(shared.backend.reset)
    monkeypatch.setenv("MYCEL_API", shared.api)
    monkeypatch.setenv("MYCEL_TOKEN", TOKEN)
    with Client(shared.api, TOKEN) as made:
        yield made


@pytest.fixture
def mycel(capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(capsys)


def submitted(client: Client, function: str = "json:dumps", **fields: Any) -> str:
    arguments = fields.pop("arguments", [[1], [2]])
    return client.submit_job({"python": function, **fields}, arguments=arguments).id


def test_a_job_and_a_task_are_shown(mycel: Terminal, client: Client) -> None:
    job = submitted(client, "fails:always", arguments=[{"lr": 0.1}, {"lr": 0.2}])
    assert mycel("show", job[-8:]) == 0
    assert "2: 2 failed" in mycel.out
    assert "fails:always(lr=0.2): ValueError: no" in mycel.out
    assert mycel("show", f"{job}.1") == 0
    assert "fails:always(lr=0.2)" in mycel.out
    assert "ValueError: no" in mycel.out
    assert mycel("show", job, "--json") == 0
    assert mycel.json["tasks"]["failed"] == 2


def test_several_are_waited_for(mycel: Terminal, client: Client) -> None:
    good, bad = submitted(client), submitted(client, "fails:always")
    assert mycel("wait", good) == 0
    assert mycel("wait", good, f"{bad}.1") == 1
    assert mycel.out.splitlines() == [f"{good}  succeeded", f"{bad}.1  failed"]
    waits = submitted(client, "waits:here")
    assert mycel("wait", waits, "--timeout", "0.1") == 124
    assert mycel("cancel", waits) == 0


def test_results_for_people_and_programs(mycel: Terminal, client: Client) -> None:
    job = submitted(client, arguments=[{"lr": 0.1, "n": "a,b"}, {"lr": 0.2, "n": "c"}])
    assert mycel("results", job) == 0
    assert mycel.out.splitlines()[0] == f'{job}.0  succeeded  {{"lr":0.1,"n":"a,b"}}'
    assert mycel("results", job, "--jsonl") == 0
    lines = [json.loads(line) for line in mycel.out.splitlines()]
    assert [line["value"]["lr"] for line in lines] == [0.1, 0.2]
    assert mycel("results", job, "--csv") == 0
    rows = list(csv.DictReader(io.StringIO(mycel.out)))
    assert [(row["index"], row["state"], row["lr"], row["value_n"]) for row in rows] == [
        ("0", "succeeded", "0.1", "a,b"),
        ("1", "succeeded", "0.2", "c"),
    ]
    assert mycel("results", job, "--failed") == 0
    assert mycel.out == ""


def test_results_in_columns_have_arguments_values_and_errors(
    mycel: Terminal, client: Client
) -> None:
    job = submitted(client, arguments=[[1, "x"], [2, "y"]])
    assert mycel("results", job, "--csv") == 0
    [first, *_] = csv.DictReader(io.StringIO(mycel.out))
    assert (first["argument_0"], first["argument_1"], first["value"]) == ("1", "x", '[1,"x"]')
    failed = submitted(client, "fails:always")
    assert mycel("results", failed, "--csv", "--failed") == 0
    assert [row["error"] for row in csv.DictReader(io.StringIO(mycel.out))] == [
        "ValueError: no"
    ] * 2


def test_the_logs_of_a_job(mycel: Terminal, client: Client) -> None:
    job = client.submit_job({"command": ["false"]}, count=2).id
    assert mycel("logs", job) == 0
    assert (mycel.out, mycel.err) == ("[0] out\n[1] out\n", "[0] err\n[1] err\n")
    assert mycel("logs", job, "--failed", "--stderr") == 0
    assert (mycel.out, mycel.err) == ("", "[0] err\n[1] err\n")
    fine = client.submit_job({"command": ["true"]}, count=2).id
    assert mycel("logs", fine, "--failed") == 0
    assert mycel.out == ""


def test_several_are_cancelled_at_once(mycel: Terminal, client: Client) -> None:
    one, two = (submitted(client, "waits:here") for _ in "ab")
    done = submitted(client)
    assert mycel("cancel", f"{one}.1", two) == 0
    assert mycel.out.splitlines() == [f"{one}.1 is cancelled", f"{two} is cancelled"]
    assert mycel("cancel", f"{one}.0", f"{done}.0") == 1
    assert f"{one}.0 is cancelled" in mycel.out
    assert "1 of 2 could not be cancelled" in mycel.err
    assert mycel("cancel", one, "zzz") == 1  # none of them, where one is nothing


def test_a_job_runs_again(mycel: Terminal, client: Client) -> None:
    job = submitted(client, arguments=[[1], [2], [3]])
    assert mycel("rerun", job, "--wait") == 0
    again = next(client.jobs(limit=1))
    assert again.id != job
    assert [one.value for one in client.results(again.id)] == [[1], [2], [3]]
    assert mycel("rerun", job, "--failed") == 1
    assert "nothing to run again" in mycel.err
    waits = submitted(client, "waits:here", arguments=[["a"], ["b"], ["c"]])
    client.cancel(f"{waits}.1")
    assert mycel("rerun", waits, "--failed", "--json") == 0
    [only] = client.tasks(job=mycel.json["id"])
    assert only.arguments == ["b"]


def test_the_same_request_runs_it_again_once(client: Client, shared: Served) -> None:
    job = submitted(client)
    path = f"/api/v1/jobs/{job}/rerun"
    key = "Idempotency-Key: again\r\n"
    first, second = (client._session.request("POST", path, None, key) for _ in "ab")
    assert json.loads(first.body)["id"] == json.loads(second.body)["id"]
    assert (first.status, second.status) == (201, 200)


LISTS = ("jobs", "tasks", "workers", "peers", "models", "status", "context")


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("command", LISTS)
def test_no_list_is_wider_than_the_terminal(
    mycel: Terminal, client: Client, monkeypatch: pytest.MonkeyPatch, command: str, width: int
) -> None:
    long = {"name": "a name that goes on and on " * 4, "error": "it did not work at all " * 9}
    job = submitted(client, "fails:always", arguments=[[long, n] for n in range(3)])
    submitted(client, "waits:here", name=long["name"])
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert mycel(*command.split()) == 0
    assert max(len(line) for line in mycel.out.splitlines()) <= width
    assert mycel("show", f"{job}.1") == 0
    facts = mycel.out.partition("\n\n")[0]
    assert max(len(line) for line in facts.splitlines()) <= width


def test_status_at_a_glance(mycel: Terminal, client: Client, shared: Served) -> None:
    assert mycel("status") == 0
    assert f"{shared.api}, as owner" in mycel.out
    assert "1 healthy" in mycel.out
    assert mycel("status", "--json") == 0
    assert mycel.json["user"] == "owner"


def test_a_model_that_nobody_serves_is_told(
    mycel: Terminal, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("hello"))
    assert mycel("chat", "lama-2-7b") == 1
    assert "did you mean 'llama-2-7b'?" in mycel.err


def test_files_of_a_job_without_any(mycel: Terminal, client: Client, tmp_path: Path) -> None:
    job = submitted(client)
    assert mycel("get", job, str(tmp_path / "out")) == 0
    assert not (tmp_path / "out").exists()
