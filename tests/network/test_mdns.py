"""A LAN without a gateway, and without any address that somebody wrote down."""

from __future__ import annotations

from tests.end_to_end.swarm import eventually

from .internet import Internet

SECONDS = 60.0
NEARBY = {"swarm": {"mdns": True}}


def test_machines_of_one_lan_find_each_other_when_asked_to(internet: Internet) -> None:
    desk, shelf = internet.open_host("desk", 31), internet.open_host("shelf", 32)
    shy = internet.open_host("shy", 33)
    for host in (desk, shelf, shy):
        host.machine.run("ip", "route", "add", "default", "dev", "eth0")
    scheduler = desk.serve([], NEARBY)
    shelf.start("worker", "found", settings=NEARBY)
    shy.start("worker", "silent")
    eventually(lambda: scheduler.healthy() == {"found"}, "the worker was found", SECONDS)
    task = scheduler.client.submit_task(command=["true"])
    assert scheduler.client.wait(task.id, SECONDS).state == "succeeded"
    assert scheduler.healthy() == {"found"}, "nobody is found who did not ask for it"
