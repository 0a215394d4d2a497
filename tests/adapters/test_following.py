"""What is seen of a job while it runs: its line at a terminal, its output, its end."""

from __future__ import annotations

import pytest

from mycel.cli.job_follower import Failures, summary
from mycel.cli.job_progress import JobProgress
from mycel.cli.output_follower import Shown
from mycel.client import Job
from mycel.client.responses import LogPiece, Result, TaskCounts


def job(ended: int = 0, total: int = 480, **fields: int) -> Job:
    counts = TaskCounts(total, total - ended, succeeded=ended - sum(fields.values()), **fields)
    created, finished = "2026-01-01T00:00:00Z", "2026-01-01T00:00:42Z"
    return Job("j", "failed", tasks=counts, created_at=created, finished_at=finished)


def test_the_line_has_counts_the_rate_and_the_time_left() -> None:
    progress = JobProgress()
    progress.take(job(0), 100.0)
    assert progress.text(79).endswith("] 0/480")
    progress.take(job(120), 110.0)
    text = progress.text(79)
    assert text.endswith("] 120/480  12/s  30 s left")
    assert text.startswith("[#######---")
    progress.take(job(121, failed=3), 120.0)
    assert "3 failed" in progress.text(79)
    progress.trouble = "the scheduler is away"
    assert progress.text(79).endswith("the scheduler is away")


def test_the_rate_is_that_of_late() -> None:
    progress = JobProgress()
    for second in range(100):
        progress.take(job(min(second, 50) * 4), float(second))
    assert progress.rate == 0.0
    assert "left" not in progress.text(200)


@pytest.mark.parametrize("width", [10, 20, 40, 79, 119])
def test_the_line_is_never_wider_than_the_terminal(width: int) -> None:
    progress = JobProgress()
    progress.take(job(0, total=1_000_000), 0.0)
    progress.take(job(123_456, total=1_000_000, failed=1234, cancelled=77), 10.0)
    assert len(progress.text(width)) <= width


def test_the_end_says_what_failed_and_how_often() -> None:
    failures = Failures("j")
    for index in range(20):
        error = "Traceback\n  line 1\nValueError: no" if index % 2 else "exit code 3"
        failures.take(Result(index, "failed", error=error))
    failures.take(Result(20, "succeeded"))
    failures.take(Result(21, "failed", exit_code=9))
    lines = list(summary(job(480, failed=21), failures))
    assert lines[0] == "j  failed: 459 succeeded, 21 failed in 42 s"
    assert lines[1] == "  10 × exit code 3  (.0, .2, .4, .6, .8 and 5 more)"
    assert lines[2] == "  10 × ValueError: no  (.1, .3, .5, .7, .9 and 5 more)"
    assert lines[3] == "  1 × exit code 9  (.21)"
    assert "mycel logs j --failed" in lines[4]
    assert "mycel rerun j --failed" in lines[5]


def test_output_that_is_told_anew_is_shown_once(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """As after a restart of the scheduler: it tells all that it has, from the beginning."""
    shown = Shown(prefixed=True)

    def told(*texts: bytes, left_out: int = 0) -> None:
        for text in texts:
            shown.show(LogPiece("j.0", 1, "stdout", text, left_out))

    told(b"one\n", b"two\n")
    shown.begin_again()
    told(b"one\ntwo\nthree\n")
    shown.begin_again()
    told(b"four\n", left_out=14)
    told(b"five\n", left_out=3)
    out, err = capfdbinary.readouterr()
    assert out == b"[0] one\n[0] two\n[0] three\n[0] four\n[0] five\n"
    assert err.count(b"left out") == 1
