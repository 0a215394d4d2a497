"""Workers that stop or are drained in order: what runs finishes or goes back, and never counts."""

from __future__ import annotations

import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from mycel.client import Client, ClientError, Task

from .conftest import QUICK, SwarmMaker
from .swarm import Swarm, eventually, is_alive

WAITING = "echo $MYCEL_ATTEMPT; while [ ! -e {} ]; do sleep 0.02; done; echo done"
ONCE = {"max_attempts": 1}


def waiting(swarm: Swarm, release: Path) -> Task:
    """A task that runs until the file is there, and may be tried once."""
    command = ["sh", "-c", WAITING.format(release)]
    task = swarm.client.submit_task(command=command, retry=ONCE)
    eventually(lambda: swarm.client.logs(task.id).stdout, "it runs")
    return swarm.client.task(task.id)


def drain_after(seconds: float) -> str:
    return QUICK + f"drain_seconds = {seconds}\n"


def test_a_worker_that_is_told_to_stop_finishes_what_it_runs(
    make_swarm: SwarmMaker, tmp_path: Path
) -> None:
    swarm = make_swarm(drain_after(60))
    swarm.up(workers=2)
    task = waiting(swarm, tmp_path / "release")
    name = swarm.name_of(task.worker)
    swarm.kill(name, signal.SIGTERM)
    eventually(lambda: not swarm.worker(name).accepting, "it takes no new work")
    assert swarm.worker(name).closed_for == "it is about to stop"
    elsewhere = swarm.client.submit_task(wait=30, command=["true"])
    assert elsewhere.worker != task.worker
    assert is_alive(swarm.pids[name])
    (tmp_path / "release").touch()
    ended = swarm.client.wait(task.id)
    assert (ended.state, ended.worker, len(ended.attempts)) == ("succeeded", task.worker, 1)
    eventually(lambda: not is_alive(swarm.pids[name]), "it has stopped")


def test_what_outlives_the_grace_is_handed_back_and_does_not_count(
    make_swarm: SwarmMaker, tmp_path: Path
) -> None:
    swarm = make_swarm(drain_after(0.5))
    swarm.up(workers=2)
    task = waiting(swarm, tmp_path / "release")
    name = swarm.name_of(task.worker)
    swarm.kill(name, signal.SIGTERM)
    eventually(lambda: not is_alive(swarm.pids[name]), "it has stopped")
    (tmp_path / "release").touch()
    ended = swarm.client.wait(task.id)
    assert ended.state == "succeeded"
    assert ended.worker != task.worker
    assert ended.attempts[0].code == "handed_back"
    assert "handed it back" in (ended.attempts[0].error or "")
    assert swarm.client.logs(task.id).stdout == "1\ndone\n"


def test_a_second_signal_ends_it_at_once_and_nothing_counts(
    make_swarm: SwarmMaker, tmp_path: Path
) -> None:
    swarm = make_swarm(drain_after(600))
    swarm.up(workers=2)
    task = waiting(swarm, tmp_path / "release")
    name = swarm.name_of(task.worker)
    swarm.kill(name, signal.SIGTERM)
    eventually(lambda: not swarm.worker(name).accepting, "it takes no new work")
    swarm.kill(name, signal.SIGINT)
    eventually(lambda: not is_alive(swarm.pids[name]), "it has stopped")
    (tmp_path / "release").touch()
    ended = swarm.client.wait(task.id)
    assert ended.state == "succeeded", ended.error
    assert ended.worker != task.worker


def test_down_hands_back_and_the_next_up_goes_on(make_swarm: SwarmMaker, tmp_path: Path) -> None:
    swarm = make_swarm(drain_after(600))
    swarm.up(workers=1)
    task = waiting(swarm, tmp_path / "release")
    begun = time.monotonic()
    assert "killed" not in swarm.mycel("down").out
    assert time.monotonic() - begun < 30
    (tmp_path / "release").touch()
    swarm.up(workers=1)
    assert swarm.client.wait(task.id).state == "succeeded"


def test_drain_and_resume(make_swarm: SwarmMaker, tmp_path: Path) -> None:
    swarm = make_swarm()
    swarm.up(workers=1)
    done = swarm.mycel("drain", "worker-1")
    assert (done.code, done.out) == (0, "worker-1 takes no new work: it was drained by owner\n")
    task = swarm.client.submit_task(command=["true"])
    explained = eventually(
        lambda: [
            row.reason
            for row in swarm.client.explain(task.id).obstacles
            if "drained by owner" in row.reason
        ],
        "it says why it waits",
    )
    assert explained == ["it takes no new work: it was drained by owner"]
    assert "drained by owner" in swarm.mycel("workers").out
    assert swarm.client.task(task.id).state == "queued"
    assert swarm.mycel("resume", "worker-1").out == "worker-1 takes new work\n"
    assert swarm.client.wait(task.id).state == "succeeded"
    # With a grace: what runs goes back, and runs again.
    task = waiting(swarm, tmp_path / "release")
    assert swarm.mycel("drain", "worker-1", "--grace", "0", "--wait", "--json").code == 0
    eventually(lambda: swarm.client.task(task.id).state == "queued", "it waits again")
    swarm.client.resume("worker-1")
    (tmp_path / "release").touch()
    assert swarm.client.wait(task.id).state == "succeeded"


def test_draining_needs_a_token_that_allows_it(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm()
    swarm.up(workers=1)
    unknown = swarm.mycel("drain", "nobody")
    assert (unknown.code, unknown.err) == (1, "mycel: there is no worker 'nobody'\n")
    made = swarm.mycel("token", "create", "--user", "ada", "--json")
    assert made.code == 0, made
    ada = Client(swarm.api, made.json["token"])
    with ada, pytest.raises(ClientError, match="admin"):
        ada.drain("worker-1")
    assert swarm.worker("worker-1").accepting


def spooled(swarm: Swarm) -> int:
    path = swarm.home / "worker-1" / "spool.db"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        [(count,)] = database.execute("SELECT count(*) FROM results")
    return int(count)


def test_a_result_survives_the_worker_that_is_killed_before_its_acknowledgement(
    make_swarm: SwarmMaker, tmp_path: Path
) -> None:
    swarm = make_swarm()
    swarm.up(workers=1)
    release = tmp_path / "release"
    count = tmp_path / "count"
    script = f"echo ran >> {count}; " + WAITING.format(release)
    task = swarm.client.submit_task(command=["sh", "-c", script], retry=ONCE)
    eventually(lambda: swarm.client.logs(task.id).stdout, "it runs")
    swarm.kill("scheduler")  # nobody is there to acknowledge
    release.touch()
    eventually(lambda: spooled(swarm) == 1, "the result is on disk")
    swarm.kill("worker-1")
    swarm.up(workers=1)
    ended = swarm.client.wait(task.id)
    assert (ended.state, count.read_text()) == ("succeeded", "ran\n")
    assert swarm.client.logs(task.id).stdout == "1\ndone\n"
    eventually(lambda: spooled(swarm) == 0, "the result was acknowledged")


def test_a_result_survives_a_clean_stop_before_its_acknowledgement(
    make_swarm: SwarmMaker, tmp_path: Path
) -> None:
    swarm = make_swarm(drain_after(60))
    swarm.up(workers=1)
    release = tmp_path / "release"
    task = waiting(swarm, release)
    swarm.kill("scheduler")
    swarm.kill("worker-1", signal.SIGTERM)
    release.touch()
    eventually(lambda: not is_alive(swarm.pids["worker-1"]), "the worker has stopped")
    assert spooled(swarm) == 1
    swarm.up(workers=1)
    ended = swarm.client.wait(task.id)
    assert ended.state == "succeeded", ended.error
