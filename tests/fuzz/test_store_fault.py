"""A value past every border: the journal cannot hold it, and its task alone pays for that."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from mycel.core import events, messages
from mycel.core.identifiers import JobId
from mycel.core.views import TaskIsOver

from .typed_scheduler import HONEST, OURS, SchedulerTarget


class Overflowing(SchedulerTarget):
    """Its honest worker ends the first task of a job with a number that no row can hold. The
    codec would refuse it; here it reaches the machine."""

    is_honest = False

    def _post(self, event: events.Event) -> None:
        message = event.message if isinstance(event, events.Received) else None
        if isinstance(message, messages.Results) and not self.is_honest:
            outcomes = [_beyond(one) if one.index == 0 else one for one in message.outcomes]
            message = msgspec.structs.replace(message, outcomes=outcomes)
            event = events.Received(HONEST, message, self._clock.now())
        super()._post(event)

    def run(self, count: int) -> tuple[Any, list[str | None]]:
        """What its client is told of the first task, and how the journal says that each ended."""
        self._submit(OURS, count)
        job_id = JobId(str(self.pools["job_id"][-1]))
        for _ in range(20):
            self.turn(1.0)
            self._post(events.HeartbeatReceived(HONEST, self._clock.now(), self._clock.now()))
        stored = [self._store.result(job_id, index) for index in range(count)]
        ends = [None if one is None else f"{one.ended.state} {one.ended.reason}" for one in stored]
        return self._answers.get(self._request), ends


def _beyond(outcome: messages.Outcome) -> messages.Outcome:
    return msgspec.structs.replace(outcome, exit_code=1 << 70)


@pytest.mark.parametrize("in_memory", [False, True], ids=["sqlite", "memory"])
def test_a_value_that_no_row_can_hold_fails_its_task_alone(tmp_path: Path, in_memory: bool) -> None:
    target = Overflowing(tmp_path, Random(1), in_memory=in_memory)
    try:
        answer, ends = target.run(1)
        assert isinstance(answer, TaskIsOver)
        assert answer.ended is not None
        assert (answer.ended.state, answer.ended.reason) == ("failed", "store_fault")
        _, ends = target.run(3)
        assert ends == ["failed store_fault", "succeeded ", "succeeded "]
        assert target.refused_entries == 2
        target.restart()
        target.is_honest = True
        target.probe()
    finally:
        target.close()
