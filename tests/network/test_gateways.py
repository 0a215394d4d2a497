"""Gateways are doors, not owners: one that dies takes nothing along."""

from __future__ import annotations

from pathlib import Path

from tests.end_to_end.swarm import eventually

from . import workload
from .internet import Internet

SECONDS = 60.0


def test_a_gateway_dies_and_another_takes_over(internet: Internet, tmp_path: Path) -> None:
    first, second = internet.open_host("gate1", 11), internet.open_host("gate2", 12)
    office, plant = internet.open_host("office", 31), internet.lan("plant", 1)
    dying = first.start("gateway")
    other = second.start("gateway", bootstrap=dying.addresses[:1])
    bootstrap = [dying.addresses[0], other.addresses[0]]
    scheduler = office.serve(bootstrap)
    plant.host.start("worker", "one", bootstrap=bootstrap)
    eventually(lambda: scheduler.healthy() == {"one"}, "the worker is there", SECONDS)

    marks = tmp_path / "marks"
    marks.mkdir()
    arguments = [[str(marks), number, 0.5] for number in range(20)]
    job = scheduler.client.submit_job({"python": f"{workload.MODULE}:mark"}, arguments=arguments)
    eventually(lambda: len(workload.marks(marks)) >= 3, "some run", SECONDS)
    dying.kill()
    # Who comes now knows the dead one first.
    plant.host.start("worker", "two", bootstrap=bootstrap)
    eventually(lambda: scheduler.healthy() == {"one", "two"}, "the newcomer is there", SECONDS)
    results = list(scheduler.client.results(job.id))
    assert sorted(result.value for result in results) == list(range(20))
    assert workload.marks(marks) == list(range(20)), "a task ran twice"
