"""For all tests."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

from hypothesis import settings

if TYPE_CHECKING:
    from _pytest.reports import TestReport
    from _pytest.terminal import TerminalReporter

# A busy machine is no failure: what a test may cost is not judged by the clock.
settings.register_profile("mycel", deadline=None)
settings.load_profile("mycel")

# What is started in the background of a shell ignores SIGINT, and so would all that tests start.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """How the attempts of `tests/attacks` went, and what was not tested, from whichever process."""
    told: list[dict[str, Any]] = [
        dict(report.user_properties)
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, [])
    ]
    tried = sum(one.get("attacks_tried", "attack_escaped" in one) for one in told)
    if tried:
        controls = sum(one.get("attacks_controls", one.get("attack_control", 0)) for one in told)
        escapes = sum(one.get("attacks_escaped", one.get("attack_escaped", 0)) for one in told)
        terminalreporter.write_line(
            f"attacks: {tried} attempts, {controls} controls succeeded, {escapes} escapes"
        )
    for line in skipped_lines(terminalreporter.stats.get("skipped", [])):
        terminalreporter.write_line(line)


def skipped_lines(reports: list[TestReport]) -> list[str]:
    """What was skipped, by its reasons, the most frequent first."""
    if not reports:
        return []
    reasons = Counter(_reason(report) for report in reports)
    lines = [f"{reason}: {count}" for reason, count in reasons.most_common()]
    return [
        f"{len(reports)} tests were skipped; 'make test-tools' installs what some of them need:",
        *(f"  {line}" for line in lines),
    ]


def _reason(report: TestReport) -> str:
    """pytest has it behind the place that says it."""
    said = report.longrepr
    text = str(said[2] if isinstance(said, tuple) else said)
    return text.removeprefix("Skipped: ")
