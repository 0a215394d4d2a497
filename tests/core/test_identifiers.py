"""Ids are ordered as the promises need them, and text ids are read strictly."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mycel.core.identifiers import (
    BOOT_MAX,
    COUNTER_MAX,
    boot_of,
    fenced,
    is_job_id,
    parse_task_id,
    task_id,
    ulid,
)

boots = st.integers(1, BOOT_MAX)
counters = st.integers(1, COUNTER_MAX)


@given(boots, counters, boots, counters)
def test_a_later_boot_beats_every_counter(b1: int, c1: int, b2: int, c2: int) -> None:
    assert (fenced(b1, c1) < fenced(b2, c2)) is ((b1, c1) < (b2, c2))
    assert boot_of(fenced(b1, c1)) == b1
    assert fenced(b1, c1) < 2**63, "it fits the journal's integers"


@given(st.integers(0, 2**48 - 1), st.binary(min_size=10, max_size=10), st.integers(0, 10**9))
def test_task_ids_are_read_back(milliseconds: int, randomness: bytes, index: int) -> None:
    job = ulid(milliseconds, randomness)
    assert is_job_id(job)
    assert parse_task_id(task_id(job, index)) == (job, index)


@given(st.integers(0, 2**48 - 2), st.binary(min_size=10, max_size=10))
def test_later_jobs_sort_behind(milliseconds: int, randomness: bytes) -> None:
    assert ulid(milliseconds, randomness) < ulid(milliseconds + 1, randomness)


@given(st.text(max_size=40))
def test_nothing_else_is_a_task_id(text: str) -> None:
    found = parse_task_id(text)
    assert found is None or task_id(*found) == text
