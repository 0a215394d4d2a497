"""For all tests."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

from hypothesis import settings

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

# A busy machine is no failure: what a test may cost is not judged by the clock.
settings.register_profile("mycel", deadline=None)
settings.load_profile("mycel")

# What is started in the background of a shell ignores SIGINT, and so would all that tests start.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """How the attempts of `tests/attacks` went, from whichever process ran them."""
    told = [
        dict(report.user_properties)
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, [])
    ]
    attacks = [one for one in told if "attack_escaped" in one]
    if attacks:
        controls = sum(bool(one.get("attack_control")) for one in attacks)
        escapes = sum(bool(one["attack_escaped"]) for one in attacks)
        terminalreporter.write_line(
            f"attacks: {len(attacks)} attempts, {controls} controls succeeded, {escapes} escapes"
        )
