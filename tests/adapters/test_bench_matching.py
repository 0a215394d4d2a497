"""`mycel bench matching`, with so few workers that its figures mean nothing."""

from __future__ import annotations

import json

import pytest

from mycel.bench.matching import matching_bench
from mycel.console.errors import UsageError


def test_it_prints_a_row_for_each_size(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(matching_bench, "SIZES", {40: 800, 120: 800})
    assert matching_bench.main(["--json", "--scale", "0.02"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["workers"] for row in rows] == [40, 120]
    for row in rows:
        assert row["agree"] is True
        assert row["checked"] == 16
        assert 0.0 < row["decision_ms_p50"] <= row["decision_ms_p99"]
        assert 0.5 < row["feasible"] < 1.0


def test_a_wrong_choice_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the engine says, the plain matcher says somebody else."""
    monkeypatch.setattr(matching_bench, "choices", lambda *_: {"nobody"})
    bench = matching_bench.Bench(20, 1)
    bench.fill()
    assert bench.compare(8)[0] is False


def test_a_senseless_scale_is_refused() -> None:
    with pytest.raises(UsageError):
        matching_bench.main(["--scale", "0"])
