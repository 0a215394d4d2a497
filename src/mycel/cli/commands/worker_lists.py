"""`mycel workers`, `mycel models`."""

from __future__ import annotations

from typing import Any

from mycel.cli.arguments import connect, parser
from mycel.cli.worker_names import names_of
from mycel.client import Worker
from mycel.client.responses import Load
from mycel.console.tables import Column, age, duration, print_json, print_table, shorten, size

WORKER_COLUMNS = (
    Column("WORKER", least=10),
    Column("STATE", least=9),
    "RUNNING",
    "CORES",
    Column("MEMORY", leaves=1),
    Column("IN USE", leaves=6),
    Column("GPUS", least=8, leaves=2),
    Column("SUCCESS", leaves=3),
    Column("MEAN", leaves=4),
    Column("FAILS", leaves=5),
    Column("SEEN", leaves=7),
    Column("RTT", leaves=8),
)


def workers(given: list[str]) -> int:
    chosen = parser("workers", "List workers.").parse_args(given)
    with connect(chosen) as client:
        if chosen.json:
            print_json(client.get("/api/v1/workers"))
            return 0
        found = client.workers()
    names = names_of(found)
    print_table(WORKER_COLUMNS, [_worker_row(worker, names) for worker in found])
    if found:
        print()
        columns = (Column("WORKERS", least=16), Column("TASKS ARE HELD BY", wraps=True))
        print_table(columns, _walls_rows(found, names))
    return 0


def _walls_rows(workers: list[Worker], names: dict[str, str]) -> list[tuple[str, str]]:
    """What holds their tasks, or in full why they take none, each said once."""
    held: dict[str, list[str]] = {}
    for worker in workers:
        has = worker.capabilities
        walls = ", ".join(has.get("walls", ())) or "nothing"
        advice = has.get("advice", "")
        said = walls + (f"; for more, {advice}" if advice else "")
        if not worker.accepting and worker.closed_for:
            said += f" (closed: {worker.closed_for})"
        held.setdefault(said, []).append(names[worker.peer_id])
    return [(", ".join(sorted(of)), said) for said, of in held.items()]


def models(given: list[str]) -> int:
    chosen = parser("models", "List the models that workers serve.").parse_args(given)
    with connect(chosen) as client:
        found = client.get("/api/v1/models")
    if chosen.json:
        print_json(found)
        return 0
    print_table(
        (
            Column("MODEL", least=16),
            "KIND",
            Column("WORKERS", least=12),
            "SLOTS",
            Column("MEMORY", leaves=1),
            Column("GPU MEMORY", leaves=2),
            Column("TROUBLE", wraps=True),
        ),
        [
            (
                model["name"],
                model["kind"],
                ", ".join(worker["name"] for worker in model["workers"]),
                f"{model['slots_free']}/{model['slots_total']} free",
                size(model["memory"]) if model["memory"] else "-",
                size(model["gpu_memory"]) if model["gpu_memory"] else "-",
                _trouble(model),
            )
            for model in found["items"]
        ],
    )
    return 0


def _trouble(model: dict[str, Any]) -> str:
    """Where it is not up, and why."""
    down = [f"{one['name']}: {one['trouble']}" for one in model["workers"] if one.get("trouble")]
    return "; ".join(down) or "-"


def _closed(worker: Worker) -> str:
    return shorten(worker.closed_for.removeprefix("it ").removeprefix("was "), 40) or "closed"


def _in_use(load: Load) -> str:
    """Of the machine: cores and memory."""
    if load.cpu_usage is None or load.memory_usage is None:
        return "-"
    return f"{load.cpu_usage:.0%}, {load.memory_usage:.0%}"


def _free_cores(load: Load, all_cores: float) -> str:
    """Of a worker without a link only what it has is known."""
    free = "?" if load.cpu_cores_free is None else f"{load.cpu_cores_free:g}"
    return f"{free}/{all_cores:g} free"


def _free_memory(load: Load, whole: int) -> str:
    return f"{'?' if load.memory_free is None else size(load.memory_free)}/{size(whole)}"


def _worker_row(worker: Worker, names: dict[str, str]) -> tuple[str, ...]:
    has, load, health = worker.capabilities, worker.load, worker.health
    rate, mean = health.success_rate, health.avg_completion_time
    return (
        names[worker.peer_id],
        worker.state if worker.accepting else f"{worker.state}, {_closed(worker)}",
        str(load.running),
        _free_cores(load, has.get("cpu_cores", 0)),
        _free_memory(load, has.get("memory", 0)),
        _in_use(worker.load),
        ", ".join(gpu["model"] for gpu in has.get("gpus", [])) or "-",
        "-" if rate is None else f"{rate:.0%}",
        "-" if mean is None else duration(mean),
        str(health.consecutive_failures),
        age(health.last_seen) or "-",
        "-" if worker.rtt_ms is None else f"{worker.rtt_ms:.1f} ms",
    )
