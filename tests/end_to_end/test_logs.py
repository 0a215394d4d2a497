"""Output of tasks: seen while they run, and there after their worker is gone."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import IO

import pytest

from .conftest import SwarmMaker
from .swarm import WORKLOAD, Swarm, eventually

WAITING = "echo begun; echo oh >&2; while [ ! -e {} ]; do sleep 0.02; done; echo done"


def line(stream: IO[bytes] | None) -> str:
    assert stream is not None
    return stream.readline().decode()


def test_run_shows_output_as_it_comes(swarm: Swarm, tmp_path: Path) -> None:
    release = tmp_path / "release"
    running = swarm.popen("run", "--", "sh", "-c", WAITING.format(release))
    assert line(running.stdout) == "begun\n"
    assert line(running.stderr) == "oh\n"
    release.touch()
    assert line(running.stdout) == "done\n"
    assert running.wait(30) == 0


@pytest.mark.parametrize("kind", ["process", "python"])
def test_logs_are_followed(swarm: Swarm, tmp_path: Path, kind: str) -> None:
    release = tmp_path / "release"
    if kind == "process":
        task = swarm.client.submit_task(command=["sh", "-c", WAITING.format(release)])
    else:
        words = ["begun", "done"]
        task = swarm.client.submit_task(python=f"{WORKLOAD}:talk", arguments=[words, str(release)])
    following = swarm.popen("logs", "-f", task.id)
    assert line(following.stdout) == "begun\n"
    so_far = swarm.client.logs(task.id)
    assert (so_far.stdout, so_far.complete) == ("begun\n", False)
    release.touch()
    assert line(following.stdout) == "done\n"
    assert following.wait(30) == 0
    assert swarm.client.logs(task.id).stdout == "begun\ndone\n"
    # What was kept meanwhile is gone: the journal has it now.
    assert not list(Path(f"{swarm.journal}.live").glob(f"{task.job_id}/*"))


def test_submit_follow_shows_output_of_each_task(swarm: Swarm, tmp_path: Path) -> None:
    release = tmp_path / "release"
    file = tmp_path / "job.json"
    command = ["sh", "-c", WAITING.format(release)]
    file.write_text(json.dumps({"task": {"command": command}, "count": 2}))
    submitting = swarm.popen("submit", "--follow", str(file))
    begun = sorted([line(submitting.stdout), line(submitting.stdout)])
    assert begun == ["[0] begun\n", "[1] begun\n"]
    release.touch()
    out, _ = submitting.communicate(timeout=30)
    assert out.count(b" done\n") == 2
    assert out.count(b"succeeded") == 2


def test_logs_survive_the_worker(make_swarm: SwarmMaker, tmp_path: Path) -> None:
    swarm = make_swarm()
    swarm.up(workers=1)
    never = tmp_path / "never"
    retry = {"max_attempts": 1}
    task = swarm.client.submit_task(command=["sh", "-c", WAITING.format(never)], retry=retry)
    eventually(lambda: swarm.client.logs(task.id).stderr, "its output has come")
    os.kill(swarm.pids["worker-1"], signal.SIGKILL)
    ended = swarm.client.wait(task.id)
    assert ended.state == "failed"
    assert swarm.mycel("logs", task.id).out == "begun\n"
    assert swarm.mycel("logs", "--stderr", task.id).out == "oh\n"
    following = swarm.mycel("logs", "-f", task.id)
    assert (following.out, following.err) == ("begun\n", "oh\n")


def test_an_attempt_that_begins_anew_says_so(make_swarm: SwarmMaker, tmp_path: Path) -> None:
    swarm = make_swarm()
    swarm.up(workers=2)
    release = tmp_path / "release"
    script = WAITING.format(release).replace("begun", "begun $MYCEL_ATTEMPT")
    running = swarm.popen("run", "--", "sh", "-c", script)
    assert line(running.stdout) == "begun 1\n"
    [task] = swarm.client.tasks(state="running")
    swarm.kill(swarm.name_of(task.worker))
    assert line(running.stdout) == "begun 2\n"
    release.touch()
    out, err = running.communicate(timeout=30)
    assert (running.returncode, out) == (0, b"done\n")
    assert b"attempt 2 of" in err
