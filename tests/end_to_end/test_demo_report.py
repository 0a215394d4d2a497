"""What the demo says at its end."""

from __future__ import annotations

import pytest

from mycel.client import Job, Result
from mycel.demo import sweep_report
from mycel.demo.sweep_report import Story

GRID = [{"learning_rate": 0.1, "hidden": 4, "momentum": 0.0, "seed": n} for n in range(3)]


def story(*results: Result) -> Story:
    return Story(
        job=Job(id="01h", state="failed"),
        grid=GRID,
        results={one.index: one for one in results},
        tasks=[],
        names={},
        loss=None,
        up_seconds=1.0,
        job_seconds=1.0,
        slots=1,
        walls=["seccomp, landlock 7"],
    )


def test_tasks_that_fail_are_told_with_their_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    unread = "Traceback…\nModuleNotFoundError: No module named 'mycel'"
    told = story(
        Result(index=0, state="failed", error=unread),
        Result(index=1, state="failed", error="exit code 1"),
        Result(index=2, state="failed", error=unread),
    )
    sweep_report.show(told)
    said = capsys.readouterr().out
    assert "3 of 3 tasks did not succeed" in said
    assert "2      ModuleNotFoundError: No module named 'mycel'" in said
    assert "1      exit code 1" in said
    assert "seccomp, landlock 7" in said
    assert "ACCURACY" not in said, "a table without rows says nothing"
    assert sweep_report.summary(told)["failures"][0] == {"error": unread, "tasks": 2}


def test_a_demo_that_succeeds_speaks_of_no_failures(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"accuracy": 0.9, "training_accuracy": 1.0}
    told = story(Result(index=0, state="succeeded", value=value))
    sweep_report.show(told)
    said = capsys.readouterr().out
    assert "did not succeed" not in said
    assert "90.0%" in said
    assert sweep_report.summary(told)["failures"] == []
