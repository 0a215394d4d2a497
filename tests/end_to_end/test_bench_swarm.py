"""`mycel bench swarm`, with so few nodes that its figures mean nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import psutil
import pytest

from mycel.bench.swarm.measure_plan import Plan
from mycel.bench.swarm.swarm_report import SwarmBenchFigures
from tests.end_to_end.swarm import eventually, is_alive

SMALL = ["--nodes", "12", "--processes", "4", "--scale", "0.1"]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "mycel", "bench", "swarm", *arguments]


def test_it_prints_one_flat_object_and_everything_arrives() -> None:
    done = subprocess.run(command("--json", *SMALL), capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert list(figures) == list(SwarmBenchFigures.__struct_fields__)
    assert all(isinstance(value, str | int | float) for value in figures.values())
    assert figures["joined"] == 12
    found = figures["lookups_found"], figures["lookups_found_after_kill"]
    assert found == (10, 10), done.stderr
    assert figures["gossip_delivered"] == figures["gossip_burst_delivered"] == 1.0
    assert figures["killed"] == 6
    speeds = [value for name, value in figures.items() if name.endswith("_per_s")]
    assert all(value > 0 for value in speeds)
    assert figures["hello_ms_p50"] > 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_all_its_processes(number: signal.Signals) -> None:
    with subprocess.Popen(command(*SMALL), stderr=subprocess.PIPE, text=True) as bench:
        assert bench.stderr is not None
        line = next(line for line in bench.stderr if "join" in line)
        assert "12 nodes" in line
        children = [child.pid for child in psutil.Process(bench.pid).children(recursive=True)]
        assert len(children) >= 4
        bench.send_signal(number)
        bench.stderr.read()
        assert bench.wait(30) == 130
    eventually(lambda: not any(is_alive(pid) for pid in children), "its processes have ended")


def test_its_processes_do_not_outlive_it_when_it_is_killed() -> None:
    with subprocess.Popen(command(*SMALL), stderr=subprocess.PIPE, text=True) as bench:
        assert bench.stderr is not None
        assert any("have joined" in line for line in bench.stderr)
        children = [child.pid for child in psutil.Process(bench.pid).children(recursive=True)]
        assert len(children) >= 4
        for child in children:  # so busy that none can see the end of its input
            os.kill(child, signal.SIGSTOP)
        bench.kill()
        bench.wait()
    eventually(lambda: not any(is_alive(pid) for pid in children), "its processes have ended")


@pytest.mark.parametrize("suite", ["quick", "drivers", "matching", "swarm", "blobs"])
def test_each_suite_explains_its_own_options(suite: str) -> None:
    asked = [sys.executable, "-m", "mycel", "bench", suite, "--help"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert f"usage: mycel bench {suite} [-h] [--json]" in done.stdout


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--nodes", "3"], "--nodes is 8 to"),
        (["--nodes", "12", "--processes", "3"], "--processes is 4"),
        (["--nodes", "12", "--processes", "7"], "--processes is 4"),
        (["--scale", "0"], "--scale is above 0"),
    ],
)
def test_what_cannot_be_measured_is_refused(wrong: list[str], said: str) -> None:
    done = subprocess.run(command(*wrong), capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.parametrize(("nodes", "processes"), [(300, 10), (12, 4), (31, 7)])
def test_nodes_are_spread_evenly(nodes: int, processes: int) -> None:
    spread = Plan(nodes, processes, 1).spread()
    assert sum(spread) == nodes
    assert max(spread) - min(spread) <= 1
