"""The keys and metrics of the scheduler-nodes document that only a real process shows."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.document import text

from .conftest import SwarmMaker
from .rest import call
from .swarm import Swarm, eventually

KEY_METRICS: Final = {
    "queue_depth": "hypha_scheduler_tasks_queued",
    "completion_rate": "mycel_scheduler_task_completion_rate",
    "average_latency_seconds": "mycel_scheduler_task_average_latency_seconds",
    "pool_size": "hypha_scheduler_workers_available",
    "success_rate": "mycel_scheduler_task_success_rate",
}
"""The document's five key metrics: in the statistics, and as a series."""


def bind_address(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm('[scheduler.api]\nbind_address = "127.0.0.2:0"\n')
    swarm.up(workers=1)
    port = swarm.ports["api"]
    with socket.create_connection(("127.0.0.2", port), 5.0):
        pass
    with socket.socket() as elsewhere:
        assert elsewhere.connect_ex(("127.0.0.1", port)) != 0


def max_request_size(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm()
    swarm.up(workers=1)
    assert submit(swarm, "x" * 200) == 201
    settings = swarm.home / "mycel.toml"
    settings.write_text(settings.read_text() + '[scheduler.api]\nmax_request_size = "100B"\n')

    done = swarm.mycel("reload", "--json")

    assert done.json["scheduler"]["applied"] == ["scheduler.api.max_request_size"]
    eventually(lambda: submit(swarm, "x" * 200) == 413, "the limit is lower")


TESTS: Final[dict[str, Callable[[SwarmMaker], None]]] = {
    "scheduler.api.bind_address": bind_address,
    "scheduler.api.max_request_size": max_request_size,
}


@pytest.mark.parametrize("name", sorted(text.API_KEYS))
def test_key_has_its_effect(name: str, make_swarm: SwarmMaker) -> None:
    TESTS[name](make_swarm)


def submit(swarm: Swarm, name: str = "", command: str = "true", cores: float = 1.0) -> int:
    body = {"command": [command], "name": name, "requirements": {"cpu_cores": cores}}
    return call(swarm, "POST", "/api/v1/tasks?wait=20", json.dumps(body)).status


def series(swarm: Swarm) -> dict[str, float]:
    lines = call(swarm, "GET", "/metrics").body.decode()
    return {
        name: float(value)
        for name, value in re.findall(r"^(\w+) ([-+.\deE]+)$", lines, re.MULTILINE)
    }


def test_every_metric_of_the_document_moves(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm()
    swarm.up(workers=1)
    before = series(swarm)
    assert set(text.metrics()) <= set(before)
    assert before["hypha_scheduler_workers_available"] == 1

    submit(swarm)
    submit(swarm, command="false")
    for command, cores in (("true", 10_000.0), ("sleep", 1.0)):
        arguments = [command] if command == "true" else [command, "600"]
        body = {"command": arguments, "requirements": {"cpu_cores": cores}}
        assert call(swarm, "POST", "/api/v1/tasks", json.dumps(body)).status == 201

    def moved() -> dict[str, float]:
        after = series(swarm)
        still = [name for name in text.metrics() if after[name] == before[name]]
        return {} if still != ["hypha_scheduler_workers_available"] else after

    after = eventually(moved, "every metric has moved")
    assert after["hypha_scheduler_tasks_queued"] == 1
    assert after["hypha_scheduler_tasks_completed_total"] == 1
    assert after["hypha_scheduler_tasks_failed_total"] == 1
    assert after["hypha_scheduler_workers_busy"] == 1

    swarm.kill("worker-1")
    eventually(
        lambda: series(swarm)["hypha_scheduler_workers_available"] == 0, "no worker is available"
    )


def test_the_five_key_metrics_agree_with_their_series(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm()
    swarm.up(workers=1)
    for command in ("true", "true", "true", "false"):
        submit(swarm, command=command)
    submit(swarm, cores=1.0)
    stats: dict[str, Any] = call(swarm, "GET", "/api/v1/stats").json
    shown = series(swarm)
    assert stats["success_rate"] == pytest.approx(0.8)
    assert stats["completion_rate"] > 0
    assert stats["average_latency_seconds"] > 0
    for name, metric in KEY_METRICS.items():
        assert shown[metric] == pytest.approx(stats[name], rel=0.5), name


def test_the_excerpt_has_all_metrics_of_the_document() -> None:
    assert text.metrics() == text.metrics_of(text.document())
