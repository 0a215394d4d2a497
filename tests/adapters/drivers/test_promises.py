"""What every driver promises, of each of ours; containers are beside, in `test_container`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mycel.testing.drivers.conformance import PROMISES, Harness, Promise, keep, named
from mycel.testing.drivers.conformance_harness import LANE, OTHER_LANE, open_harness

from .conftest import Play
from .subjects import SUBJECTS, InMemory


@pytest.mark.parametrize("kind", SUBJECTS)
@pytest.mark.parametrize("promise", PROMISES, ids=named)
def test_promises(promise: Promise, kind: str, tmp_path: Path) -> None:
    keep(promise, SUBJECTS[kind](), tmp_path, virtual=kind == "memory")


@pytest.mark.parametrize("kind", [kind for kind in SUBJECTS if kind != "service"])
def test_a_thousand_quick_ones_through_two_lanes(kind: str, play: Play) -> None:
    async def scenario(harness: Harness) -> None:
        for _ in range(9):
            harness.submit(*(harness.quick() for _ in range(50)), lane=LANE)
            harness.submit(*(harness.quick() for _ in range(50)), lane=OTHER_LANE)
        ends = await harness.results_of(*(harness.quick() for _ in range(100)))
        await harness.all_ended()
        assert {end.state for end in ends} == {"succeeded"}
        assert {end.state for end in harness.recorder.ends.values()} == {"succeeded"}

    play(kind, scenario)


def test_a_dead_worker_is_silent(tmp_path: Path) -> None:
    async def run() -> None:
        subject = InMemory()
        async with open_harness(subject, tmp_path, virtual=True) as harness:
            harness.submit(harness.quick(), harness.slow())
            harness.driver.die()  # type: ignore[attr-defined]
            while subject.step():
                pass
            assert not harness.recorder.order
            harness.submitted.clear()

    asyncio.run(run())
