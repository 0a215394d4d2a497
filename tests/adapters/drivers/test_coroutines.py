"""Drivers whose attempts are coroutines: each attempt has an end, whatever happens in it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from mycel.core.identifiers import LaneId
from mycel.core.model.work import Run, Work
from mycel.drivers.coroutine_lanes import CoroutineDriver
from mycel.drivers.interface import Driver, Finished
from mycel.drivers.registry import DriverContext
from mycel.testing.drivers.conformance import Harness, Subject, keep


class _Faulty(CoroutineDriver):
    name = "faulty"

    async def perform(self, lane: LaneId, run: Run) -> Finished:
        if run.work.command == ("fault",):
            raise KeyError("what nobody thought of")
        return Finished(run.attempt, "succeeded")


class _Subject(Subject):
    name = "faulty"

    def create(self, context: DriverContext) -> Driver:
        return _Faulty(context.listener)

    def quick(self) -> Work:
        return Work("faulty")

    def failing(self) -> Work:
        return Work("faulty", command=("fault",))


def test_a_fault_of_a_driver_ends_the_attempt_and_not_its_lane(tmp_path: Path) -> None:
    heard: list[dict[str, Any]] = []

    async def scenario(harness: Harness) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, told: heard.append(told))
        broken, next_one = harness.run(("fault",)), harness.quick()
        ends = await harness.results_of(broken, next_one)
        assert [end.state for end in ends] == ["failed", "succeeded"]
        assert ends[0].driver_fault
        assert "a fault of the driver: KeyError" in ends[0].error

    keep(scenario, _Subject(), tmp_path)
    assert broken_by(heard) == ["KeyError"], "the worker's log is told"


def broken_by(heard: list[dict[str, Any]]) -> list[str]:
    return [type(told["exception"]).__name__ for told in heard]
