"""Machines that vanish without a word: no process is left to refuse, nothing answers."""

from __future__ import annotations

import re
import time

from tests.end_to_end.swarm import eventually

from .hosts import Host, Scheduler
from .internet import Internet

SECONDS = 60.0
INTERVAL = 4.0
SETTINGS = {
    "scheduler": {
        "max_linked_workers": 1,
        "fault_tolerance": {"health_check_interval": INTERVAL, "health_check_timeout": 1.0},
    }
}
"""All but one of the workers are known without a link, and checked."""


def start_workers(host: Host, label: str, count: int, bootstrap: list[str]) -> set[str]:
    names = {f"{label}-{number}" for number in range(count)}
    for name in names:
        host.start("worker", name, bootstrap=bootstrap)
    return names


def states(scheduler: Scheduler) -> dict[str, str]:
    return {one.name: one.state for one in scheduler.client.workers()}


def checked(scheduler: Scheduler, within_seconds: float = SECONDS) -> set[str]:
    """Who has answered a check lately."""
    return {
        one["name"]
        for one in scheduler.shows("workers")["items"]
        for fact in one["sources"]
        if (fact["fact"], fact["source"]) == ("presence", "check")
        if fact["age_seconds"] < within_seconds
    }


def dials(scheduler: Scheduler) -> float:
    text = scheduler.client.metrics()
    found = re.search(r'^mycel_swarm_dials_total{.*"succeeded"} (\S+)$', text, re.MULTILINE)
    return 0.0 if found is None else float(found[1])


def test_known_workers_of_a_machine_that_vanishes_are_gone_and_the_others_stay(
    internet: Internet,
) -> None:
    gateway, office = internet.open_host("gate", 11), internet.open_host("office", 31)
    lasting, fleeting = internet.open_host("lasting", 41), internet.open_host("fleeting", 42)
    bootstrap = gateway.start("gateway").addresses[:1]
    scheduler = office.serve(bootstrap, SETTINGS)
    there = start_workers(fleeting, "gone", 4, bootstrap)
    here = start_workers(lasting, "here", 2, bootstrap)
    eventually(lambda: states(scheduler).keys() == here | there, "all are known", SECONDS)
    eventually(lambda: len(checked(scheduler)) >= 5, "those without a link answer", SECONDS)

    dialled, began = dials(scheduler), time.monotonic()
    eventually(lambda: len(checked(scheduler, time.monotonic() - began)) >= 5, "and again", SECONDS)
    assert dials(scheduler) < dialled + 5, "for most a knock is enough"

    fleeting.machine.run("ip", "link", "set", "eth0", "down")
    busy = 10.0  # this machine may be
    gone = 2 * INTERVAL + busy
    eventually(lambda: not states(scheduler).keys() & there, "they are gone", gone)
    assert states(scheduler).keys() == here
    assert not any(note["name"] in here for note in scheduler.running.notes("worker_dead"))


def test_workers_whose_network_passes_no_datagrams_are_asked_over_connections(
    internet: Internet,
) -> None:
    gateway, office = internet.open_host("gate", 11), internet.open_host("office", 31)
    filtered = internet.open_host("filtered", 41)
    filtered.machine.rules("""
        table ip wall {
            chain in { type filter hook input priority filter; meta l4proto udp drop; }
        }
    """)
    bootstrap = gateway.start("gateway").addresses[:1]
    scheduler = office.serve(bootstrap, SETTINGS)
    names = start_workers(filtered, "worker", 3, bootstrap)
    eventually(lambda: states(scheduler).keys() == names, "all are known", SECONDS)
    eventually(lambda: len(checked(scheduler)) >= 2, "those without a link answer", SECONDS)
    assert not scheduler.running.notes("worker_dead")
    assert set(states(scheduler).values()) <= {"healthy", "known"}
