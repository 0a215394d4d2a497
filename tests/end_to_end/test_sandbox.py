"""Tasks in the sandbox of a whole worker: what they have, what they lack, and what is told."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attacks.somebody import refuse

from .conftest import SwarmMaker
from .swarm import Swarm, eventually, is_alive, processes_of

needs_bubblewrap = pytest.mark.skipif(
    shutil.which("bwrap") is None, reason="bubblewrap is not installed: make test-tools"
)
SETTINGS = '[worker]\nsandbox = "required"\ncpu_cores = 4\n'
SECRET_KEY = "sk-thisisthekeyofamodelserver"


@pytest.fixture(scope="module")
def confined(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swarm]:
    made = Swarm(tmp_path_factory.mktemp("confined") / "home", SETTINGS)
    made.environment.pop("MYCEL_WORKER__SANDBOX")
    try:
        made.up(workers=1)
        yield made
    finally:
        made.stop()


@needs_bubblewrap
class TestConfined:
    def test_a_worker_says_what_holds_its_tasks(self, confined: Swarm) -> None:
        [worker] = confined.mycel("workers", "--json").json["items"]
        has = worker["capabilities"]
        assert (has["sandbox"], has["network"]) == ("bubblewrap", False)
        assert {"memory", "file_size", "wall_time"} <= set(has["limits"])
        log = (confined.home / "worker-1" / "log.jsonl").read_text().splitlines()
        [held] = [line for line in map(json.loads, log) if line["event"] == "tasks_held"]
        assert held["sandbox"] == "bubblewrap"
        assert held["walls"].startswith("bubblewrap, seccomp")

    def test_a_command_has_no_rights_and_no_view(self, confined: Swarm) -> None:
        script = "id -u; grep -E 'CapEff|NoNewPrivs|Seccomp:' /proc/self/status; ls /; ls ~ | wc -l"
        done = confined.mycel("run", "--sandbox", "required", "--", "sh", "-c", script)
        assert done.code == 0, done
        lines = done.out.split()
        assert lines[0] != "0"
        assert "0000000000000000" in lines
        assert not {"home", "run", "boot"} & set(lines)
        assert lines[-1] == "0"

    def test_from_outside_a_task_is_no_root_either(self, confined: Swarm) -> None:
        task = confined.client.submit_task(command=["sleep", "1000.125"])

        def sleeping() -> Path | None:
            for pid, arguments in processes_of(confined.home).items():
                if Path(arguments.split(" ")[0]).name == "sleep" and "1000.125" in arguments:
                    return Path(f"/proc/{pid}/status")
            return None

        status = (eventually(sleeping, "it runs") or Path()).read_text()
        confined.client.cancel(task.id)
        if os.geteuid() == 0:
            assert "Uid:\t65534\t65534\t65534\t65534" in status
        assert "CapEff:\t0000000000000000" in status

    def test_what_it_cannot_have_is_explained(self, confined: Swarm) -> None:
        task = confined.client.submit_task(command=["true"], network=True)
        done = confined.mycel("explain", task.id)
        assert "needs the network, it gives tasks none" in done.out, done
        confined.client.cancel(task.id)

    def test_a_command_outside_of_its_view_is_told(self, confined: Swarm) -> None:
        tool = confined.home.parent / "tool"
        tool.write_text("#!/bin/sh\n")
        tool.chmod(0o755)
        task = confined.client.submit_task(command=[str(tool)], wait=30)
        assert (task.state, task.exit_code) == ("failed", 127)
        assert "readable_paths" in (task.error or "")

    def test_a_memory_hog_is_told_its_limit(self, confined: Swarm) -> None:
        hog = ["python3", "-S", "-c", "x = b'x' * (300 << 20)"]
        task = confined.client.submit_task(
            command=hog, requirements={"min_memory": "100MB"}, wait=30
        )
        assert task.state == "failed"
        assert len(task.attempts) == 1, "it is the task's own fault"
        if "processes" in confined.worker("worker-1").capabilities["limits"]:
            assert (task.error or "").startswith("MemoryLimitExceeded: used more than 100 MB")

    def test_a_function_and_its_packages_are_there(self, confined: Swarm) -> None:
        assert confined.client.run("msgspec.json:decode", "[1, 2]") == [1, 2]

    def test_nothing_survives_worker_and_helper(self, make_swarm: SwarmMaker) -> None:
        swarm = make_swarm(SETTINGS)
        swarm.environment.pop("MYCEL_WORKER__SANDBOX")
        swarm.up(workers=1)
        swarm.client.submit_task(command=["sh", "-c", "setsid sleep 1000.5 & exec sleep 1000.25"])
        _kill_worker_and_helper(swarm, ("sleep 1000.5", "sleep 1000.25"))


def _kill_worker_and_helper(swarm: Swarm, commands: tuple[str, ...]) -> None:
    """Both at one blow, so that neither can clear up after the other."""

    def found() -> list[int]:
        there = processes_of(swarm.home)
        pids = [pid for pid, words in there.items() if words.startswith(commands)]
        return pids if len(pids) == len(commands) else []

    tasks = eventually(found, "both processes run")
    worker = swarm.pids["worker-1"]
    helper = int(Path(f"/proc/{worker}/task/{worker}/children").read_text().split()[0])
    os.kill(worker, signal.SIGSTOP)
    os.kill(helper, signal.SIGKILL)
    os.kill(worker, signal.SIGKILL)
    eventually(lambda: not is_alive(worker), "the worker is dead")
    swarm.up()
    eventually(lambda: not any(map(is_alive, tasks)), "no task is left")


def test_what_a_crash_left_is_ended_at_the_next_start(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm()
    swarm.up(workers=1)
    swarm.client.submit_task(command=["sh", "-c", "setsid sleep 1000.5 & exec sleep 1000.25"])
    _kill_worker_and_helper(swarm, ("sleep 1000.5", "sleep 1000.25"))


def test_required_and_absent_is_no_start(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm('[worker]\nsandbox = "required"\n')
    swarm.environment.pop("MYCEL_WORKER__SANDBOX")
    done = subprocess.run(
        swarm.command("up", "--detach", "--port", "0", "--workers", "1"),
        env=swarm.environment,
        preexec_fn=refuse,
        capture_output=True,
        timeout=60,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "the kernel refuses new namespaces" in done.stderr, done


def test_no_secret_is_in_a_log_a_metric_or_a_process_list(make_swarm: SwarmMaker) -> None:
    settings = f'[worker.models.oracle]\nendpoint = "http://127.0.0.1:9/v1"\nkey = "{SECRET_KEY}"\n'
    swarm = make_swarm(settings)
    swarm.up(workers=1)
    secrets = [swarm.token, SECRET_KEY, "a-variable-of-mine"]
    swarm.client.submit_task(command=["true"], env={"PASSWORD": secrets[2]}, wait=30)
    failed = swarm.client.submit_task(command=["false"], env={"PASSWORD": secrets[2]}, wait=30)
    lost = swarm.client.submit_task(model="oracle", input="x", retry={"max_attempts": 1}, wait=30)
    running = swarm.client.submit_task(command=["sleep", "1000"], env={"PASSWORD": secrets[2]})
    eventually(
        lambda: any("sleep 1000" in one for one in processes_of(swarm.home).values()), "it runs"
    )
    texts = [path.read_text() for path in swarm.home.glob("*/log.jsonl*")]
    texts += [" ".join(processes_of(swarm.home).values()), str(failed.error), str(lost.error)]
    texts += [str(swarm.client.get(f"/api/v1/tasks/{running.id}")), swarm.client.metrics()]
    swarm.client.cancel(running.id)
    for secret in secrets:
        assert not [text for text in texts if secret in text]
