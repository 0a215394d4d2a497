"""Two users serve a model under one name: each gets its own prompts, and nobody else's."""

from __future__ import annotations

import json
from typing import Any

from .conftest import SwarmMaker
from .rest import call
from .swarm import Swarm, eventually
from .test_models import BRISK
from .test_python_models import MODELS

PROMPTS = 12


def serve(swarm: Swarm, token: str, name: str) -> None:
    serve = {"name": name, "python": f"{MODELS}:parrot", "concurrency": 4}
    body = {"serve": serve, "requirements": {"cpu_cores": 0.1}}
    answer = call(swarm, "POST", "/api/v1/tasks", json.dumps(body), token=token)
    assert answer.status == 201, answer


def listed(swarm: Swarm, token: str) -> list[str]:
    return [one["id"] for one in call(swarm, "GET", "/v1/models", token=token).json["data"]]


def prompt(model: str, **more: Any) -> str:
    messages = [{"role": "user", "content": "secret"}]
    return json.dumps({"model": model, "messages": messages, **more})


def by_chat(swarm: Swarm, token: str, model: str) -> str:
    answer = call(swarm, "POST", "/v1/chat/completions", prompt(model), token=token)
    return str(answer.json["choices"][0]["message"]["content"])


def by_stream(swarm: Swarm, token: str, model: str) -> str:
    body = prompt(model, stream=True)
    answer = call(swarm, "POST", "/v1/chat/completions", body, token=token)
    events = [line[6:] for line in answer.body.splitlines() if line.startswith(b"data: {")]
    deltas = [json.loads(one)["choices"][0]["delta"].get("content") for one in events]
    return "".join(one for one in deltas if one)


def by_task(swarm: Swarm, token: str, model: str) -> str:
    body = json.dumps({"model": model, "input": "secret"})
    task = call(swarm, "POST", "/api/v1/tasks?wait=30", body, token=token).json
    return str(task["result"]["text"])


def by_job(swarm: Swarm, token: str, model: str) -> str:
    body = {"task": {"model": model}, "inputs": ["secret"]}
    job = call(swarm, "POST", "/api/v1/jobs", json.dumps(body), token=token).json
    task = call(swarm, "GET", f"/api/v1/tasks/{job['id']}.0?wait=30", token=token).json
    return str(task["result"]["text"])


WAYS = (by_chat, by_stream, by_task, by_job)


def process(said: str) -> str:
    return said.rpartition(" of ")[2].rstrip(")")


def test_nobody_gets_anothers_prompts_by_a_name(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm(BRISK)
    swarm.up(workers=2)
    alice, bob, carol = (
        swarm.mycel("user", "add", name).out.strip() for name in ("alice", "bob", "carol")
    )
    serve(swarm, bob, "parrot")
    eventually(lambda: listed(swarm, bob) == ["parrot"], "bob's model is up")
    # Nobody else has bob's by a bare name: what they ask for waits, or is not there.
    for route, asked in (
        ("chat/completions", prompt("parrot")),
        ("completions", json.dumps({"model": "parrot", "prompt": "secret"})),
        ("embeddings", json.dumps({"model": "parrot", "input": "secret"})),
    ):
        answer = call(swarm, "POST", f"/v1/{route}", asked, token=alice)
        assert (answer.status, answer.json["error"]["code"]) == (404, "model_not_found")
    body = json.dumps({"model": "parrot", "input": "secret"})
    waiting = call(swarm, "POST", "/api/v1/tasks", body, token=carol).json["id"]
    assert listed(swarm, alice) == ["bob/parrot"]
    serve(swarm, alice, "parrot")
    eventually(lambda: listed(swarm, alice) == ["bob/parrot", "parrot"], "alice's is up too")
    bobs = process(by_chat(swarm, bob, "parrot"))
    alices = process(by_chat(swarm, alice, "parrot"))
    assert bobs != alices

    def spread() -> None:
        for way in WAYS:
            for _ in range(PROMPTS):
                assert process(way(swarm, alice, "parrot")) == alices
            assert process(way(swarm, bob, "parrot")) == bobs
            assert process(way(swarm, alice, "bob/parrot")) == bobs

    spread()
    swarm.kill("scheduler")
    swarm.up()
    eventually(
        lambda: listed(swarm, alice) == ["bob/parrot", "parrot"], "the workers have told of them"
    )
    spread()
    task = call(swarm, "GET", f"/api/v1/tasks/{waiting}", token=carol).json
    assert task["state"] == "queued", "what was asked of the owner is nobody else's"
    assert (
        "needs the model parrot, "
        in call(swarm, "GET", f"/api/v1/tasks/{waiting}/explain", token=carol).body.decode()
    )
    assert swarm.mycel("model", "stop", "alice/parrot").code == 0
