"""`mycel up` and `mycel down`: what they start, keep, print and leave behind."""

from __future__ import annotations

import json
import os
import select
import signal
import stat
import subprocess
from pathlib import Path

from .conftest import SwarmMaker
from .swarm import Swarm, eventually, is_alive, is_listening, processes_of, told_pid

SWITCHED_OFF = 'nothing: switched off: [worker] sandbox = "off"'


def line_of(process: subprocess.Popen[bytes], seconds: float = 60.0) -> bytes:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], seconds)
    assert ready, "nothing was printed"
    return process.stdout.readline()


def identities(swarm: Swarm) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in swarm.home.glob("*/identity.key")}


def test_up_prints_one_object_and_again_the_same(swarm: Swarm) -> None:
    again = swarm.mycel("up", "--detach", "--json")
    assert again.code == 0, again
    assert len(again.out.splitlines()) == 1
    assert again.json == {
        "api": swarm.api,
        "home": str(swarm.home),
        "pids": swarm.pids,
        "walls": dict.fromkeys(("worker-1", "worker-2"), SWITCHED_OFF),
    }
    assert list(again.json) == ["api", "home", "pids", "walls"]
    assert list(swarm.pids) == ["gateway", "scheduler", "worker-1", "worker-2"]
    assert all(is_alive(pid) for pid in swarm.pids.values())
    assert stat.S_IMODE((swarm.home / "token").stat().st_mode) == 0o600


def test_up_returns_when_its_workers_take_work(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm()
    done = swarm.mycel("up", "--detach", "--json", "--port", "0", "--workers", "2")
    assert (done.code, done.err) == (0, ""), done
    swarm.take(done.json)
    assert [worker.state for worker in swarm.client.workers()] == ["healthy"] * 2


def test_more_workers_share_the_machine_with_those_that_run(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm("")
    whole = swarm.up(workers=1)
    memory = swarm.worker("worker-1").capabilities["memory"]
    both = swarm.up(workers=2)
    assert both["pids"]["worker-1"] != whole["pids"]["worker-1"], "it started again, with less"
    halves = [swarm.worker(name).capabilities["memory"] for name in ("worker-1", "worker-2")]
    assert halves == [memory // 2] * 2
    task = swarm.client.submit_task(command=["sleep", "600"])
    eventually(lambda: swarm.client.task(task.id).state == "running", "one of them is busy")
    three = swarm.mycel("up", "--detach", "--json", "--workers", "3")
    assert "is busy, and keeps more than its share" in three.err
    [busy] = three.json["kept"]
    assert three.json["pids"][busy] == both["pids"][busy]
    assert swarm.client.task(task.id).state == "running"
    rest = {
        swarm.worker(name).capabilities["memory"]
        for name in ("worker-1", "worker-2", "worker-3")
        if name != busy
    }
    assert rest == {(memory - memory // 2) // 2}
    assert swarm.client.cancel(task.id).state == "cancelled"


def test_a_missing_role_comes_back_as_the_same_node(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm()
    first = swarm.up(workers=2)
    ports, keys, peer = swarm.ports, identities(swarm), swarm.worker("worker-2").peer_id
    swarm.kill("worker-2")
    swarm.kill("gateway")
    second = swarm.up()
    assert second["api"] == first["api"]
    assert second["pids"]["scheduler"] == first["pids"]["scheduler"]
    assert second["pids"]["worker-1"] == first["pids"]["worker-1"]
    assert second["pids"]["worker-2"] != first["pids"]["worker-2"]
    assert second["pids"]["gateway"] != first["pids"]["gateway"]
    assert (swarm.ports, identities(swarm)) == (ports, keys)
    assert swarm.worker("worker-2").peer_id == peer
    assert is_listening(ports["worker-2"])
    assert swarm.client.run("tests.end_to_end.workload:add", 1, 2) == 3


def test_down_leaves_no_process_and_no_port(make_swarm: SwarmMaker, tmp_path: Path) -> None:
    swarm = make_swarm()
    swarm.up(workers=2)
    swarm.client.submit_task(
        python="tests.end_to_end.workload:grow_a_tree", arguments=[str(tmp_path), "t"]
    )
    swarm.client.submit_task(command=["sleep", "600"])
    swarm.client.submit_task(command=["sh", "-c", "trap '' TERM; sleep 600 & wait; sleep 600"])
    grandchild = told_pid(tmp_path / "t.grandchild")
    ports = swarm.ports
    assert all(is_listening(port) for port in ports.values())
    down = swarm.mycel("down", "--json")
    assert down.code == 0, down
    assert {one["name"]: one["pid"] for one in down.json["stopped"]} == swarm.pids
    assert not any(one["killed"] for one in down.json["stopped"]), down
    assert not any(is_listening(port) for port in ports.values())
    assert not processes_of(swarm.home)
    assert not is_alive(grandchild)
    again = swarm.mycel("down")
    assert (again.code, again.out) == (0, "nothing was running\n")
    swarm.up()
    assert swarm.ports == ports


def test_two_homes_live_side_by_side(make_swarm: SwarmMaker) -> None:
    one, two = make_swarm(name="one"), make_swarm(name="two")
    one.up(workers=1)
    two.up(workers=1)
    assert one.token != two.token
    assert not set(one.ports.values()) & set(two.ports.values())
    task = one.client.submit_task(command=["echo", "one"], wait=30)
    assert task.value == "one\n"
    assert [worker.name for worker in two.client.workers()] == ["worker-1"]
    assert two.client.stats()["tasks_succeeded"] == 0
    one.mycel("down")
    assert two.client.submit_task(command=["echo", "two"], wait=30).value == "two\n"


def interrupt_up(swarm: Swarm, number: signal.Signals) -> None:
    process = swarm.popen("up", "--json", "--port", "0", "--workers", "1")
    printed = json.loads(line_of(process))
    swarm.take(printed)
    task = swarm.client.submit_task(command=["sleep", "600"])
    eventually(lambda: swarm.client.task(task.id).state == "running", "the task runs")
    ports = swarm.ports
    process.send_signal(number)
    assert process.wait(timeout=30) == 0
    assert not any(is_alive(pid) for pid in printed["pids"].values())
    assert not any(is_listening(port) for port in ports.values())
    assert not processes_of(swarm.home)


def test_ctrl_c_leaves_nothing(make_swarm: SwarmMaker) -> None:
    interrupt_up(make_swarm(), signal.SIGINT)


def test_a_terminal_that_closes_leaves_nothing(make_swarm: SwarmMaker) -> None:
    interrupt_up(make_swarm(), signal.SIGHUP)


def test_a_foreground_up_says_when_a_role_ends(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm()
    process = swarm.popen("up", "--json", "--port", "0", "--workers", "1")
    swarm.take(json.loads(line_of(process)))
    os.kill(swarm.pids["worker-1"], signal.SIGKILL)
    assert process.stderr is not None
    assert b"Ctrl-C" in process.stderr.readline()
    assert b"worker-1 has ended" in process.stderr.readline()


def test_two_ups_at_once_start_one_swarm(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm()
    both = [swarm.popen("up", "--detach", "--json", "--port", "0", "--workers", "1") for _ in "ab"]
    said = [one.communicate(timeout=60) for one in both]
    assert [one.returncode for one in both] == [0, 0], said
    first, second = (json.loads(out) for out, _ in said)
    assert first == second
    swarm.take(first)
