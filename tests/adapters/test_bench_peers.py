"""The comparison with peers: what can be said of it without installing them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

PEER = """
import sys
sys.path.insert(0, {folder!r})
import peer_measures

class Peer:
    def noop(self, number): return peer_measures.expected(number) + {wrong}
    def noops(self, count): return [self.noop(number) for number in range(count)]
    def processes(self, count): assert not any(peer_measures.run_true() for _ in range(count))

peer_measures.first(Peer())
peer_measures.measure(Peer(), noops=10, latencies=10, processes=3, warm_up=2)
"""


def run_peer(wrong: int) -> subprocess.CompletedProcess[str]:
    script = PEER.format(folder=str(BENCHMARKS), wrong=wrong)
    command = [sys.executable, "-c", script]
    return subprocess.run(command, input="\n", capture_output=True, text=True, timeout=60)


def test_a_peer_tells_its_first_result_its_warmth_and_its_figures() -> None:
    told = [json.loads(line) for line in run_peer(0).stdout.splitlines()]
    assert [one["event"] for one in told] == ["first", "warm", "figures"]
    assert all(value > 0 for name, value in told[-1].items() if name != "event")


def test_a_wrong_value_ends_the_measurement() -> None:
    done = run_peer(1)
    assert done.returncode == 1
    assert "task 0 gave 2" in done.stderr


def test_a_missing_environment_is_explained(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "peers.py"), "--environments", str(tmp_path)]
    done = subprocess.run([*command, "--only", "ray"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "--install" in done.stderr
    done = subprocess.run(
        [*command, "--only", "nobody"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "hyperqueue" in done.stderr
