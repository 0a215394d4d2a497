"""Tasks that report: progress that clients see, and checkpoints that later tries find."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from .conftest import QUICK, SwarmMaker
from .swarm import REPOSITORY, WORKLOAD, Swarm, eventually

GUIDE = (REPOSITORY / "docs" / "guides" / "progress.md").read_text()


def example(name: str) -> str:
    found = re.search(rf"```\w+\n# {re.escape(name)}\n(.*?)```", GUIDE, re.DOTALL)
    assert found is not None
    return found[1]


def test_progress_shows_while_a_task_runs_and_stays_with_it(swarm: Swarm, tmp_path: Path) -> None:
    release = tmp_path / "release"
    arguments = [0.4, "epoch 4", {"loss": 0.25}, str(release)]
    task = swarm.client.submit_task(python=f"{WORKLOAD}:report", arguments=arguments)
    eventually(lambda: swarm.client.task(task.id).progress, "it reports")
    seen = swarm.client.task(task.id)
    assert (seen.progress, seen.message, seen.metrics) == (0.4, "epoch 4", {"loss": 0.25})
    assert re.search(rf"{task.id} +running +1 +40%", swarm.mycel("tasks").out)
    release.touch()
    ended = swarm.client.wait(task.id)
    assert (ended.state, ended.progress, ended.metrics) == ("succeeded", 0.4, {"loss": 0.25})


def test_progress_is_an_event(swarm: Swarm, tmp_path: Path) -> None:
    release = tmp_path / "release"
    following = swarm.popen("events", "-f", "--json", "--kinds", "task.progress")
    assert following.stdout is not None
    arguments = [0.5, "half", {}, str(release)]
    task = swarm.client.submit_task(python=f"{WORKLOAD}:report", arguments=arguments)
    for line in following.stdout:
        event = json.loads(line)
        if event["kind"] == "task.progress" and event["task_id"] == task.id:
            assert (event["progress"], event["message"]) == (0.5, "half")
            break
    release.touch()
    swarm.client.wait(task.id)


def test_the_guides_python_example(make_swarm: SwarmMaker, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(example("train.py"))
    swarm = make_swarm()
    swarm.environment["PYTHONPATH"] += f":{tmp_path}"
    swarm.up(workers=1)
    task = swarm.client.submit_task(wait=30, python="train:train", arguments=[5])
    assert (task.value, task.progress, task.message) == (0, 1.0, "epoch 5")
    assert task.metrics == {"loss": 0.2}


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_guides_shell_example_goes_on_from_its_checkpoint(swarm: Swarm) -> None:
    task = swarm.client.submit_task(
        wait=30, command=["sh", "-ec", example("report.sh")], retry={"on_error": True}
    )
    assert task.state == "failed" or len(task.attempts) <= 2
    ended = swarm.client.wait(task.id)
    assert (ended.state, len(ended.attempts)) == ("succeeded", 2), swarm.client.logs(task.id)
    assert (ended.message, ended.metrics) == ("try 2", {"tries": 2.0})
    folder = Path(f"{swarm.journal}.checkpoints")
    eventually(lambda: not list(folder.glob(f"{task.job_id}/*")), "the checkpoint is gone")


def test_another_worker_finds_the_checkpoint_of_one_that_was_killed(
    make_swarm: SwarmMaker, tmp_path: Path
) -> None:
    swarm = make_swarm(QUICK)
    swarm.up(workers=2)
    note = tmp_path / "note"
    size = 3_000_000  # several pieces
    task = swarm.client.submit_task(python=f"{WORKLOAD}:checkpointed", arguments=[size, str(note)])
    eventually(note.exists, "the first try has left its checkpoint")
    first = swarm.client.task(task.id).worker
    swarm.kill(swarm.name_of(first))
    ended = swarm.client.wait(task.id)
    assert (ended.state, ended.value) == ("succeeded", size), ended.error
    assert ended.worker != first


def test_wrong_reports_are_refused_and_say_why(swarm: Swarm) -> None:
    task = swarm.client.submit_task(wait=30, python=f"{WORKLOAD}:report_wrongly")
    assert task.state == "succeeded", task.error
    assert "progress" in task.value[0]
    assert task.value[1] == "a checkpoint has at least one byte"
    assert task.value[2] == "a checkpoint has at most 67108864 bytes"


def test_nothing_is_left_of_the_sockets(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm()
    swarm.up(workers=1)
    task = swarm.client.submit_task(wait=30, command=["sh", "-c", "echo $MYCEL_SOCKET"])
    path = Path(swarm.client.logs(task.id).stdout.strip())
    assert path.parent.name.startswith("mycel-")
    swarm.kill("worker-1")
    swarm.up(workers=1)
    eventually(lambda: not path.parent.exists(), "the next worker tidies up")
    task = swarm.client.submit_task(wait=30, command=["sh", "-c", "echo $MYCEL_SOCKET"])
    path = Path(swarm.client.logs(task.id).stdout.strip())
    swarm.mycel("down")
    assert not path.parent.exists()


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_tasks_in_the_sandbox_report_too(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm(QUICK + 'sandbox = "required"\n')
    swarm.environment["MYCEL_WORKER__SANDBOX"] = "required"
    swarm.up(workers=1)
    by_hand = (
        "import os, socket; s = socket.socket(socket.AF_UNIX); "
        "s.connect(os.environ['MYCEL_SOCKET']); body = b'{\"progress\": 0.75}'; "
        "s.sendall(b'POST /progress HTTP/1.1\\r\\nContent-Length: %d\\r\\n\\r\\n' % len(body) "
        "+ body); print(s.recv(100).split()[1].decode()); "
        "print(os.listdir(os.path.dirname(os.environ['MYCEL_SOCKET'])))"
    )
    task = swarm.client.submit_task(wait=30, command=["/usr/bin/python3", "-c", by_hand])
    assert task.state == "succeeded", swarm.client.logs(task.id).stderr
    assert task.progress == 0.75
    status, seen = swarm.client.logs(task.id).stdout.splitlines()
    assert status == "204"
    assert len(json.loads(seen.replace("'", '"'))) == 1, "it sees its own socket alone"
