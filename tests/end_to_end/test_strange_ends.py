"""Tasks that end in strange ways, in a real swarm: they cost nobody else anything."""

from __future__ import annotations

import pytest

from .conftest import SwarmMaker
from .rest import call
from .swarm import WORKLOAD

STRANGE = ["leave_with_much_to_say", "claim_all_memory", "say_half_a_pair", "name_no_end"]


@pytest.mark.parametrize("function", STRANGE)
def test_a_strange_end_is_its_tasks_own(make_swarm: SwarmMaker, function: str) -> None:
    """Of these, one ended both workers, and one hung the scheduler at each of its starts."""
    swarm = make_swarm()
    swarm.up(workers=2)
    task = swarm.client.submit({"python": f"{WORKLOAD}:{function}"})
    ended = swarm.client.wait(task.id, 60)
    assert ended.state == "failed", ended
    assert ended.error
    assert len(ended.error) < 40_000
    assert swarm.healthy() == 2, "no worker was taken along"
    assert call(swarm, "GET", "/readyz").status == 200
    good = swarm.client.submit({"python": f"{WORKLOAD}:add", "arguments": [1, 2]})
    assert swarm.client.wait(good.id, 60).value == 3
