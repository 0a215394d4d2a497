"""What the end of a test run says of the tests that were skipped."""

from __future__ import annotations

from _pytest.reports import TestReport

from tests.conftest import skipped_lines


def _skipped(reason: str) -> TestReport:
    place = ("tests/some.py", 1, f"Skipped: {reason}")
    return TestReport("some", ("some", 1, "some"), {}, "skipped", place, "setup")


def test_reasons_are_told_once_with_their_counts() -> None:
    lines = skipped_lines([_skipped("no bwrap"), _skipped("no podman"), _skipped("no bwrap")])
    assert lines[0].startswith("3 tests were skipped")
    assert "make test-tools" in lines[0]
    assert lines[1:] == ["  no bwrap: 2", "  no podman: 1"]


def test_nothing_is_said_where_nothing_was_skipped() -> None:
    assert skipped_lines([]) == []
