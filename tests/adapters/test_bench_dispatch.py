"""`mycel bench dispatch`, with so few workers that its figures mean nothing."""

from __future__ import annotations

import json

import pytest

from mycel.bench import dispatch_bench
from mycel.console.errors import UsageError


def test_it_prints_a_row_for_each_number_of_workers_and_shapes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dispatch_bench, "WORKERS", (3, 30))
    monkeypatch.setattr(dispatch_bench, "SHAPES", (1, 20))
    assert dispatch_bench.main(["--json", "--tasks", "200"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["workers"], row["shapes"]) for row in rows] == [(3, 1), (3, 20), (30, 1), (30, 20)]
    assert all(row["us_per_task"] > 0.0 for row in rows)


def test_every_worker_is_busy_all_the_time() -> None:
    bench = dispatch_bench.Bench(8, 5)
    bench.submit(200)
    bench.come()
    assert len(bench.machine.state.attempts) >= 8
    bench.finish(100)
    assert {attempt.worker.peer for attempt in bench.machine.state.attempts.values()} == {
        f"worker-{number}" for number in range(8)
    }


def test_a_senseless_number_of_tasks_is_refused() -> None:
    with pytest.raises(UsageError):
        dispatch_bench.main(["--tasks", "1"])
