"""What tasks do to their drivers, through a real swarm."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mycel.client import TaskFailed

from .swarm import WORKLOAD, Swarm, eventually, is_alive, told_pid


def failed(swarm: Swarm, function: str, *arguments: object) -> str:
    with pytest.raises(TaskFailed) as caught:
        swarm.client.run(f"{WORKLOAD}:{function}", *arguments)
    return caught.value.error


def test_a_function_that_raises(swarm: Swarm) -> None:
    error = failed(swarm, "fail", "the pear is unripe")
    assert error.splitlines()[0] == "ValueError: the pear is unripe"
    assert "workload.py" in error


@pytest.mark.parametrize("function", ["unencodable", "numbered"])
def test_a_value_that_cannot_be_encoded(swarm: Swarm, function: str) -> None:
    assert "JSON" in failed(swarm, function)


def test_a_value_that_is_not_a_number(swarm: Swarm) -> None:
    value = swarm.client.run(f"{WORKLOAD}:not_a_number")
    assert value != value
    assert swarm.client.run("builtins:abs", float("-inf")) == float("inf")


def test_a_function_that_does_not_exist(swarm: Swarm) -> None:
    assert "has no function 'no_such_function'" in failed(swarm, "no_such_function")
    with pytest.raises(TaskFailed, match="cannot import 'no_such_module'"):
        swarm.client.run("no_such_module:function")


def test_wrong_arguments(swarm: Swarm) -> None:
    assert failed(swarm, "add", 1).startswith("TypeError")


def test_what_a_function_prints_is_kept(swarm: Swarm) -> None:
    task = swarm.client.submit_task(python=f"{WORKLOAD}:speak", wait=30)
    assert task.value == 7
    logs = swarm.client.logs(task.id)
    assert (logs.stdout, logs.stderr) == ("on stdout\n", "on stderr\n")


@pytest.mark.parametrize("function", ["kill_myself", "leave"])
def test_an_interpreter_that_ends_harms_no_other_task(swarm: Swarm, function: str) -> None:
    retry = {"max_attempts": 1}
    task = swarm.client.submit_task(python=f"{WORKLOAD}:{function}", retry=retry, wait=30)
    assert task.state == "failed"
    assert task.error
    assert list(swarm.client.map(f"{WORKLOAD}:add", [[n, 1] for n in range(50)])) == [
        n + 1 for n in range(50)
    ]


def test_the_environment_is_the_tasks_own(swarm: Swarm) -> None:
    env = {"FRUIT": "pear", "PYTHONPATH": swarm.environment["PYTHONPATH"]}
    task = swarm.client.submit_task(python=f"{WORKLOAD}:where", env=env, wait=30)
    environment = task.value["environment"]
    assert environment["FRUIT"] == "pear"
    assert environment["MYCEL_TASK_ID"] == task.id
    assert environment["MYCEL_JOB_ID"] == task.job_id
    assert environment["MYCEL_ATTEMPT"] == "1"
    assert environment["MYCEL_WORKDIR"].startswith(str(swarm.home))
    other = swarm.client.submit_task(python=f"{WORKLOAD}:where", wait=30)
    assert "FRUIT" not in other.value["environment"]
    assert other.value["pid"] != task.value["pid"]
    assert swarm.token not in str(environment)


def test_a_process_has_a_folder_of_its_own(swarm: Swarm) -> None:
    script = 'ls -A; echo here > file; test "$(pwd)" = "$MYCEL_WORKDIR" && echo same'
    for _ in range(3):
        assert swarm.client.submit_task(command=["sh", "-c", script], wait=30).value == "same\n"


def test_much_output_is_bounded(swarm: Swarm) -> None:
    script = "head -c 30000000 /dev/zero | tr '\\0' a; echo; echo last"
    task = swarm.client.submit_task(command=["sh", "-c", script], wait=60)
    assert task.state == "succeeded"
    log = swarm.client.log(task.id, "stdout")
    assert len(log) < 11 << 20
    assert log.endswith(b"last\n")


def cancelled_tree(swarm: Swarm, folder: Path) -> list[int]:
    """The pids of a task that was cancelled, of its child and of its grandchild."""
    arguments = [str(folder), "tree"]
    task = swarm.client.submit_task(python=f"{WORKLOAD}:grow_a_tree", arguments=arguments)

    eventually(lambda: len(list(folder.glob("tree.*"))) == 3, "the tree has grown")
    pids = [told_pid(path) for path in folder.glob("tree.*")]
    assert all(is_alive(pid) for pid in pids)
    swarm.client.cancel(task.id)
    return pids


def test_cancel_ends_the_whole_tree(swarm: Swarm, tmp_path: Path) -> None:
    pids = cancelled_tree(swarm, tmp_path)
    eventually(lambda: not any(is_alive(pid) for pid in pids), "the tree is gone")


def test_cancel_ends_what_ignores_sigterm(swarm: Swarm, tmp_path: Path) -> None:
    script = f"trap '' TERM; echo $$ > {tmp_path}/pid; while :; do sleep 1; done"
    task = swarm.client.submit_task(command=["sh", "-c", script])
    pid = told_pid(tmp_path / "pid")
    swarm.client.cancel(task.id)
    eventually(lambda: not is_alive(pid), "it is gone")


def test_a_function_that_takes_too_long(swarm: Swarm) -> None:
    task = swarm.client.submit_task(
        python=f"{WORKLOAD}:wait",
        arguments=[600],
        timeout=0.3,
        retry={"max_attempts": 1},
        wait=30,
    )
    assert (task.state, task.attempts[-1].state) == ("failed", "timed_out")


def test_a_big_value_comes_through(swarm: Swarm) -> None:
    text = swarm.client.run("builtins:str.upper", "ä" * 200_000)
    assert text == "Ä" * 200_000


def test_the_interpreter_is_warm(swarm: Swarm) -> None:
    pids = set(swarm.client.map(f"{WORKLOAD}:wait", [[0]] * 100))
    assert len(pids) <= 8 + 2
    assert os.getpid() not in pids
