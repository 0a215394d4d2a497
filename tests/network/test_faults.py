"""Cut and lossy networks: slower, never wrong."""

from __future__ import annotations

from pathlib import Path

from tests.end_to_end.swarm import eventually

from . import workload
from .internet import Internet

SECONDS = 60.0


def test_a_partition_heals_and_nothing_is_lost(internet: Internet, tmp_path: Path) -> None:
    gateway, office = internet.open_host("gate", 11), internet.open_host("office", 31)
    plant = internet.lan("plant", 1)
    bootstrap = gateway.start("gateway").addresses[:1]
    scheduler = office.serve(bootstrap)
    plant.host.start("worker", "far", bootstrap=bootstrap)
    eventually(lambda: scheduler.healthy() == {"far"}, "the worker is there", SECONDS)

    marks = tmp_path / "marks"
    marks.mkdir()
    task = {"python": f"{workload.MODULE}:mark"}
    arguments = [[str(marks), number, 0.2] for number in range(40)]
    job = scheduler.client.submit_job(task, arguments=arguments)
    eventually(lambda: len(workload.marks(marks)) >= 4, "some have run", SECONDS)
    with plant.router.cut():
        eventually(lambda: "far" not in scheduler.healthy(), "it is missed", SECONDS)
    results = list(scheduler.client.results(job.id))
    assert sorted(result.value for result in results) == list(range(40))
    assert {result.state for result in results} == {"succeeded"}


def test_a_fifth_of_all_packets_may_be_lost(internet: Internet) -> None:
    gateway, office = internet.open_host("gate", 11), internet.open_host("office", 31)
    plant = internet.lan("plant", 1)
    bootstrap = gateway.start("gateway").addresses[:1]
    scheduler = office.serve(bootstrap)
    with plant.router.losing(percent=20):
        plant.host.start("worker", "far", bootstrap=bootstrap)
        eventually(lambda: scheduler.healthy() == {"far"}, "it joins all the same", SECONDS)
        task = {"python": "operator:add"}
        job = scheduler.client.submit_job(task, arguments=[[n, 1] for n in range(500)])
        results = list(scheduler.client.results(job.id))
    assert sorted(result.value for result in results) == list(range(1, 501))
