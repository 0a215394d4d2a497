"""What a worker says of an attempt's end is believed as far as it can be."""

from __future__ import annotations

from typing import Any

import pytest

from mycel.core import messages
from mycel.core.effects import Send
from mycel.core.events import Received
from mycel.core.identifiers import LeaseId
from mycel.core.journal import AttemptEnded, TaskEnded
from mycel.core.stages import Stage
from tests.core.test_staging import WORKER, Bench


def told(**outcome: Any) -> Bench:
    """A worker that was sent one task has said this of it."""
    bench = Bench()
    bench.come()
    sent = bench.submit((Stage("a"),), 1)
    [request] = [effect.message for effect in sent if isinstance(effect, Send)]
    assert isinstance(request, messages.Request)
    offer = messages.Offer(request.request, True, lease=LeaseId(7), slots=1, window=1)
    sent = bench.tell(Received(WORKER, offer, 1.0))
    [assign] = [effect.message for effect in sent if isinstance(effect, Send)]
    assert isinstance(assign, messages.Assign)
    [bundle] = assign.bundles
    said = messages.Outcome(bundle.first, bundle.job, 0, **({"state": "succeeded"} | outcome))
    bench.tell(Received(WORKER, messages.Results(1.0, [said], []), 1.0))
    return bench


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        ({"value": b"{what"}, "the result is not JSON"),
        ({"value": b'"\xff"'}, "the result is not JSON"),
        ({"value": b"[" * 101 + b"]" * 101}, "nested more than 100 levels"),
        ({"value": b"[" * 20_000}, "nested more than 100 levels"),
        ({"value": b"1", "digest": b"another"}, "digest"),
        ({"state": "who knows"}, "does not say how it ended"),
    ],
)
def test_what_cannot_be_is_the_workers_fault(outcome: dict[str, Any], error: str) -> None:
    bench = told(**outcome)
    [attempt] = [entry for entry in bench.entries if isinstance(entry, AttemptEnded)]
    assert attempt.state == "failed"
    assert error in attempt.error
    assert not [entry for entry in bench.entries if isinstance(entry, TaskEnded)]


@pytest.mark.parametrize(
    ("started_at", "ended_at", "taken_for"),
    [
        (0.25, 0.75, 1000.25),
        (-1e18, 0.75, None),
        (0.75, 0.25, None),
        (1e18, 1e18, 1001.0),
        (-1e18, -1e18, 1001.0),
    ],
)
def test_no_client_is_shown_a_time_that_cannot_be(
    started_at: float, ended_at: float, taken_for: float | None
) -> None:
    bench = told(value=b"1", started_at=started_at, ended_at=ended_at)
    [ended] = [entry for entry in bench.entries if isinstance(entry, TaskEnded)]
    assert ended.state == "succeeded"
    assert ended.started_at == taken_for
