"""Tasks that end in strange ways, in a real swarm: they cost nobody else anything."""

from __future__ import annotations

from .conftest import SwarmMaker
from .rest import call
from .swarm import WORKLOAD

STRANGE = ["leave_with_much_to_say", "claim_all_memory", "say_half_a_pair", "name_no_end"]


def test_a_strange_end_is_its_tasks_own(make_swarm: SwarmMaker) -> None:
    """The first ended both workers; the second hung the scheduler, at each of its starts too."""
    swarm = make_swarm()
    swarm.up(workers=2)
    for function in STRANGE:
        task = swarm.client.submit_task(python=f"{WORKLOAD}:{function}")
        ended = swarm.client.wait(task.id, 60)
        assert ended.state == "failed", (function, ended)
        assert ended.error
        assert len(ended.error) < 40_000
        assert swarm.healthy() == 2, f"{function} took a worker along"
        assert call(swarm, "GET", "/readyz", token=None).status == 200
    good = swarm.client.submit_task(python=f"{WORKLOAD}:add", arguments=[1, 2])
    assert swarm.client.wait(good.id, 60).value == 3
