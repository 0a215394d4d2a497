"""`mycel bench sim` gives its figures, and its engines agree with SimPy."""

from __future__ import annotations

import json

import pytest

from mycel.bench.simulation import simulation_bench
from mycel.cli.main import main


def test_the_engines_agree_with_simpy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("simpy", reason="SimPy is not installed: 'make setup' brings it")
    monkeypatch.setattr(simulation_bench, "FAST_CUSTOMERS", 20_000)
    monkeypatch.setattr(simulation_bench, "SLOW_CUSTOMERS", 5_000)
    monkeypatch.setattr(simulation_bench, "SIZES", (1_000, 10_000))
    assert main(["bench", "sim", "--json", "--turns", "2", "--tasks", "20000"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["waits_agree"] is True
    assert report["simpy_events_per_s"] > 0
    assert report["million_tasks_s"] > 0
    assert [(row["servers"], row["policy"]) for row in report["rows"]] == [
        (servers, policy) for servers in (1_000, 10_000) for policy in simulation_bench.POLICIES
    ]
    assert all(row["tasks"] == 20_000 for row in report["rows"])


def test_without_simpy_the_command_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(simulation_bench, "PACKAGES", ("no_such_package",))
    assert main(["bench", "sim"]) == 1
    assert "needs no_such_package" in capsys.readouterr().err
