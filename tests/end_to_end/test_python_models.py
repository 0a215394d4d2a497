"""Models that a worker loads itself, in a process of their own."""

from __future__ import annotations

import json
import os
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from .conftest import SwarmMaker
from .rest import call
from .swarm import Swarm, eventually, is_alive
from .test_models import BRISK, ask, events, open_stream

MODELS = "tests.end_to_end.python_models"


def loaded(factory: str, kind: str = "chat", **more: Any) -> str:
    keys = {"python": f"{MODELS}:{factory}", "kind": kind, **more}
    lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    return "\n".join([BRISK, '[worker.models."parrot"]', *lines, ""])


def up(make_swarm: SwarmMaker, settings: str) -> Swarm:
    swarm = make_swarm(settings)
    swarm.up(workers=1)
    eventually(lambda: served(swarm) == ["parrot"], "the model is loaded and offered")
    return swarm


def served(swarm: Swarm) -> list[str]:
    return [one["id"] for one in call(swarm, "GET", "/v1/models").json["data"]]


def text(answer: Any) -> str:
    assert answer.status == 200, answer
    return str(answer.json["choices"][0]["message"]["content"])


def test_it_is_loaded_once_and_asked_in_batches(make_swarm: SwarmMaker) -> None:
    swarm = up(make_swarm, loaded("parrot"))
    with ThreadPoolExecutor(8) as threads:
        first = threads.submit(ask, swarm, "slow")
        rest = [threads.submit(ask, swarm, "hello") for _ in range(7)]
        said = [text(one.result()) for one in (first, *rest)]
    processes = {re.sub(r".* of (\d+)\)", r"\1", one) for one in said}
    assert len(processes) == 1, "one process has answered them all"
    assert any("hello (1 " not in one and "hello" in one for one in said), said
    task = call(
        swarm,
        "POST",
        "/api/v1/tasks?wait=20",
        json.dumps({"model": "parrot", "input": "Explain quantum computing"}),
    ).json
    assert task["result"]["text"].startswith("Explain quantum computing (1 of ")


def test_what_it_raises_is_the_answer_to_who_asked_for_it(make_swarm: SwarmMaker) -> None:
    swarm = up(make_swarm, loaded("parrot"))
    with ThreadPoolExecutor(4) as threads:
        said = list(threads.map(lambda word: ask(swarm, word), ("hello", "fail", "hello", "you")))
    assert [one.status for one in said] == [200, 400, 200, 200]
    assert "the model raised ValueError: that is too much" in said[1].json["error"]["message"]


def test_a_model_that_exits_answers_for_that_and_goes_on(make_swarm: SwarmMaker) -> None:
    swarm = up(make_swarm, loaded("parrot"))
    left = ask(swarm, "quit")
    assert left.status == 400
    assert "the model raised SystemExit: I have had enough" in left.json["error"]["message"]
    assert text(ask(swarm, "hello")).startswith("hello")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("word", ["number", "nothing"])
def test_what_is_no_text_is_refused(make_swarm: SwarmMaker, word: str, stream: bool) -> None:
    swarm = up(make_swarm, loaded("parrot"))
    messages = [{"role": "user", "content": word}]
    body = json.dumps({"model": "parrot", "messages": messages, "stream": stream})
    answer = call(swarm, "POST", "/v1/chat/completions", body)
    assert answer.status == 400, answer
    assert "the model's output cannot be encoded" in answer.json["error"]["message"]


def test_a_model_is_asked_in_the_way_of_its_kind(make_swarm: SwarmMaker) -> None:
    swarm = up(make_swarm, loaded("embedder", "embedding"))
    answer = ask(swarm, "hello")
    assert answer.status == 400
    assert "'parrot' is a model of kind embedding, not chat" in answer.json["error"]["message"]
    body = json.dumps({"model": "parrot", "input": ""})
    answer = call(swarm, "POST", "/v1/embeddings", body)
    assert answer.status == 400
    assert "the model's output cannot be encoded" in answer.json["error"]["message"]


def test_what_it_yields_is_streamed(make_swarm: SwarmMaker) -> None:
    swarm = up(make_swarm, loaded("teller"))
    said = list(events(open_stream(swarm, "one two three")))
    assert said.pop() == "done"
    assert [one["choices"][0]["delta"].get("content") for one in said] == [
        "one ",
        "two ",
        "three ",
        None,
    ]
    assert text(ask(swarm, "all at once")) == "all at once "
    response = open_stream(swarm, "slowly " * 1000)
    next(events(response))
    response.close()
    eventually(lambda: swarm.client.stats()["tasks_cancelled"] == 1, "who hung up has cancelled")
    assert text(ask(swarm, "still here")) == "still here "


def test_as_many_choices_are_given_as_are_asked_for_and_no_chat_without_messages(
    make_swarm: SwarmMaker,
) -> None:
    swarm = up(make_swarm, loaded("teller"))
    answer = ask(swarm, "one two", n=3)
    assert answer.status == 200, answer
    choices = answer.json["choices"]
    assert [one["index"] for one in choices] == [0, 1, 2]
    assert {one["message"]["content"] for one in choices} == {"one two "}
    said = list(events(open_stream(swarm, "one two", n=2)))
    assert said.pop() == "done"
    told = [one["choices"][0] for one in said]
    for index in (0, 1):
        pieces = [one["delta"].get("content") for one in told if one["index"] == index]
        assert pieces == ["one ", "two ", None]
    for wrong in (0, -1, 129, 1.5, "2", True):
        answer = ask(swarm, "one", n=wrong)
        assert (answer.status, "from 1 to 128" in str(answer.json)) == (400, True)
    answer = ask(swarm, "one", messages=None)
    assert (answer.status, "a chat has messages" in str(answer.json)) == (400, True)


def test_embeddings_and_kinds_of_ones_own(make_swarm: SwarmMaker) -> None:
    second = loaded("adder", "custom").replace(BRISK, "").replace("parrot", "sum")
    swarm = make_swarm(loaded("embedder", "embedding") + second)
    swarm.up(workers=1)
    eventually(lambda: served(swarm) == ["parrot", "sum"], "both are loaded")
    body = json.dumps({"model": "parrot", "input": ["a", "bcd"]})
    vectors = call(swarm, "POST", "/v1/embeddings", body).json
    assert [one["embedding"] for one in vectors["data"]] == [[1.0], [3.0]]
    body = json.dumps({"model": "sum", "input": {"json": [1, 2, 3]}, "parameters": {"more": 4}})
    task = call(swarm, "POST", "/api/v1/tasks?wait=20", body).json
    assert task["result"]["json"] == {"sum": 10}


def test_a_crash_fails_its_task_and_the_model_is_loaded_again(make_swarm: SwarmMaker) -> None:
    swarm = up(make_swarm, loaded("parrot").replace("base = 0.05", "base = 0.05\nmax_attempts = 2"))
    before = text(ask(swarm, "hello"))
    dead = ask(swarm, "die")
    assert dead.status == 502
    assert "broke off" in dead.json["error"]["message"]
    after = text(ask(swarm, "hello"))
    assert before != after, "another process has answered"
    process = int(after.split(" of ")[1].rstrip(")"))
    os.kill(process, signal.SIGKILL)
    eventually(lambda: not is_alive(process), "it is dead")
    again = text(ask(swarm, "hello"))
    assert again != after, "whoever asks meanwhile waits until it is loaded again"
    assert swarm.client.submit_task(command=["echo", "on"], wait=30).value == "on\n"


def test_a_model_that_cannot_be_loaded_is_not_offered(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm(loaded("broken"))
    swarm.up(workers=1)
    log = swarm.home / "worker-1" / "log.jsonl"
    eventually(lambda: "the weights are missing" in log.read_text(), "the log says why")
    assert served(swarm) == []

    def troubles() -> list[str]:
        items = swarm.mycel("models", "--json").json["items"]
        return [worker["trouble"] for model in items for worker in model["workers"]]

    eventually(
        lambda: any("the weights are missing" in one for one in troubles()), "the list says why"
    )
    assert "the weights are missing" in swarm.mycel("models").out
    assert swarm.client.submit_task(command=["echo", "on"], wait=30).value == "on\n"


def test_its_process_ends_with_the_worker(make_swarm: SwarmMaker) -> None:
    swarm = up(make_swarm, loaded("parrot"))
    process = int(text(ask(swarm, "hello")).split(" of ")[1].rstrip(")"))
    swarm.kill("worker-1")
    eventually(lambda: not is_alive(process), "nothing is left of it")
