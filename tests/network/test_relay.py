"""Two LANs that nobody can call: what gateways carry between them, and what then goes
directly."""

from __future__ import annotations

import re
import sys
from functools import partial
from pathlib import Path

from tests.end_to_end.swarm import eventually

from . import workload
from .hosts import Host, Running, Scheduler
from .internet import Internet

SECONDS = 60.0
METRICS = "127.0.0.1:9464"


def _metrics(host: Host) -> dict[str, float]:
    """Of the node that shows them on its own machine."""
    script = (
        f"import urllib.request as u; print(u.urlopen('http://{METRICS}/metrics').read().decode())"
    )
    text = host.machine.run(sys.executable, "-c", script)
    lines = (line.rpartition(" ") for line in text.splitlines() if line and line[0] != "#")
    return {name: float(value) for name, _, value in lines}


def _paths(scheduler: Scheduler) -> dict[str, str]:
    """To the workers that it is connected with."""
    peers = scheduler.shows("peers")["items"]
    return {peer["name"]: peer["path"] for peer in peers if "worker" in peer["roles"]}


def _adds(scheduler: Scheduler, count: int) -> list[int]:
    job = scheduler.client.submit_job(
        {"python": "operator:add"}, arguments=[[number, 1] for number in range(count)]
    )
    return sorted(result.value for result in scheduler.client.results(job.id))


def test_two_lans_that_reach_only_the_gateway_work_through_it(internet: Internet) -> None:
    gateway = internet.open_host("gate", 11)
    office, plant = internet.lan("office", 1, [gateway]), internet.lan("plant", 2, [gateway])
    door = gateway.start("gateway", settings={"gateway": {"metrics_address": METRICS}})
    before = _metrics(gateway)
    assert before["mycel_swarm_relay_circuits_opened_total"] == 0
    scheduler = office.host.serve(door.addresses)
    worker = plant.host.start("worker", "far", bootstrap=door.addresses)
    eventually(lambda: scheduler.healthy() == {"far"}, "the worker is there", SECONDS)
    linked = _metrics(gateway)
    assert linked["mycel_swarm_relay_reservations"] == 2
    assert linked["mycel_swarm_relay_circuits"] >= 1
    assert linked["mycel_swarm_relay_circuits_opened_total"] >= 1
    text = "x" * 1_000_000
    task = scheduler.client.submit_task(python="builtins:len", arguments=[text])
    assert scheduler.client.wait(task.id, SECONDS).value == len(text)
    moved = _metrics(gateway)
    for way in ("in", "out"):  # it comes in on one connection, and goes out on the other
        name = f'mycel_swarm_bytes_{way}_total{{path="direct"}}'
        assert moved[name] - linked[name] > len(text)
    assert _adds(scheduler, 500) == list(range(1, 501))

    assert _paths(scheduler) == {"far": "relayed"}
    status = scheduler.shows("swarm", "status")
    assert status["paths"]["relayed"] == 1
    assert status["reservations"] == [door.peer]
    [shown] = scheduler.client.get("/api/v1/workers")["items"]
    through = f"/p2p/{door.peer}/p2p-circuit/p2p/{worker.peer}"
    assert any(address.endswith(through) for address in shown["addresses"])


def test_a_direct_connection_replaces_the_relayed_one(internet: Internet) -> None:
    """Both routers let out whatever their LAN sends, and in what answers it."""
    gateway = internet.open_host("gate", 11)
    office, plant = internet.lan("office", 1), internet.lan("plant", 2)
    door = gateway.start("gateway")
    scheduler = office.host.serve(door.addresses)
    worker = plant.host.start("worker", "far", bootstrap=door.addresses)
    eventually(lambda: _paths(scheduler) == {"far": "direct"}, "a hole is punched", SECONDS)
    # It says so unless the hole was there before the link was.
    assert all(not note["relayed"] for note in worker.notes("path_changed"))
    door.kill()
    eventually(lambda: scheduler.healthy() == {"far"}, "it is still linked", SECONDS)
    assert _adds(scheduler, 500) == list(range(1, 501))


def test_where_tcp_is_filtered_quic_reaches_the_gateway_and_punches_the_hole(
    internet: Internet,
) -> None:
    gateway = internet.open_host("gate", 11)
    office, plant = internet.lan("office", 1), internet.lan("plant", 2)
    door = gateway.start("gateway").addresses[:1]
    assert "/tcp/" in door[0], "all that invites name"
    with office.router.dropping_tcp(), plant.router.dropping_tcp():
        scheduler = office.host.serve(door)
        plant.host.start("worker", "far", bootstrap=door)
        eventually(lambda: _paths(scheduler) == {"far": "direct"}, "a hole is punched", SECONDS)
        assert _adds(scheduler, 500) == list(range(1, 501))


def test_gateways_die_in_turn_and_no_task_runs_twice(internet: Internet, tmp_path: Path) -> None:
    first, second = internet.open_host("gate1", 11), internet.open_host("gate2", 12)
    office = internet.lan("office", 1, [first, second])
    plant = internet.lan("plant", 2, [first, second])
    doors = [_open(first, []), _open(second, [])]
    bootstrap = [door.addresses[0] for door in doors]
    scheduler = office.host.serve(bootstrap)
    plant.host.start("worker", "far", bootstrap=bootstrap)
    eventually(lambda: scheduler.healthy() == {"far"}, "the worker is there", SECONDS)

    marks = tmp_path / "marks"
    marks.mkdir()
    arguments = [[str(marks), number, 0.5] for number in range(40)]
    job = scheduler.client.submit_job({"python": f"{workload.MODULE}:mark"}, arguments=arguments)
    eventually(lambda: len(workload.marks(marks)) >= 2, "some run", SECONDS)
    doors[0].kill()
    eventually(lambda: len(workload.marks(marks)) >= 14, "they go on", SECONDS)
    # One of the two deaths meets the gateway that carries the link.
    doors[0] = _open(first, bootstrap)
    eventually(lambda: _reservations(scheduler) == 2, "both are used again", SECONDS)
    doors[1].kill()
    results = list(scheduler.client.results(job.id))
    assert sorted(result.value for result in results) == list(range(40))
    assert workload.marks(marks) == list(range(40)), "a task ran twice"


def _open(host: Host, bootstrap: list[str]) -> Running:
    """At the same address each time."""
    listen = {"swarm": {"listen": [f"/ip4/{host.address}/tcp/4001"]}}
    return host.start("gateway", bootstrap=bootstrap, settings=listen)


def _reservations(scheduler: Scheduler) -> int:
    return len(scheduler.shows("swarm", "status")["reservations"])


def test_a_way_to_a_worker_that_comes_later_is_told_over_the_link(internet: Internet) -> None:
    first, second = internet.open_host("gate1", 11), internet.open_host("gate2", 12)
    doors = [_open(first, []), _open(second, [])]
    bootstrap = [door.addresses[0] for door in doors]
    doors[1].kill()
    office = internet.lan("office", 1, [first, second])
    scheduler = office.host.serve(bootstrap)
    plant = internet.lan("plant", 2, [first, second])
    worker = plant.host.start("worker", "far", bootstrap=bootstrap)
    eventually(lambda: scheduler.healthy() == {"far"}, "the worker is there", SECONDS)

    def ways() -> set[str]:
        """Gateways through which the scheduler would dial the worker."""
        [view] = scheduler.shows("workers")["items"]
        return set(re.findall(r"/p2p/(\w+)/p2p-circuit", " ".join(view["addresses"])))

    gateways = [address.rpartition("/")[2] for address in bootstrap]
    eventually(lambda: ways() == {gateways[0]}, "the one gateway that lives", SECONDS)
    notes = partial(scheduler.running.notes, "worker_registered")
    registered = len(eventually(notes, "its log is written", SECONDS))
    doors[1] = _open(second, bootstrap)
    eventually(lambda: ways() == set(gateways), "the other one too", SECONDS)
    assert len(notes()) == registered, "its link stood"
    assert worker.process.poll() is None
