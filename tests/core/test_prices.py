"""What a worker asks for a task, and whom it refuses for it."""

from __future__ import annotations

from typing import Any

import msgspec

from mycel.core import events, messages
from mycel.core.effects import Effect, RunAttempts, Send
from mycel.core.identifiers import AttemptId, JobId, JobNumber, PeerId, ShapeNumber
from mycel.core.machine_settings import WorkerSettings
from mycel.core.messages import Refused, Results
from mycel.core.messages.refusals import UNSUITABLE
from mycel.core.model.prices import Tariff
from mycel.core.model.resources import Capabilities, Requirements
from mycel.core.model.work import Finished, FinishedState, Shape, Work
from mycel.core.worker import WorkerMachine

SCHEDULER = PeerId("scheduler")
SHAPE = Shape("process", Requirements(cpu_cores=1.0))
HAS = Capabilities(cpu_cores=4.0, drivers=("process",))
FLOOR = Tariff(0.25)


class Story:
    def __init__(self, tariff: Tariff = FLOOR) -> None:
        has = msgspec.structs.replace(HAS, price=tariff)
        self.machine = WorkerMachine(WorkerSettings(), has, name="w", digest=bytes)
        self.machine.handle(events.SpoolLoaded(1, {}), 0.0)
        self.machine.handle(events.LinkUp(SCHEDULER), 0.0)

    def assign(self, shape: Shape) -> list[Effect]:
        lease = self.machine.scheduler(SCHEDULER).lease
        bundle = messages.Bundle(
            AttemptId(1), JobNumber(1), JobId("job"), 1, Work("process"), [0], [1], []
        )
        self.hear(messages.Introduce(lease, ShapeNumber(1), shape))
        return self.hear(messages.Assign(lease, ShapeNumber(1), 1, [bundle]))

    def hear(self, message: Any) -> list[Effect]:
        return self.machine.handle(events.Received(SCHEDULER, message, 0.0), 0.0)

    def cost(self, seconds: float, driver_fault: bool = False) -> float:
        """Of a task that took so long."""
        [runs] = [one.runs for one in self.assign(SHAPE) if isinstance(one, RunAttempts)]
        state: FinishedState = "failed" if driver_fault else "succeeded"
        done = Finished(
            runs[0].attempt,
            state,
            driver_fault=driver_fault,
            started_at=1.0,
            ended_at=1.0 + seconds,
        )
        effects = self.machine.handle(events.RunsFinished([done]), 1.0 + seconds)
        [results] = [one.message for one in effects if isinstance(one, Send)]
        assert isinstance(results, Results)
        return results.outcomes[0].cost


def test_a_task_costs_the_floor_or_by_the_hour() -> None:
    assert Story().cost(1.0) == 0.25
    by_the_hour = Tariff(floor=0.25, cpu_core_hour=36.0)
    assert Story(by_the_hour).cost(1.0) == 0.25
    assert Story(by_the_hour).cost(100.0) == 1.0


def test_what_the_worker_is_to_blame_for_costs_nothing() -> None:
    assert Story().cost(1.0, driver_fault=True) == 0.0


def test_who_may_not_pay_the_price_is_told() -> None:
    effects = Story().assign(Shape("process", SHAPE.requirements, max_cost=0.1))
    [refused] = [one.message for one in effects if isinstance(one, Send)]
    assert isinstance(refused, Refused)
    assert (refused.code, refused.reason) == (UNSUITABLE, "may cost 0.1, it asks 0.25")
