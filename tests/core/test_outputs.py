"""Both outputs of a task fit into one message, and neither loses more than it must."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mycel.core.model.outcome_limits import OUTPUTS_BYTES_MAX, fitting

MOST = 1000


def test_what_fits_is_left_alone() -> None:
    whole = b"a" * (10 << 20)
    assert fitting(whole, b"error") == (whole, b"error")
    assert fitting(b"", whole) == (b"", whole)


def test_the_longer_gives_way_to_the_shorter() -> None:
    stdout = b"first" + b"." * MOST + b"last"
    kept, stderr = fitting(stdout, b"e" * 300, MOST)
    assert stderr == b"e" * 300
    assert len(kept) == 700
    assert kept.startswith(b"first")
    assert kept.endswith(b"last")
    assert b"left out" in kept


def test_two_long_ones_share_the_room() -> None:
    stdout, stderr = fitting(b"o" * (10 << 20), b"e" * (10 << 20))
    assert len(stdout) == len(stderr) == OUTPUTS_BYTES_MAX // 2


@given(st.integers(0, 3 * MOST), st.integers(0, 3 * MOST))
def test_together_they_never_take_more_than_there_is(first: int, second: int) -> None:
    stdout, stderr = fitting(b"o" * first, b"e" * second, MOST)
    assert len(stdout) + len(stderr) == min(first + second, MOST)
    assert len(stdout) >= min(first, MOST // 2)
    assert len(stderr) >= min(second, MOST // 2)
