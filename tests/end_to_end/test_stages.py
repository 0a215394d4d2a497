"""Sweeps, inputs and stages over a real swarm."""

from __future__ import annotations

from typing import Any

import pytest

from mycel.client import Client, Conflict, Job, Task

from .swarm import Swarm

NUMBERS: dict[str, Any] = {"command": ["sh", "-c", "exit ${n}"]}


@pytest.fixture
def client(swarm: Swarm) -> Client:
    return swarm.client


def done(client: Client, body: dict[str, Any]) -> tuple[Job, list[Task]]:
    job = client.wait_job(client.submit_job_body(body).id, 60)
    return job, list(client.tasks(job=job.id))


def texts(tasks: list[Task]) -> list[str | None]:
    return [None if task.result is None else task.result.text for task in tasks]


def test_a_matrix_fills_the_command_and_the_environment(client: Client) -> None:
    task = {
        "command": ["sh", "-c", "echo $RATE ${seed} $${seed}x ${HOME:+set}"],
        "env": {"RATE": "lr=${lr}"},
    }
    job, tasks = done(client, {"task": task, "matrix": {"lr": [0.1, 0.01], "seed": [1, 2]}})
    assert job.state == "succeeded"
    assert texts(tasks) == [f"lr={lr} {seed} x set\n" for lr in ("0.1", "0.01") for seed in (1, 2)]
    assert client.get(f"/api/v1/tasks/{tasks[3].id}")["arguments"] == {"lr": 0.01, "seed": 2}


def test_a_function_gets_the_parameters(client: Client) -> None:
    task = {"python": "builtins:pow", "arguments": ["${base}", 2]}
    override = {"where": {"base": 3}, "priority": 3, "requirements": {"cpu_cores": 0.5}}
    body = {"task": task, "matrix": {"base": [2, 3, 4]}, "overrides": [override]}
    _, tasks = done(client, body)
    assert [task.value for task in tasks] == [4, 9, 16]
    assert [task.priority for task in tasks] == [0, 3, 0]


def test_inputs_are_the_last_word(client: Client) -> None:
    _, tasks = done(client, {"task": {"command": ["echo", "-n"]}, "inputs": ["a b", 3]})
    assert texts(tasks) == ["a b", "3"]


def test_results_reach_the_stages_that_need_them(client: Client) -> None:
    stages = [
        {"name": "split", "task": {"command": ["echo", "${n}"]}, "matrix": {"n": [3, 4]}},
        {
            "name": "join",
            "needs": ["split"],
            "task": {"command": ["echo", "${needs.split[1]}", "of", "${needs.split}"]},
        },
        {
            "name": "count",
            "needs": ["split", "join"],
            "task": {"python": "builtins:len", "arguments": ["${needs.split}"]},
        },
    ]
    job, tasks = done(client, {"stages": stages})
    assert job.state == "succeeded"
    assert texts(tasks)[2] == '4 of ["3","4"]\n'
    assert tasks[3].value == 2
    shown = client.get(f"/api/v1/jobs/{job.id}")["stages"]
    assert [(one["name"], one["state"], one["tasks"]) for one in shown] == [
        ("split", "succeeded", 2),
        ("join", "succeeded", 1),
        ("count", "succeeded", 1),
    ]


@pytest.mark.parametrize(
    ("policy", "state", "after"),
    [
        ("fail", "failed", "cancelled"),
        ("continue", "failed", "succeeded"),
        ("ignore", "succeeded", "succeeded"),
    ],
)
def test_a_failure_does_what_its_stages_policy_says(
    client: Client, policy: str, state: str, after: str
) -> None:
    stages = [
        {"name": "a", "task": NUMBERS, "matrix": {"n": [0, 1]}, "on_failure": policy},
        {"name": "b", "needs": ["a"], "task": {"command": ["true"]}},
        {"name": "c", "needs": ["b"], "task": {"command": ["true"]}},
        {"name": "free", "task": {"command": ["true"]}},
    ]
    job, tasks = done(client, {"stages": stages})
    assert (job.state, tasks[2].state) == (state, after)
    assert tasks[3].state == tasks[2].state
    assert tasks[4].state == "succeeded"
    if after == "cancelled":
        assert tasks[3].reason == "dependency_failed"
        assert tasks[3].error == "a task of stage 'a' failed"


def test_an_open_job_takes_batches_for_its_stages(client: Client) -> None:
    stages = [
        {"name": "a", "task": {"command": ["echo"]}},
        {"name": "b", "needs": ["a"], "task": {"command": ["echo", "${needs.a}"]}},
    ]
    job = client.submit_job_body({"stages": stages, "closed": False})
    client.append(job.id, {"batch": 0, "stage": "b", "count": 1})
    client.append(job.id, {"batch": 1, "stage": "a", "arguments": [["x"], ["y"]]})
    client.append(job.id, {"batch": 1, "stage": "a", "arguments": [["x"], ["y"]]})
    with pytest.raises(Conflict, match="came before with other tasks"):
        client.append(job.id, {"batch": 1, "stage": "a", "arguments": [["x"], ["z"]]})
    with pytest.raises(Conflict, match="expects batch 2, not 3"):
        client.append(job.id, {"batch": 3, "stage": "a", "count": 1})
    client.wait(f"{job.id}.2", 30)
    waiting = client.task(f"{job.id}.0")
    assert (waiting.state, waiting.reason) == ("queued", "dependency")
    assert "its job still takes batches" in client.explain(waiting.id).summary
    client.close_job(job.id)
    assert client.wait_job(job.id, 30).state == "succeeded"
    assert texts(list(client.tasks(job=job.id))) == ['["x","y"]\n', "x\n", "y\n"]
