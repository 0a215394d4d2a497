"""Models on real workers, asked through the API and through OpenAI's routes."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from .conftest import SwarmMaker
from .rest import call
from .swarm import Swarm, eventually

SERVER = Path(__file__).with_name("model_server.py")
BRISK = "[scheduler.retry]\nbackoff_base = 0.05\n"


class Servers:
    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[str]] = []

    def start(self, name: str) -> str:
        process = subprocess.Popen(
            [sys.executable, str(SERVER), name], stdout=subprocess.PIPE, text=True
        )
        self._processes.append(process)
        assert process.stdout is not None
        return f"http://127.0.0.1:{int(process.stdout.readline())}/v1"

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()


@pytest.fixture
def servers() -> Iterator[Servers]:
    made = Servers()
    yield made
    made.stop()


def worker(name: str, endpoint: str, kind: str = "chat", slots: int = 4) -> str:
    return (
        f'{BRISK}[worker.models."{name}"]\nkind = "{kind}"\nendpoint = "{endpoint}"\n'
        f"concurrency = {slots}\n"
    )


def serve_on_two(make_swarm: SwarmMaker, servers: Servers, kind: str = "chat") -> Swarm:
    """One server for each of two workers, known by its name."""
    swarm = make_swarm(worker("parrot", servers.start("one"), kind))
    swarm.up(workers=1)
    settings = swarm.home / "mycel.toml"
    settings.write_text(worker("parrot", servers.start("two"), kind))
    swarm.up(workers=2)
    return swarm


def ask(swarm: Swarm, prompt: str, **more: Any) -> Any:
    body = {"model": "parrot", "messages": [{"role": "user", "content": prompt}], **more}
    return call(swarm, "POST", "/v1/chat/completions", json.dumps(body))


def open_stream(swarm: Swarm, prompt: str) -> http.client.HTTPResponse:
    address = urlsplit(swarm.api)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=30)
    body = {"model": "parrot", "messages": [{"role": "user", "content": prompt}], "stream": True}
    headers = {"Authorization": f"Bearer {swarm.token}", "Content-Type": "application/json"}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
    return connection.getresponse()


def events(response: http.client.HTTPResponse) -> Iterator[Any]:
    for line in response:
        if line.startswith(b"data: "):
            data = line.removeprefix(b"data: ").strip()
            yield "done" if data == b"[DONE]" else json.loads(data)


def test_a_model_task_runs_where_the_model_is_served(
    make_swarm: SwarmMaker, servers: Servers
) -> None:
    swarm = make_swarm(worker("parrot", servers.start("one")))
    swarm.up(workers=1)
    body = json.dumps({"model": "parrot", "input": "Explain quantum computing"})
    task = call(swarm, "POST", "/api/v1/tasks?wait=20", body).json
    assert task["state"] == "succeeded"
    assert task["result"]["text"] == "one says Explain quantum computing"
    refused = json.dumps({"model": "parrot", "input": "teapot"})
    task = call(swarm, "POST", "/api/v1/tasks?wait=20", refused).json
    assert task["state"] == "failed"
    assert "418: short and stout" in task["error"]


def test_openai_routes(make_swarm: SwarmMaker, servers: Servers) -> None:
    swarm = make_swarm(worker("parrot", servers.start("one")))
    swarm.up(workers=1)
    models = call(swarm, "GET", "/v1/models").json
    assert [one["id"] for one in models["data"]] == ["parrot"]
    assert call(swarm, "GET", "/v1/models/parrot").status == 200
    assert call(swarm, "GET", "/v1/models/none").json["error"]["code"] == "model_not_found"
    answer = ask(swarm, "hello").json
    assert "choices" in answer, answer
    assert answer["choices"][0]["message"]["content"] == "one says hello"
    assert ask(swarm, "teapot").status == 400
    assert ask(swarm, "nonsense").status == 502
    assert ask(swarm, "hello", model="none").status == 404
    assert call(swarm, "POST", "/v1/chat/completions", "{").status == 400
    body = json.dumps({"model": "parrot", "input": ["a", "bcd"]})
    vectors = call(swarm, "POST", "/v1/embeddings", body).json
    assert "data" in vectors, vectors
    assert [one["embedding"] for one in vectors["data"]] == [[1.0], [3.0]]


def test_tokens_arrive_one_by_one(make_swarm: SwarmMaker, servers: Servers) -> None:
    swarm = make_swarm(worker("parrot", servers.start("one")))
    swarm.up(workers=1)
    response = open_stream(swarm, "slow")
    assert response.headers["content-type"] == "text/event-stream"
    stream = events(response)
    first = next(stream)
    assert first["choices"][0]["delta"]["content"] == "one "
    assert swarm.client.stats()["tasks_running"] == 1, "the first token is here, the last is not"
    rest = list(stream)
    assert len(rest) == 40
    assert rest[-1] == "done"


def test_who_hangs_up_stops_the_model(make_swarm: SwarmMaker, servers: Servers) -> None:
    swarm = make_swarm(worker("parrot", servers.start("one")))
    swarm.up(workers=1)
    response = open_stream(swarm, "slow")
    next(events(response))
    response.close()
    eventually(lambda: swarm.client.stats()["tasks_running"] == 0, "the request has ended")
    eventually(lambda: swarm.client.stats()["tasks_cancelled"] == 1, "it was cancelled")


def test_requests_spread_and_survive_the_loss_of_a_worker(
    make_swarm: SwarmMaker, servers: Servers
) -> None:
    swarm = serve_on_two(make_swarm, servers)
    response = open_stream(swarm, "slow")
    stream = events(response)
    name = next(stream)["choices"][0]["delta"]["content"].strip()
    swarm.kill({"one": "worker-1", "two": "worker-2"}[name])
    *_, last = stream
    assert "lost in the middle" in last["error"]["message"]
    other = {"one": "two", "two": "one"}[name]
    assert ask(swarm, "hello").json["choices"][0]["message"]["content"] == f"{other} says hello"


def test_a_worker_lost_before_the_first_token_is_replaced(
    make_swarm: SwarmMaker, servers: Servers
) -> None:
    swarm = make_swarm(worker("parrot", servers.start("one")))
    swarm.up(workers=1)
    body = json.dumps({"model": "parrot", "input": "hang on"})
    task = call(swarm, "POST", "/api/v1/tasks", body).json["id"]
    eventually(lambda: swarm.client.task(task).state == "running", "it waits for its first token")
    settings = swarm.home / "mycel.toml"
    settings.write_text(worker("parrot", servers.start("two")).replace("hang", "go"))
    swarm.up(workers=2)
    swarm.kill("worker-1")
    eventually(
        lambda: swarm.name_of(swarm.client.task(task).worker) == "worker-2", "the other has it"
    )
    swarm.client.cancel(task)


def test_a_server_that_is_down_costs_an_attempt_not_the_worker(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm(worker("parrot", "http://127.0.0.1:9/v1"))
    swarm.up(workers=1)
    body = json.dumps({"model": "parrot", "input": "hello"})
    task = call(swarm, "POST", "/api/v1/tasks?wait=20", body).json
    assert task["state"] == "failed"
    assert "does not answer" in task["error"]
    assert len(task["attempts"]) == 3
    assert swarm.client.submit(command=["echo", "on"], wait=30).value == "on\n"
