"""Models on real workers, asked through the API and through OpenAI's routes."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from mycel.client import Invalid

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
        while self._processes:
            process = self._processes.pop()
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


def serve_on_two(
    make_swarm: SwarmMaker,
    servers: Servers,
    first: str = "one",
    second: str = "two",
    slots: int = 4,
) -> Swarm:
    """One server for each of two workers, known by its name."""
    swarm = make_swarm(worker("parrot", endpoint(servers, first), slots=slots))
    swarm.up(workers=1)
    settings = swarm.home / "mycel.toml"
    settings.write_text(worker("parrot", endpoint(servers, second), slots=slots))
    swarm.up(workers=2)
    return swarm


def endpoint(servers: Servers, name: str) -> str:
    """Of a server of that name; nobody listens at that of `down`."""
    return "http://127.0.0.1:9/v1" if name == "down" else servers.start(name)


def ask(swarm: Swarm, prompt: str, **more: Any) -> Any:
    body = {"model": "parrot", "messages": [{"role": "user", "content": prompt}], **more}
    return call(swarm, "POST", "/v1/chat/completions", json.dumps(body))


def open_stream(swarm: Swarm, prompt: str, **more: Any) -> http.client.HTTPResponse:
    address = urlsplit(swarm.api)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=30)
    messages = [{"role": "user", "content": prompt}]
    body = {"model": "parrot", "messages": messages, "stream": True, **more}
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
    assert task["code"] == "model_upstream_418"


def test_the_input_of_a_model_may_be_a_file(
    make_swarm: SwarmMaker, servers: Servers, tmp_path: Path
) -> None:
    swarm = make_swarm(worker("parrot", servers.start("one")))
    swarm.up(workers=1)
    long = tmp_path / "long.txt"
    long.write_text("word " * 100_000)
    task = swarm.client.submit_task(model="parrot", input=long, wait=30)
    assert task.state == "succeeded", task.error
    assert task.result is not None
    assert task.result.text == f"one says {long.read_text()}"
    with pytest.raises(Invalid, match="missing"):
        swarm.client.submit_task(model="parrot", input={"blob": "blake3:" + "0" * 64})
    with pytest.raises(Invalid, match="digest"):
        swarm.client.submit_task(model="parrot", input={"blob": "long.txt"})


def test_a_job_may_give_a_model_one_file_after_another(
    make_swarm: SwarmMaker, servers: Servers, tmp_path: Path
) -> None:
    swarm = make_swarm(worker("parrot", servers.start("one")))
    swarm.up(workers=1)
    (tmp_path / "notes").mkdir()
    for name in "ab":
        (tmp_path / "notes" / f"{name}.txt").write_text(f"note {name}")
    (tmp_path / "alone.txt").write_text("alone")
    each = tmp_path / "each.toml"
    each.write_text('inputs = { files = "notes/*.txt" }\n[task]\nmodel = "parrot"\n')
    one = tmp_path / "one.toml"
    one.write_text('count = 1\n[task]\nmodel = "parrot"\ninput = { file = "alone.txt" }\n')
    for path in (each, one):
        ended = swarm.mycel("submit", str(path), "--wait")
        assert ended.code == 0, ended
    results = [task.result for task in swarm.client.tasks()]
    found = sorted(result.text or "" for result in results if result is not None)
    assert found == ["one says alone", "one says note a", "one says note b"]


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
    assert ask(swarm, "too fast").status == 429
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
    response = open_stream(swarm, "endless")
    next(events(response))
    response.close()
    eventually(lambda: swarm.client.stats()["tasks_running"] == 0, "the request has ended")
    eventually(lambda: swarm.client.stats()["tasks_cancelled"] == 1, "it was cancelled")


def test_requests_spread_and_survive_the_loss_of_a_worker(
    make_swarm: SwarmMaker, servers: Servers
) -> None:
    swarm = serve_on_two(make_swarm, servers)
    response = open_stream(swarm, "endless")
    stream = events(response)
    name = next(stream)["choices"][0]["delta"]["content"].strip()
    swarm.kill({"one": "worker-1", "two": "worker-2"}[name])
    *_, last = stream
    assert "lost in the middle" in last["error"]["message"]
    other = {"one": "two", "two": "one"}[name]
    assert ask(swarm, "hello").json["choices"][0]["message"]["content"] == f"{other} says hello"


def test_requests_spread_by_load(make_swarm: SwarmMaker, servers: Servers) -> None:
    swarm = serve_on_two(make_swarm, servers, slots=8)
    for _ in range(2):  # by negotiation, then over the leases that it has brought
        responses = [open_stream(swarm, "endless") for _ in range(6)]
        first = [next(events(one))["choices"][0]["delta"]["content"] for one in responses]
        assert min(first.count("one "), first.count("two ")) >= 2, first
        for response in responses:
            response.close()
        eventually(lambda: swarm.client.stats()["tasks_running"] == 0, "all have ended")


def test_models_are_listed_with_their_free_slots(make_swarm: SwarmMaker, servers: Servers) -> None:
    swarm = serve_on_two(make_swarm, servers)
    body = json.dumps({"model": "parrot", "input": "hang on"})
    asked = [call(swarm, "POST", "/api/v1/tasks", body).json["id"] for _ in range(3)]

    def listed() -> Any:
        [model] = swarm.mycel("models", "--json").json["items"]
        return model

    eventually(lambda: listed()["slots_free"] == 5, "three of eight are taken")
    assert (listed()["name"], listed()["kind"], listed()["slots_total"]) == ("parrot", "chat", 8)
    assert sorted(one["name"] for one in listed()["workers"]) == ["worker-1", "worker-2"]
    assert "5/8 free" in swarm.mycel("models").out
    for task in asked:
        swarm.client.cancel(task)
    eventually(lambda: listed()["slots_free"] == 8, "all are free again, leased or not")


def test_a_dry_run_shows_what_the_model_is_said_to_take(
    make_swarm: SwarmMaker, servers: Servers
) -> None:
    settings = worker("parrot", servers.start("one")) + 'memory = "1GB"\ngpu_memory = "2GB"\n'
    swarm = make_swarm(settings)
    swarm.up(workers=1)
    body = json.dumps({"count": 3, "task": {"model": "parrot", "input": "hello"}})
    answer = call(swarm, "POST", "/api/v1/jobs?dry_run=true", body)
    assert answer.status == 200, answer
    [shape] = answer.json["shapes"]
    assert shape["source"] == "model"
    assert shape["requirements"]["min_memory"] == 1_000_000_000
    assert shape["slots"] == 4
    [listed] = swarm.mycel("models", "--json").json["items"]
    assert (listed["memory"], listed["gpu_memory"]) == (1_000_000_000, 2_000_000_000)


def test_a_worker_lost_before_the_first_token_is_replaced(
    make_swarm: SwarmMaker, servers: Servers
) -> None:
    swarm = make_swarm(worker("parrot", servers.start("mute")))
    swarm.up(workers=1)
    with ThreadPoolExecutor(1) as threads:
        said = threads.submit(lambda: list(events(open_stream(swarm, "hello there"))))
        eventually(lambda: swarm.client.stats()["tasks_running"] == 1, "it waits for a token")
        settings = swarm.home / "mycel.toml"
        settings.write_text(worker("parrot", servers.start("two")))
        swarm.up(workers=2)
        swarm.kill("worker-1")
        whole = said.result(timeout=30)
    assert whole[0]["choices"][0]["delta"]["content"] == "two "
    assert whole[-1] == "done"


@pytest.mark.parametrize("fault", ["down", "sick", "liar"])
def test_who_asks_does_not_notice_that_one_server_of_two_fails(
    make_swarm: SwarmMaker, servers: Servers, fault: str
) -> None:
    swarm = serve_on_two(make_swarm, servers, fault)
    for number in range(6):
        answer = ask(swarm, f"hello {number}")
        assert answer.status == 200, answer
        assert answer.json["choices"][0]["message"]["content"] == f"two says hello {number}"


@pytest.mark.parametrize(
    ("fault", "error"),
    [("sick", "the model server answered 500: out of memory"), ("liar", "answer is no JSON")],
)
def test_a_server_that_fails_is_told_of_by_its_fault(
    make_swarm: SwarmMaker, servers: Servers, fault: str, error: str
) -> None:
    swarm = make_swarm(worker("parrot", servers.start(fault)))
    swarm.up(workers=1)
    body = json.dumps({"model": "parrot", "input": "hello"})
    task = call(swarm, "POST", "/api/v1/tasks?wait=20", body).json
    assert (task["state"], len(task["attempts"])) == ("failed", 3)
    assert error in task["error"]
    assert swarm.client.submit_task(command=["echo", "on"], wait=30).value == "on\n"


def test_a_server_that_is_too_slow_runs_out_of_time(
    make_swarm: SwarmMaker, servers: Servers
) -> None:
    brief = BRISK.replace("[scheduler", "[scheduler]\ntask_timeout = 0.2\n[scheduler")
    swarm = make_swarm(worker("parrot", servers.start("mute")).replace(BRISK, brief))
    swarm.up(workers=1)
    answer = ask(swarm, "hello")
    assert answer.status == 504
    assert "timed out after 0.2 s" in answer.json["error"]["message"]


def test_a_server_that_is_down_costs_an_attempt_not_the_worker(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm(worker("parrot", "http://127.0.0.1:9/v1"))
    swarm.up(workers=1)
    body = json.dumps({"model": "parrot", "input": "hello"})
    task = call(swarm, "POST", "/api/v1/tasks?wait=20", body).json
    assert task["state"] == "failed"
    assert "does not answer" in task["error"]
    assert len(task["attempts"]) == 3
    assert swarm.client.submit_task(command=["echo", "on"], wait=30).value == "on\n"


def finding(address: str, offered: bool) -> str:
    return (
        f'{BRISK}[worker]\nmodel_servers = ["http://127.0.0.1:9/v1", "{address}"]\n'
        f"model_search_interval = 0.1\noffer_found_models = {str(offered).lower()}\n"
    )


def test_a_server_that_runs_anyway_is_found_and_offered(
    make_swarm: SwarmMaker, servers: Servers
) -> None:
    swarm = make_swarm(finding(servers.start("ollama"), True))
    swarm.up(workers=1)

    def listed() -> list[tuple[str, str]]:
        items = call(swarm, "GET", "/api/v1/models").json["items"]
        return [(one["name"], one["kind"]) for one in items]

    expected = [("ollama-chat", "chat"), ("ollama-embed", "embedding")]
    eventually(lambda: listed() == expected, "both models are offered")
    said = ask(swarm, "hello", model="ollama-chat").json
    assert said["choices"][0]["message"]["content"] == "ollama says hello"
    servers.stop()
    eventually(lambda: listed() == [], "a server that goes takes its models along")


def test_what_is_found_is_not_offered_unasked(make_swarm: SwarmMaker, servers: Servers) -> None:
    swarm = make_swarm(finding(servers.start("ollama"), False))
    swarm.up(workers=1)
    log = swarm.home / "worker-1" / "log.jsonl"
    eventually(lambda: "ollama-chat, ollama-embed" in log.read_text(), "the log tells of it")
    assert "offer_found_models = true offers them" in log.read_text()
    assert call(swarm, "GET", "/api/v1/models").json["items"] == []
