"""One key on two machines: both hear of it, and the swarm works on."""

from __future__ import annotations

import json
import re
import shutil
import socket
import urllib.request
from pathlib import Path
from typing import Any

from .conftest import QUICK, SwarmMaker
from .swarm import Swarm, eventually


def log_of(home: Path, role: str) -> list[dict[str, Any]]:
    lines = (home / role / "log.jsonl").read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


METRICS = """
[gateway]
metrics_address = "127.0.0.1:0"
"""


def refused_duplicates(swarm: Swarm) -> float:
    """As the gateway has counted them."""
    state = json.loads((swarm.home / "gateway" / "state.json").read_text())
    with urllib.request.urlopen(f"{state['metrics']}", timeout=10) as answer:
        text = answer.read().decode()
    found = re.search(r'^mycel_swarm_refusals_total{.*"duplicate".*} (\S+)$', text, re.MULTILINE)
    return 0.0 if found is None else float(found[1])


def addresses(swarm: Swarm, role: str) -> list[str]:
    state: list[str] = json.loads((swarm.home / role / "state.json").read_text())["addresses"]
    return state


def test_the_node_whose_key_another_machine_uses_says_so_and_is_refused(
    make_swarm: SwarmMaker,
) -> None:
    founded = make_swarm(QUICK + METRICS)
    founded.up(workers=1)
    done = founded.mycel("invite", "--json")
    guest = make_swarm("", name="guest")
    first = guest.popen("worker", "--name", "guest", "--join", done.json["invite"])
    eventually(lambda: founded.worker_state("guest") == "healthy", "the guest has joined")
    twin = make_swarm("", name="twin")
    (twin.home / "guest").mkdir()
    for file in (guest.home / "guest").glob("*.*"):
        if file.suffix in (".key", ".token", ".toml", ".pub", ".json") and file.is_file():
            shutil.copy(file, twin.home / "guest")
    for file in guest.home.glob("*.*"):
        if file.is_file():
            shutil.copy(file, twin.home)
    second = twin.popen("worker", "--name", "guest")

    def told() -> list[str]:
        lines = [*log_of(guest.home, "guest"), *log_of(twin.home, "guest")]
        return [text for line in lines if "identity.key" in (text := json.dumps(line))]

    eventually(lambda: (twin.home / "guest" / "log.jsonl").exists(), "the twin has started")
    message = eventually(told, "one of the two says what is wrong")[0]
    assert "two machines must not share an identity.key" in message
    reason = "another node runs with this identity"

    def refused() -> list[str]:
        lines = log_of(founded.home, "gateway")
        found = [line["error"] for line in lines if line["event"] == "hello_refused"]
        return [error for error in found if reason in error]

    error = eventually(refused, "the gateway has refused it")[0]
    assert error.startswith(reason), "our own reason, and nothing of the layers below"
    eventually(lambda: refused_duplicates(founded) >= 1, "and counted it")
    ran = founded.mycel("run", "--", "true")
    assert ran.code == 0, ran
    for process in (first, second):
        process.terminate()
        process.communicate(timeout=30)


def test_a_node_listens_for_quic_beside_tcp_and_does_without_if_it_must(
    make_swarm: SwarmMaker,
) -> None:
    swarm = make_swarm(QUICK)
    swarm.up(workers=1)
    for role in ("gateway", "scheduler", "worker-1"):
        tcp, quic = addresses(swarm, role)
        assert quic == tcp.replace("/tcp/", "/udp/").replace("/p2p/", "/quic-v1/p2p/")
    invited = swarm.mycel("invite", "--json").json["gateways"]
    assert invited == addresses(swarm, "gateway")[:1], "one way to each place"
    port = int(addresses(swarm, "worker-1")[0].split("/")[4])
    assert swarm.mycel("down").code == 0

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", port))
        swarm.up(workers=1)
        assert len(addresses(swarm, "worker-1")) == 1
        [warning] = [line for line in log_of(swarm.home, "worker-1") if line["event"] == "no_quic"]
        assert str(port) in warning["address"]
        assert swarm.mycel("run", "--", "true").code == 0
