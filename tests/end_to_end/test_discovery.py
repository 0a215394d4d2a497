"""The product with each way of finding workers alone, and what becomes of workers that die."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from .conftest import QUICK, SwarmMaker
from .rest import call
from .swarm import Swarm, eventually

DHT_ALONE = QUICK + "\n[swarm.discovery]\ngossip = false\n"
GOSSIP_ALONE = QUICK + "\n[swarm.discovery]\ndht = false\n"
HEALTH_CHECK_SECONDS = 30.0
"""The default of `health_check_interval`."""


def worker_items(swarm: Swarm) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = call(swarm, "GET", "/api/v1/workers").json["items"]
    return items


def source_of(item: dict[str, Any], fact: str) -> str:
    return next((one["source"] for one in item["sources"] if one["fact"] == fact), "")


def start(swarm: Swarm) -> None:
    """Without waiting for workers: with the DHT alone none is known before work comes."""
    done = swarm.mycel("up", "--detach", "--json", "--port", "0", "--workers", "2")
    assert done.code == 0, done
    swarm.take(done.json)


def test_the_dht_alone_finds_workers_for_work(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm(DHT_ALONE)
    start(swarm)
    tasks = [swarm.client.submit(command=["echo", str(number)]) for number in range(8)]
    assert [swarm.client.wait(one.id, 60).value for one in tasks] == [
        f"{number}\n" for number in range(8)
    ]
    found = [item for item in worker_items(swarm) if item["state"] == "healthy"]
    assert found
    assert {source_of(item, "presence") for item in found} == {"call"}
    assert {source_of(item, "capabilities") for item in found} == {"registered"}


def test_gossip_alone_brings_workers(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm(GOSSIP_ALONE)
    start(swarm)
    eventually(lambda: swarm.healthy() == 2, "both workers have come by themselves")
    assert swarm.client.wait(swarm.client.submit(command=["echo", "x"]).id, 60).value == "x\n"
    ways = {source_of(item, "presence") for item in worker_items(swarm)}
    assert ways <= {"gossip", "gateway", "connection"}


def test_the_dht_finds_the_one_worker_that_suits(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm(DHT_ALONE + '\n[worker.labels]\nzone = "a"\n')
    start(swarm)
    task = swarm.client.submit(command=["true"], requirements={"labels": {"zone": "a"}})
    assert swarm.client.wait(task.id, 60).state == "succeeded"
    other = swarm.client.submit(command=["true"], requirements={"labels": {"zone": "b"}})
    explained = call(swarm, "GET", f"/api/v1/tasks/{other.id}/explain").json
    assert explained["reason"] == "no_match"


@pytest.mark.parametrize("settings", [DHT_ALONE, QUICK], ids=["dht", "both"])
def test_a_dead_worker_is_gone_and_stays_gone(make_swarm: SwarmMaker, settings: str) -> None:
    swarm = make_swarm(settings)
    start(swarm)
    task = swarm.client.submit(command=["true"], requirements={"cpu_cores": 2})
    assert swarm.client.wait(task.id, 60).state == "succeeded"
    eventually(lambda: swarm.healthy() >= 1, "a worker is linked")
    victim = next(one for one in swarm.client.workers() if one.state == "healthy")
    swarm.kill(victim.name)
    eventually(
        lambda: swarm.worker_state(victim.name) == "",
        "the dead one is gone from the table",
        2 * HEALTH_CHECK_SECONDS,
    )
    # Its record is still in the DHT, and work makes the scheduler look there.
    tasks = [swarm.client.submit(command=["true"], requirements={"cpu_cores": 2}) for _ in "1234"]
    assert {swarm.client.wait(one.id, 60).state for one in tasks} == {"succeeded"}
    assert swarm.worker_state(victim.name) == "", "it has not come back as a ghost"


def test_a_frozen_worker_gets_no_new_work(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm(QUICK.replace("[worker]", "health_check_interval = 2.0\n\n[worker]"))
    swarm.up(workers=2)
    swarm.kill("worker-2", signal.SIGSTOP)
    frozen = swarm.pids["worker-2"]
    tasks = [swarm.client.submit(command=["true"]) for _ in range(6)]
    ran_by = {swarm.name_of(swarm.client.wait(one.id, 60).worker) for one in tasks}
    assert ran_by == {"worker-1"}, f"worker-2 (pid {frozen}) is stopped"
    eventually(lambda: swarm.worker_state("worker-2") != "healthy", "its silence was noticed")
