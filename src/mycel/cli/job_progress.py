"""How far a job is, in one line: a bar, counts, the rate of late, and how long it may take."""

from __future__ import annotations

from collections import deque
from typing import Final

from mycel.client import Job
from mycel.console.tables import duration

BAR_WIDTH_MAX: Final = 30
BAR_WIDTH_MIN: Final = 8
RATE_SECONDS: Final = 30.0
"""The rate is of so long: what was before the last change of pace says nothing of the next."""


class JobProgress:
    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()
        """When so many tasks had ended."""
        self._job: Job | None = None
        self.trouble = ""
        """Why nothing is known of it just now."""

    def take(self, job: Job, now: float) -> None:
        self._job = job
        self.trouble = ""
        self._samples.append((now, job.tasks.ended))
        while len(self._samples) > 2 and self._samples[1][0] <= now - RATE_SECONDS:
            self._samples.popleft()

    @property
    def rate(self) -> float:
        """Tasks per second."""
        if len(self._samples) < 2:
            return 0.0
        (began, first), (now, last) = self._samples[0], self._samples[-1]
        return (last - first) / (now - began) if now > began else 0.0

    def text(self, width: int) -> str:
        """No longer than that."""
        if self._job is None:
            return self.trouble[:width]
        tasks = self._job.tasks
        said = [f"{tasks.ended:,}/{tasks.total:,}"]
        said += [f"{tasks.running:,} running"] if tasks.running else []
        said += [f"{tasks.failed:,} failed"] if tasks.failed else []
        said += [f"{tasks.cancelled:,} cancelled"] if tasks.cancelled else []
        said += [self.trouble] if self.trouble else self._pace()
        while len(said) > 1 and len("  ".join(said)) > width:
            said.pop()
        text = "  ".join(said)[:width]
        room = min(BAR_WIDTH_MAX, width - len(text) - 3)
        return f"{_bar(tasks.ended, tasks.total, room)} {text}" if room >= BAR_WIDTH_MIN else text

    def _pace(self) -> list[str]:
        assert self._job is not None
        rate = self.rate
        if rate <= 0:
            return []
        said = [f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s" if rate >= 1 else _slow(rate)]
        left = self._job.tasks.total - self._job.tasks.ended
        if left and self._job.closed:
            said.append(f"{duration(left / rate)} left")
        return said


def _slow(rate: float) -> str:
    return f"{rate * 60:.1f}/min"


def _bar(done: int, total: int, width: int) -> str:
    full = width * done // total if total else 0
    return f"[{'#' * full}{'-' * (width - full)}]"
