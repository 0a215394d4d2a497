"""The command line against a real swarm."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from .conftest import SwarmMaker
from .swarm import Swarm, eventually, is_alive, told_pid


def test_run_gives_the_output_and_the_code(swarm: Swarm) -> None:
    done = swarm.mycel("run", "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (done.code, done.out, done.err) == (3, "out\n", "err\n")


def test_run_passes_bytes_through(swarm: Swarm) -> None:
    done = swarm.mycel("run", "--", "printf", "no newline, \\303\\244")
    assert (done.code, done.out) == (0, "no newline, ä")


def test_run_takes_its_input_along_or_refuses_it(swarm: Swarm) -> None:
    data = bytes(range(256)) * 4096
    sent = swarm.mycel("run", "--stdin", "--", "sh", "-c", "wc -c; exit 3", given=data)
    assert (sent.code, sent.out.strip()) == (3, str(len(data))), sent
    refused = swarm.mycel("run", "--", "cat", given=b"something")
    assert (refused.code, "--stdin" in refused.err) == (2, True), refused
    assert swarm.mycel("run", "--", "cat", given=b"").code == 0
    assert swarm.mycel("run", "--stdin", "--", "no-such-command", given=b"").code == 127


def test_run_of_what_says_nothing_says_where_it_runs(swarm: Swarm, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    wait = f"while [ ! -e {gate} ]; do sleep 0.05; done"
    process = swarm.popen("run", "--", "sh", "-c", wait)
    assert process.stderr is not None
    said = process.stderr.readline()
    gate.touch()
    assert process.wait(timeout=30) == 0
    assert b"it is running on worker-" in said


def test_run_outlives_the_scheduler(make_swarm: SwarmMaker, tmp_path: Path) -> None:
    swarm = make_swarm()
    swarm.up(workers=1)
    gate = tmp_path / "gate"
    wait = f"echo begins; while [ ! -e {gate} ]; do sleep 0.05; done; echo ends; exit 5"
    process = swarm.popen("run", "--", "sh", "-c", wait)
    assert process.stdout is not None
    assert process.stdout.readline() == b"begins\n"
    swarm.kill("scheduler")
    swarm.up()
    gate.touch()
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (5, b"ends\n"), err


def test_run_of_what_does_not_exist(swarm: Swarm) -> None:
    done = swarm.mycel("run", "--", "no-such-command-anywhere")
    assert done.code == 127
    assert "no-such-command-anywhere" in done.err


def test_run_of_what_may_not_be_run(swarm: Swarm) -> None:
    done = swarm.mycel("run", "--", "/etc/passwd")
    assert done.code == 126
    assert "/etc/passwd" in done.err


def test_run_that_takes_too_long(swarm: Swarm) -> None:
    done = swarm.mycel("run", "--timeout", "0.3", "--", "sleep", "600")
    assert done.code == 124
    assert "too long" in done.err


def test_run_of_what_a_signal_ends(swarm: Swarm) -> None:
    assert swarm.mycel("run", "--", "sh", "-c", "kill -TERM $$").code == 128 + signal.SIGTERM
    assert swarm.mycel("run", "--", "sh", "-c", "kill -KILL $$").code == 128 + signal.SIGKILL


def test_run_with_an_environment(swarm: Swarm) -> None:
    done = swarm.mycel("run", "--env", "FRUIT=a pear", "--", "sh", "-c", 'echo "$FRUIT"')
    assert done.out == "a pear\n"


def test_run_as_json(swarm: Swarm) -> None:
    done = swarm.mycel("run", "--json", "--", "sh", "-c", "echo out; exit 4")
    assert done.code == 4
    assert (done.json["state"], done.json["stdout"]) == ("failed", "out\n")
    assert done.json["attempts"][-1]["exit_code"] == 4


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_ends_its_task(
    swarm: Swarm, tmp_path: Path, number: signal.Signals
) -> None:
    script = f"echo $$ > {tmp_path}/pid; sleep 600; true"
    process = swarm.popen("run", "--name", str(tmp_path), "--", "sh", "-c", script)
    pid = told_pid(tmp_path / "pid")
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode == 128 + number
    eventually(lambda: not is_alive(pid), "the command is gone")
    found = [task for task in swarm.client.tasks(limit=200) if task.name == str(tmp_path)]
    assert [task.state for task in found] == ["cancelled"]


def test_run_detached_then_logs(swarm: Swarm) -> None:
    task = swarm.mycel("run", "--detach", "--", "sh", "-c", "echo out; echo err >&2").out.strip()
    swarm.client.wait(task, 30)
    assert swarm.mycel("logs", task).out == "out\n"
    assert swarm.mycel("logs", "--stderr", task).out == "err\n"
    assert swarm.mycel("logs", "--json", task).json == {"stdout": "out\n", "stderr": "err\n"}
    job = task.partition(".")[0]
    assert swarm.mycel("logs", job[:22]).code in (0, 1)  # a prefix; others may share it
    assert swarm.mycel("logs", job).out == "out\n"


def test_submit_a_file_and_wait(swarm: Swarm, tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(
        'name = "sums"\narguments = [[1, 2], [3, 4], [5, 6]]\n'
        '[task]\npython = "tests.end_to_end.workload:add"\n'
    )
    done = swarm.mycel("submit", "--wait", "--json", str(file))
    assert done.code == 0, done
    assert (done.json["state"], done.json["tasks"]["succeeded"]) == ("succeeded", 3)
    followed = swarm.mycel("submit", "--follow", "--json", str(file))
    lines = [json.loads(line) for line in followed.out.splitlines()]
    assert sorted(line["value"] for line in lines) == [3, 7, 11]
    listed = swarm.mycel("tasks", "--json", "--job", done.json["id"]).json["items"]
    assert [task["state"] for task in listed] == ["succeeded"] * 3


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("job.toml", "[task\n", "line 1"),
        ("job.toml", 'comand = ["true"]\ncommand = ["a"]\n', "line 1"),
        ("job.json", '{"task": }', "line 1, column 10"),
        ("job.toml", 'count = 1\n[task]\ncomand = ["true"]\n', "line 3"),
        ("job.toml", 'count = -1\n[task]\ncommand = ["true"]\n', "line 1"),
    ],
)
def test_submit_a_file_with_a_mistake(
    swarm: Swarm, tmp_path: Path, name: str, text: str, said: str
) -> None:
    file = tmp_path / name
    file.write_text(text)
    done = swarm.mycel("submit", str(file))
    assert done.code == 1
    assert f"{file}, {said}" in done.err, done
    assert "Traceback" not in done.err


def test_submit_a_job_that_fails(swarm: Swarm, tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_text('{"command": ["false"]}')
    done = swarm.mycel("submit", "--wait", str(file))
    assert done.code == 1
    assert "1 failed" in done.out


def test_lists_for_people_and_programs(swarm: Swarm) -> None:
    workers = swarm.mycel("workers")
    assert workers.code == 0
    assert "worker-1" in workers.out
    assert len(swarm.mycel("workers", "--json").json["items"]) == 2
    assert swarm.mycel("tasks").code == 0
    assert "items" in swarm.mycel("tasks", "--json", "--state", "failed").json
    wrong = swarm.mycel("tasks", "--state", "lost")
    assert wrong.code == 1
    assert "queued" in wrong.err


def test_lists_show_what_each_task_of_a_sweep_is(swarm: Swarm, tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    leaves = {"command": ["sh", "-c", "echo ${lr} > out.txt"], "outputs": ["out.txt"]}
    stages = [
        {"name": "train", "task": leaves, "matrix": {"lr": [0.1, 0.2]}},
        {"name": "sum", "needs": ["train"], "task": {"python": "builtins:len"}, "inputs": ["abc"]},
    ]
    file.write_text(json.dumps({"name": "shown in lists", "stages": stages}))
    job = swarm.mycel("submit", "--wait", "--json", str(file)).json
    listed = swarm.mycel("tasks", "--json", job["id"]).json["items"]
    assert [task["arguments"] for task in listed] == [{"lr": 0.1}, {"lr": 0.2}, ["abc"]]
    assert [task["outputs"]["files"] for task in listed if task["outputs"]] == [1, 1]
    shown = swarm.mycel("tasks", job["id"], "--stage", "train").out
    assert "echo 0.1 > out.txt" in shown
    assert "echo 0.2 > out.txt" in shown
    assert "builtins:len" not in shown
    [found] = swarm.mycel("jobs", "--json", "--name", "shown in*").json["items"]
    assert found["stages"] == job["stages"]


def test_following_tells_how_processes_end_and_what_functions_give(
    swarm: Swarm, tmp_path: Path
) -> None:
    file = tmp_path / "job.json"
    stages = [
        {"name": "a", "task": {"command": ["true"]}},
        {"name": "b", "needs": ["a"], "task": {"python": "builtins:len", "arguments": ["abc"]}},
        {
            "name": "c",
            "needs": ["b"],
            "task": {"python": "operator:mul", "arguments": ["x", 2_000_000]},
        },
    ]
    file.write_text(json.dumps({"stages": stages}))
    lines = swarm.mycel("submit", "--follow", str(file)).out.splitlines()
    assert [line.split("  ", 2)[2] for line in lines] == [
        "exit code 0",
        "3",
        "2.0 MB; Client.result brings it",
    ]


def test_explain_and_cancel(swarm: Swarm) -> None:
    task = swarm.client.submit_task(command=["true"], requirements={"cpu_cores": 1000}).id
    explained = swarm.mycel("explain", task)
    assert "needs 1000 cores, it has 4" in explained.out
    assert swarm.mycel("explain", "--json", task).json["reason"] == "no_match"
    for _ in range(2):
        cancelled = swarm.mycel("cancel", task)
        assert (cancelled.code, cancelled.out) == (0, f"{task} is cancelled\n")
    done = swarm.client.submit_task(command=["true"], wait=30).id
    refused = swarm.mycel("cancel", done)
    assert refused.code == 1
    assert "succeeded" in refused.err
    assert "is succeeded: attempt 1" in swarm.mycel("explain", done).out
    failed = swarm.client.submit_task(command=["false"], wait=30).id
    assert "is failed: attempt 1: exit code 1" in swarm.mycel("explain", failed).out
    assert "is cancelled (cancelled by its user)" in swarm.mycel("explain", task).out


def test_run_says_that_it_waits_for_a_worker_that_can(swarm: Swarm) -> None:
    process = swarm.popen("run", "--gpus", "1", "--", "true")
    assert process.stderr is not None
    said = process.stderr.readline()
    process.terminate()
    process.communicate(timeout=30)
    assert said.startswith(b"mycel: it waits for a worker that can run it; 'mycel explain ")


def test_cancel_a_whole_job(swarm: Swarm) -> None:
    job = swarm.client.submit_job({"command": ["sleep", "600"]}, count=30)
    eventually(lambda: swarm.client.job(job.id).tasks.running >= 8, "the job fills the swarm")
    cancelled = swarm.mycel("cancel", "--json", job.id)
    assert cancelled.json["tasks"]["cancelled"] == 30
    assert swarm.client.submit_task(command=["echo", "free"], wait=30).value == "free\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("explain", "01arz3ndektsv4rrffq69g5fav.0"),
        ("logs", "01arz3ndektsv4rrffq69g5fav.0"),
        ("cancel", "01arz3ndektsv4rrffq69g5fav"),
        ("cancel", "zz"),
        ("cancel", ""),
        ("submit", "/no/such/file.toml"),
    ],
)
def test_what_does_not_exist(swarm: Swarm, arguments: tuple[str, ...]) -> None:
    done = swarm.mycel(*arguments)
    assert done.code == 1, done
    assert done.err.startswith("mycel: ")
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    "arguments",
    [("run",), ("run", "--env", "x", "--", "true"), ("up", "--workers", "0"), ("tasks", "--nope")],
)
def test_wrong_usage(swarm: Swarm, arguments: tuple[str, ...]) -> None:
    done = swarm.mycel(*arguments)
    assert done.code == 2, done
    assert "Traceback" not in done.err


def test_following_outlives_the_scheduler(make_swarm: SwarmMaker, tmp_path: Path) -> None:
    swarm = make_swarm()
    swarm.up(workers=1)
    file = tmp_path / "job.json"
    gate = tmp_path / "gate"
    wait = f"echo begins; while [ ! -e {gate} ]; do sleep 0.05; done; exit ${{code}}"
    file.write_text(
        json.dumps({"task": {"command": ["sh", "-c", wait]}, "matrix": {"code": [0, 3, 0]}})
    )
    process = swarm.popen("submit", "--follow", str(file))
    assert process.stdout is not None
    assert b"begins" in process.stdout.readline()
    swarm.kill("scheduler")
    swarm.up()
    gate.touch()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    lines = [line.split(b"  ") for line in out.splitlines() if b"begins" not in line]
    assert sorted(line[1:] for line in lines) == [
        [b"failed", b"exit code 3"],
        [b"succeeded", b"exit code 0"],
        [b"succeeded", b"exit code 0"],
    ]
    assert b"2 succeeded, 1 failed" in err
    assert b"1 \xc3\x97 exit code 3  (.1)" in err


def test_a_job_that_is_no_longer_followed_goes_on(swarm: Swarm, tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    script = f"echo $$ > {tmp_path}/pid; echo begins; sleep 600; true"
    file.write_text(json.dumps({"command": ["sh", "-c", script], "name": str(tmp_path)}))
    process = swarm.popen("submit", "--follow", str(file))
    pid = told_pid(tmp_path / "pid")
    assert process.stdout is not None
    assert b"begins" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert is_alive(pid)
    [job] = swarm.mycel("jobs", "--json", "--name", str(tmp_path)).json["items"]
    assert job["state"] == "running"
    assert f"mycel follow {job['id']}".encode() in err
    assert swarm.mycel("cancel", job["id"]).code == 0
