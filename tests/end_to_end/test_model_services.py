"""`mycel model serve`: models that are placed where they fit, and kept up."""

from __future__ import annotations

import json
import os
import re
import signal

from .conftest import SwarmMaker
from .rest import call
from .swarm import Swarm, eventually, is_alive
from .test_models import BRISK, ask
from .test_python_models import MODELS, served, text

SERVE = ("model", "serve", "parrot", "--python", f"{MODELS}:parrot")


def process_of(answer: str) -> int:
    return int(re.sub(r".* of (\d+)\)", r"\1", answer))


def replicas(swarm: Swarm) -> tuple[int, list[str]]:
    [listed] = swarm.mycel("model", "list", "--json").json["items"]
    return listed["replicas"], listed["workers"]


def test_replicas_are_kept_up_until_they_are_stopped(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm(BRISK)
    swarm.up(workers=3)
    done = swarm.mycel(*SERVE, "--replicas", "2", "--concurrency", "1", "--json")
    assert done.code == 0, done
    workers = done.json["workers"]
    assert len(set(workers)) == 2, "each worker has room for one"
    assert served(swarm) == ["parrot"]
    process = process_of(text(ask(swarm, "hello")))
    os.kill(process, signal.SIGKILL)
    eventually(lambda: not is_alive(process), "a replica is dead")
    eventually(lambda: len(replicas(swarm)[1]) == 2, "it is replaced")
    swarm.kill(workers[0])
    eventually(
        lambda: len(replicas(swarm)[1]) == 2 and workers[0] not in replicas(swarm)[1],
        "the lost worker's replica is up elsewhere",
        60.0,
    )
    process = process_of(text(ask(swarm, "still there?")))
    again = swarm.mycel(*SERVE)
    assert (again.code, "kept up already" in again.err) == (1, True)
    assert "2/2" in swarm.mycel("model", "list").out
    assert swarm.mycel("model", "stop", "parrot").code == 0
    eventually(lambda: served(swarm) == [], "nobody serves it")
    eventually(lambda: not is_alive(process), "its processes are gone")
    assert swarm.mycel("model", "list", "--json").json == {"items": []}
    assert swarm.mycel("model", "stop", "parrot").code == 1


def test_a_service_outlives_its_scheduler(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm(BRISK)
    swarm.up(workers=1)
    assert swarm.mycel(*SERVE, "--json").code == 0
    before = process_of(text(ask(swarm, "hello")))
    swarm.kill("scheduler")
    swarm.up()
    eventually(lambda: served(swarm) == ["parrot"], "the worker has told of its model")
    assert process_of(text(ask(swarm, "hello"))) == before, "it was never loaded again"
    assert replicas(swarm) == (1, ["worker-1"])


def test_a_service_that_cannot_start_says_why_and_is_tried_again(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm(BRISK)
    swarm.up(workers=1)
    broken = ("model", "serve", "broken", "--python", f"{MODELS}:broken", "--no-wait", "--json")
    job = swarm.mycel(*broken).json["job_id"]
    eventually(
        lambda: len(swarm.client.task(f"{job}.0").attempts) >= 7, "it is tried again and again"
    )
    [listed] = swarm.mycel("model", "list", "--json").json["items"]
    assert "exit code 1: RuntimeError: the weights are missing" in listed["trouble"]
    assert "^^" not in listed["trouble"]
    assert listed["workers"] == []
    assert swarm.client.task(f"{job}.0").state in ("queued", "leased", "running")


def test_serve_gives_up_on_what_never_loads_and_says_why(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm(BRISK)
    swarm.up(workers=1)
    done = swarm.mycel("model", "serve", "broken", "--python", f"{MODELS}:broken")
    assert done.code == 1, done
    assert "cannot be loaded, and is given up" in done.err
    assert "the weights are missing" in done.err
    assert swarm.mycel("model", "list", "--json").json["items"] == []


def test_what_cannot_be_served_is_refused(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm("")
    swarm.up(workers=1)
    for serve, reason in (
        ({"name": "a"}, "exactly one of python and gguf"),
        ({"name": "a", "python": "a:b", "gguf": "c"}, "exactly one of python and gguf"),
        ({"name": "a", "python": "no function"}, "module:factory"),
        ({"name": "a", "python": "a:b", "kind": "oracle"}, "oracle"),
    ):
        answer = call(swarm, "POST", "/api/v1/tasks", json.dumps({"serve": serve}))
        assert (answer.status, reason in answer.body.decode()) == (422, True), answer
