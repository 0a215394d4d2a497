"""The product with each way of finding workers alone, and what becomes of workers that die."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from .conftest import QUICK, SwarmMaker
from .rest import Answer, call
from .swarm import Swarm, eventually
from .test_faults import check_ended_once, executions, open_gate, start_gated

DHT_ALONE = QUICK + "\n[swarm.discovery]\ngossip = false\n"
GOSSIP_ALONE = QUICK + "\n[swarm.discovery]\ndht = false\n"
HEALTH_CHECK_SECONDS = 30.0
"""The default of `health_check_interval`."""
SLACK_SECONDS = 10.0
"""What a busy machine adds."""


def worker_items(swarm: Swarm) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = call(swarm, "GET", "/api/v1/workers").json["items"]
    return items


def source_of(item: dict[str, Any], fact: str) -> str:
    return next((one["source"] for one in item["sources"] if one["fact"] == fact), "")


def start(swarm: Swarm) -> None:
    """Without waiting for workers: with the DHT alone none is linked before work comes."""
    done = swarm.mycel("up", "--detach", "--json", "--port", "0", "--workers", "2")
    assert done.code == 0, done
    swarm.take(done.json)


def test_the_dht_alone_finds_workers_for_work(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm(DHT_ALONE)
    start(swarm)
    tasks = [swarm.client.submit_task(command=["echo", str(number)]) for number in range(8)]
    assert [swarm.client.wait(one.id, 60).value for one in tasks] == [
        f"{number}\n" for number in range(8)
    ]
    found = [item for item in worker_items(swarm) if item["state"] == "healthy"]
    assert found
    # A search that ends after the worker has come is the newer sign of life.
    assert {source_of(item, "presence") for item in found} <= {"call", "dht"}
    assert {source_of(item, "capabilities") for item in found} == {"registered"}


def test_the_dht_alone_lists_workers_before_any_work(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm(DHT_ALONE + '\n[worker.labels]\nzone = "a"\n')
    start(swarm)
    eventually(lambda: len(worker_items(swarm)) == 2, "both have been found")
    assert {item["state"] for item in worker_items(swarm)} == {"known"}
    stats = call(swarm, "GET", "/api/v1/stats").json
    assert (stats["workers_known"], stats["pool_size"]) == (2, 0)
    metrics = call(swarm, "GET", "/metrics").body.decode()
    assert "hypha_scheduler_workers_available 0.0" in metrics
    assert "mycel_scheduler_workers_known 2.0" in metrics
    task = submit_satisfiable(swarm, "a")
    assert swarm.client.wait(task.json["id"], 60).value == "ran\n"
    refused = submit_satisfiable(swarm, "b")
    assert refused.status == 422
    assert "none of the 2 known workers can run it" in refused.body.decode()


def submit_satisfiable(swarm: Swarm, zone: str) -> Answer:
    body = {
        "command": ["echo", "ran"],
        "requirements": {"labels": {"zone": zone}},
        "require_satisfiable": True,
    }
    return call(swarm, "POST", "/api/v1/tasks", json.dumps(body).encode())


def test_gossip_alone_brings_workers(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm(GOSSIP_ALONE)
    start(swarm)
    eventually(lambda: swarm.healthy() == 2, "both workers have come by themselves")
    assert swarm.client.wait(swarm.client.submit_task(command=["echo", "x"]).id, 60).value == "x\n"
    ways = {source_of(item, "presence") for item in worker_items(swarm)}
    assert ways <= {"gossip", "gateway", "connection"}


def test_the_dht_finds_the_one_worker_that_suits(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm(DHT_ALONE + '\n[worker.labels]\nzone = "a"\n')
    start(swarm)
    task = swarm.client.submit_task(command=["true"], requirements={"labels": {"zone": "a"}})
    assert swarm.client.wait(task.id, 60).state == "succeeded"
    other = swarm.client.submit_task(command=["true"], requirements={"labels": {"zone": "b"}})
    explained = call(swarm, "GET", f"/api/v1/tasks/{other.id}/explain").json
    assert explained["reason"] == "no_match"


@pytest.mark.parametrize("settings", [DHT_ALONE, QUICK], ids=["dht", "both"])
def test_a_dead_worker_is_gone_and_stays_gone(make_swarm: SwarmMaker, settings: str) -> None:
    swarm = make_swarm(settings)
    start(swarm)
    task = swarm.client.submit_task(command=["true"], requirements={"cpu_cores": 2})
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
    tasks = [
        swarm.client.submit_task(command=["true"], requirements={"cpu_cores": 2}) for _ in "1234"
    ]
    assert {swarm.client.wait(one.id, 60).state for one in tasks} == {"succeeded"}
    assert swarm.worker_state(victim.name) == "", "it has not come back as a ghost"


CHECKED_SECONDS = 4.0
UNLINKED = (
    DHT_ALONE.replace("cpu_cores = 2", "cpu_cores = 1")
    # On a slow machine a second one is called before the first has answered: it is parted from.
    .replace("[scheduler]", "[scheduler]\ndiscovery_interval = 1.0\nmax_linked_workers = 1")
    .replace(
        "health_check_timeout", f"health_check_interval = {CHECKED_SECONDS}\nhealth_check_timeout"
    )
)


def start_unlinked(swarm: Swarm) -> list[str]:
    """Four workers, of which one task has made the scheduler call one: the names of the other
    three, which it knows from the DHT alone."""
    done = swarm.mycel("up", "--detach", "--json", "--port", "0", "--workers", "4")
    assert done.code == 0, done
    swarm.take(done.json)

    def is_published() -> bool:
        """The scheduler keeps, as all of so few nodes do, what each of the four has told."""
        shown = call(swarm, "GET", "/metrics").body.decode()
        kept = dict(re.findall(r"^mycel_swarm_dht_(records|providers) (\d+)", shown, re.MULTILINE))
        return kept["records"] == "4" and int(kept["providers"]) % 4 == 0

    def look() -> list[str]:
        found = swarm.client.workers()
        names = [one.name for one in found if one.state == "known"]
        return names if len(found) == 4 and len(names) == 3 else []

    def search() -> list[str]:
        task = swarm.client.submit_task(command=["true"])
        assert swarm.client.wait(task.id, 60).state == "succeeded"
        return look()

    # Whoever is not there by the first search is not sought while the others do.
    eventually(is_published, "all four can be found")
    return eventually(search, "one worker is linked, three are known")


def test_dead_workers_without_a_link_are_gone_and_stay_gone(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm(UNLINKED)
    one, other, third = start_unlinked(swarm)
    shown = {item["name"]: item for item in swarm.mycel("workers", "--json").json["items"]}
    assert shown[one]["capabilities"]["cpu_cores"] > 0
    unknown = ("cpu_cores_free", "memory_free", "gpus_free", "tasks", "cpu_usage")
    assert {shown[one]["load"][name] for name in unknown} == {None}, "nobody has told"
    table = swarm.mycel("workers").out.partition("\n\n")[0]  # the walls are listed below it
    [row] = [line for line in table.splitlines() if line.startswith(one)]
    assert " ?/" in row
    for name in (one, other):  # half of them at once
        os.kill(swarm.pids[name], signal.SIGKILL)
    eventually(
        lambda: not {one, other} & {worker.name for worker in swarm.client.workers()},
        "the dead are gone from the table",
        2 * CHECKED_SECONDS + SLACK_SECONDS,
    )
    listed = swarm.mycel("workers").out
    assert one not in listed
    assert third in listed
    tasks = [swarm.client.submit_task(command=["sleep", "0.3"]) for _ in range(6)]
    assert {swarm.client.wait(task.id, 60).state for task in tasks} == {"succeeded"}
    assert not {one, other} & {worker.name for worker in swarm.client.workers()}, "no ghosts"
    swarm.mycel("up", "--detach")  # they come back as themselves, with a later boot
    for _ in range(30):  # more than two workers like: they are sought
        swarm.client.submit_task(command=["sleep", "1"])
    eventually(
        lambda: {one, other} <= {worker.name for worker in swarm.client.workers()},
        "both are known again",
    )


def test_a_frozen_worker_without_a_link_is_suspect_and_gets_no_work(
    make_swarm: SwarmMaker,
) -> None:
    swarm = make_swarm(UNLINKED)
    frozen, *_ = start_unlinked(swarm)
    swarm.kill(frozen, signal.SIGSTOP)
    peer = swarm.worker(frozen).peer_id
    seen = {"known"}

    def is_gone() -> bool:
        seen.add(swarm.worker_state(frozen))
        return "" in seen

    tasks = [swarm.client.submit_task(command=["sleep", "0.2"]) for _ in range(8)]
    ran_by = {swarm.client.wait(task.id, 60).worker for task in tasks}
    assert peer not in ran_by
    eventually(is_gone, "it is gone from the table", 2 * CHECKED_SECONDS + SLACK_SECONDS)
    assert "suspect" in seen or "called" in seen
    swarm.kill(frozen, signal.SIGCONT)


def test_a_frozen_worker_gets_no_new_work(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm(QUICK.replace("[worker]", "health_check_interval = 2.0\n\n[worker]"))
    swarm.up(workers=2)
    swarm.kill("worker-2", signal.SIGSTOP)
    frozen = swarm.pids["worker-2"]
    tasks = [swarm.client.submit_task(command=["true"]) for _ in range(6)]
    ran_by = {swarm.name_of(swarm.client.wait(one.id, 60).worker) for one in tasks}
    assert ran_by == {"worker-1"}, f"worker-2 (pid {frozen}) is stopped"
    eventually(lambda: swarm.worker_state("worker-2") != "healthy", "its silence was noticed")


# Seeing the swarm


def test_peers_status_ping_and_metrics(swarm: Swarm) -> None:
    peers = swarm.mycel("peers", "--json")
    assert peers.code == 0, peers
    items = peers.json["items"]
    assert {role for item in items for role in item["roles"]} >= {"gateway", "worker"}
    assert all(item["path"] == "direct" and item["last_seen_seconds"] < 60 for item in items)
    status = swarm.mycel("swarm", "status", "--json")
    assert status.code == 0, status
    assert status.json["workers_linked"] == 2
    assert len(status.json["gateways"]) == 1
    assert "worker-1" in swarm.mycel("peers").out
    assert "2 linked of 2 known" in swarm.mycel("swarm", "status").out
    metrics = call(swarm, "GET", "/metrics").body.decode()
    direct = re.search(r'mycel_swarm_connections{kind="direct"} (\S+)', metrics)
    assert direct is not None
    assert float(direct[1]) >= 3, "a peer may be connected twice"
    for name in ("dht_queries", "gossip_received", "relay_circuits", "bytes_in", "dials"):
        assert f"mycel_swarm_{name}" in metrics


def scraped(url: str, **headers: str) -> str:
    asked = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(asked, timeout=30) as answer:
        text: str = answer.read().decode()
    return text


def test_gateways_and_workers_show_their_metrics_where_they_are_told_to(
    make_swarm: SwarmMaker,
) -> None:
    where = '\n[gateway]\nmetrics_address = "{}:0"\n'
    swarm = make_swarm(
        QUICK.replace("[worker]", '[worker]\nmetrics_address = "127.0.0.1:0"')
        + where.format("0.0.0.0")
    )
    printed = swarm.up(workers=2)
    assert set(printed["metrics"]) == {"gateway", "worker-1", "worker-2"}
    assert swarm.client.wait(swarm.client.submit_task(command=["true"]).id, 60).state == "succeeded"
    of_scheduler = set(
        re.findall(
            r"# TYPE (mycel_swarm_\S+)",
            scraped(f"{swarm.api}/metrics", Authorization=f"Bearer {swarm.token}"),
        )
    )
    for name in ("worker-1", "worker-2"):
        text = scraped(printed["metrics"][name])
        assert set(re.findall(r"# TYPE (mycel_swarm_\S+)", text)) == of_scheduler
        received = re.search(r'mycel_swarm_bytes_in_total{path="direct"} (\S+)', text)
        assert received is not None
        assert float(received[1]) > 0
    everywhere = printed["metrics"]["gateway"].replace("0.0.0.0", "127.0.0.1")
    with pytest.raises(urllib.error.HTTPError, match="401"):
        scraped(everywhere)
    text = scraped(everywhere, Authorization=f"Bearer {swarm.token}")
    connections = re.search(r'mycel_swarm_connections{kind="direct"} (\S+)', text)
    assert connections is not None
    assert float(connections[1]) >= 3


def test_two_workers_at_one_metrics_address_are_told_apart(make_swarm: SwarmMaker) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        swarm = make_swarm(QUICK.replace("[worker]", f'[worker]\nmetrics_address = "{address}"'))
        done = swarm.mycel("up", "--detach", "--port", "0")
    assert done.code == 1
    assert f"worker.metrics_address: {address} is in use by another program" in done.err


def test_a_ping_goes_there_and_back(swarm: Swarm) -> None:
    gateway = call(swarm, "GET", "/api/v1/swarm").json["gateways"][0]
    for peer in ("worker-1", gateway, gateway[-10:]):
        pinged = swarm.mycel("swarm", "ping", peer, "--count", "3", "--json")
        assert pinged.code == 0, pinged
        answer = pinged.json
        assert (answer["sent"], answer["received"], answer["error"]) == (3, 3, None)
        assert 0 < answer["min_ms"] <= answer["avg_ms"] <= answer["max_ms"] < 5000
    assert "min/avg/max" in swarm.mycel("swarm", "ping", "worker-2").out


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"peer": "nobody"}', 404),
        (b'{"peer": "12D3"}', 409),
        (b'{"peer": ""}', 422),
        (b'{"peer": "x", "count": 0}', 422),
        (b'{"peer": "x", "more": 1}', 422),
        (b"nonsense", 400),
    ],
)
def test_bad_pings_are_refused(swarm: Swarm, body: bytes, status: int) -> None:
    answer = call(swarm, "POST", "/api/v1/swarm/ping", body)
    assert answer.status == status, answer
    assert answer.headers["content-type"] == "application/problem+json"


# Gateways


def test_a_killed_gateway_stops_nothing_and_makes_nothing_run_again(
    make_swarm: SwarmMaker, tmp_path: Path
) -> None:
    swarm = make_swarm()
    swarm.up(workers=2)
    job = start_gated(swarm, tmp_path, 6, 4)
    swarm.kill("gateway")
    open_gate(tmp_path)
    results = check_ended_once(swarm, job, 6)
    assert {result.attempt for result in results} == {1}
    assert {attempt for _, attempt, _ in executions(tmp_path)} == {1}, "nothing ran again"
    task = swarm.client.submit_task(command=["echo", "on"])
    assert swarm.client.wait(task.id, 60).value == "on\n"
    assert swarm.healthy() == 2
    swarm.up()
    eventually(
        lambda: len(call(swarm, "GET", "/api/v1/swarm").json["gateways"]) == 1,
        "the gateway is used again",
    )


def test_half_of_the_workers_die_at_once(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm()
    swarm.up(workers=4)
    for name in ("worker-3", "worker-4"):
        os.kill(swarm.pids[name], signal.SIGKILL)
    tasks = [swarm.client.submit_task(command=["true"]) for _ in range(12)]
    assert {swarm.client.wait(one.id, 60).state for one in tasks} == {"succeeded"}
    eventually(
        lambda: {one.name for one in swarm.client.workers()} == {"worker-1", "worker-2"},
        "the dead are gone from the table",
        2 * HEALTH_CHECK_SECONDS,
    )


def test_a_service_that_nobody_offers_is_named(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm(QUICK + '\n[gateway]\nservices = ["bootstrap", "teapot"]\n')
    done = swarm.mycel("up", "--detach", "--json", "--port", "0")
    assert done.code == 1
    assert "there is no service 'teapot'" in done.err


PLUG_IN = """
class Greeter:
    def start(self, swarm, note):
        self._note = note
        note("greeter_started", at=swarm.peer)

    def peer_connected(self, peer, roles):
        self._note("greeted", peer=peer, roles=sorted(roles))

    def peer_left(self, peer):
        self._note("missed", peer=peer)

    def stop(self):
        self._note("greeter_stopped")
"""


def _install(package: Path) -> None:
    """As pip leaves it behind: a module, and beside it what it offers."""
    offered = package / "greeter-1.0.dist-info"
    offered.mkdir(parents=True)
    (package / "greeter.py").write_text(PLUG_IN)
    (offered / "METADATA").write_text("Metadata-Version: 2.1\nName: greeter\nVersion: 1.0\n")
    (offered / "entry_points.txt").write_text(
        "[mycel.gateway_services]\ngreeter = greeter:Greeter\n"
    )


def test_a_service_of_another_package_runs_in_the_gateway(
    make_swarm: SwarmMaker, tmp_path: Path
) -> None:
    _install(tmp_path / "site")
    swarm = make_swarm(QUICK + '\n[gateway]\nservices = ["bootstrap", "dht", "greeter"]\n')
    path = swarm.environment["PYTHONPATH"]
    swarm.environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path / "site"), path])
    swarm.up(workers=1)
    log = swarm.home / "gateway" / "log.jsonl"

    def noted(event: str) -> list[dict[str, Any]]:
        lines = (json.loads(line) for line in log.read_text().splitlines())
        return [line for line in lines if line.get("event") == event]

    assert len(eventually(lambda: noted("greeter_started"), "the service tells")) == 1
    eventually(
        lambda: (
            {role for one in noted("greeted") for role in one["roles"]} >= {"scheduler", "worker"}
        ),
        "both were greeted",
    )
    swarm.mycel("down")
    assert noted("greeter_stopped")
