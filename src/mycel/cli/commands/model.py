"""`mycel model serve|list|stop`: models that a job keeps up, wherever they fit."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any, Final, NoReturn, get_args

from mycel.cli.arguments import connect, parser
from mycel.cli.command_parser import run_action
from mycel.client import Client, Task
from mycel.console.errors import CommandError
from mycel.console.tables import Column, print_json, print_table, shorten
from mycel.core.model.model_program import Kind
from mycel.drivers.model.gguf import NotGguf, read_gguf

LOOK_SECONDS: Final = 0.1
PATIENCE_SECONDS: Final = 3.0
"""What waits no longer is not worth a word."""
GGUF_SLOTS: Final = 4
TRIES_MAX: Final = 3


def main(given: list[str]) -> int:
    actions = {"serve": serve, "list": show, "stop": stop}
    return run_action("model", actions, given)


def serve(given: list[str]) -> int:
    options = _serve_parser()
    chosen = options.parse_args(given)
    if (chosen.gguf is None) == (chosen.python is None):
        options.error("give one of --gguf and --python")
    with connect(chosen) as client:
        if any(one["model"] == chosen.name for one in _services(client)):
            raise CommandError(
                f"{chosen.name} is kept up already: 'mycel model list' says how, "
                f"'mycel model stop {chosen.name}' ends it"
            )
        body = {"name": f"model {chosen.name}", "count": chosen.replicas, "task": _task(chosen)}
        job = client.submit_job_body(body)
        name = next(
            (one["model"] for one in _services(client) if one["job_id"] == job.id), chosen.name
        )
        served = [] if chosen.no_wait else _follow(client, name, job.id, chosen.replicas)
    if chosen.json:
        print_json(
            {
                "model": chosen.name,
                "job_id": job.id,
                "replicas": chosen.replicas,
                "workers": served,
            }
        )
    elif chosen.no_wait:
        print(f"{chosen.name} will be served by job {job.id}; 'mycel model list' shows how it is")
    else:
        print(f"{chosen.name} is served on {', '.join(served)}; 'mycel model stop {chosen.name}'")
    return 0


def _serve_parser() -> argparse.ArgumentParser:
    options = parser("model serve", "Load a model where it fits, and keep so many of it up.")
    options.add_argument("name", metavar="NAME", help="what requests call it")
    options.add_argument("--replicas", type=_positive, default=1, metavar="N", help="(1)")
    options.add_argument("--gguf", metavar="FILE", help="its path on the workers")
    options.add_argument("--python", metavar="MODULE:FACTORY", help="importable on the workers")
    options.add_argument("--folder", default="", metavar="DIR", help="to import from, there")
    options.add_argument("--kind", choices=get_args(Kind), default="chat")
    options.add_argument("--concurrency", type=_positive, metavar="N", help="requests at once")
    options.add_argument("--batch", type=_positive, metavar="N", help="inputs that share a call")
    options.add_argument(
        "--context-size", type=_positive, metavar="TOKENS", dest="tokens", help="of a GGUF file"
    )
    options.add_argument("--threads", type=_positive, metavar="N", help="of a GGUF file")
    options.add_argument("--cores", type=float, metavar="N", help="that each replica takes (1)")
    options.add_argument("--memory", metavar="SIZE", help='that each replica takes, such as "6GB"')
    options.add_argument("--gpus", type=float, metavar="N", help="that each replica takes")
    options.add_argument("--no-wait", action="store_true", help="do not wait until it is served")
    return options


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a number from 1 on is expected, not {text!r}")
    return int(text)


def _task(chosen: argparse.Namespace) -> dict[str, Any]:
    given = {
        "gguf": None if chosen.gguf is None else str(Path(chosen.gguf).expanduser().absolute()),
        "python": chosen.python,
        "folder": chosen.folder,
        "kind": chosen.kind,
        "concurrency": chosen.concurrency,
        "batch": chosen.batch,
        "context": chosen.tokens,
        "threads": chosen.threads,
    }
    requirements = {
        "cpu_cores": chosen.cores or chosen.threads,
        "min_memory": chosen.memory or _derived_memory(chosen),
        "gpus": None if chosen.gpus is None else {"count": chosen.gpus},
    }
    serve = {"name": chosen.name, **_given(given)}
    return {"serve": serve, "requirements": _given({"cpu_cores": 1, **_given(requirements)})}


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _derived_memory(chosen: argparse.Namespace) -> int | None:
    """If the file is here too; else nobody knows before it is loaded."""
    if chosen.gguf is None:
        return None
    try:
        facts = read_gguf(Path(chosen.gguf).expanduser())
    except NotGguf:
        return None
    return facts.memory((chosen.concurrency or GGUF_SLOTS) * (chosen.tokens or 4096))


def _follow(client: Client, name: str, job_id: str, replicas: int) -> list[str]:
    """Until so many are served; whoever interrupts leaves it as it is. What has failed to load so
    often, and never once loaded, is given up."""
    told: set[str] = set()
    was_served = False
    patient_until = time.monotonic() + PATIENCE_SECONDS
    try:
        while True:
            tasks = list(client.tasks(job=job_id, limit=replicas))
            workers = _serving(client, name, tasks)
            was_served = was_served or bool(workers)
            if len(workers) >= replicas:
                return workers
            if not was_served and tasks and all(_failures(task) >= TRIES_MAX for task in tasks):
                _give_up(client, name, job_id, tasks)
            waiting = time.monotonic() > patient_until
            for line in _troubles(tasks, waiting=waiting):
                if line not in told:
                    told.add(line)
                    print(f"mycel: {line}", file=sys.stderr)
            time.sleep(LOOK_SECONDS)
    except KeyboardInterrupt:
        print(
            f"mycel: it goes on; 'mycel model list' shows how, 'mycel model stop {name}' ends it",
            file=sys.stderr,
        )
        raise


def _failures(task: Task) -> int:
    """How often it has failed to load."""
    return sum(one.state == "failed" for one in task.attempts)


def _give_up(client: Client, name: str, job_id: str, tasks: list[Task]) -> NoReturn:
    client.cancel(job_id)
    reasons = [one.error for task in tasks for one in task.attempts if one.error]
    why = reasons[-1] if reasons else "no reason given"
    raise CommandError(
        f"{name} cannot be loaded, and is given up after {TRIES_MAX} tries of each replica: {why} "
        "(--no-wait keeps trying)"
    )


def _serving(client: Client, name: str, tasks: list[Task]) -> list[str]:
    """The workers that run one of these tasks and serve the model, once for each task."""
    models = client.get("/api/v1/models")["items"]
    names = {
        worker["peer_id"]: worker["name"]
        for model in models
        if model["name"] == name
        for worker in model["workers"]
        if worker["slots_total"]
    }
    running = [task.worker for task in tasks if task.state == "running" and task.worker in names]
    return sorted(names[peer] for peer in running if peer is not None)


def _troubles(tasks: list[Task], *, waiting: bool = True) -> list[str]:
    troubles = []
    for task in tasks:
        failed = [one.error for one in task.attempts if one.error]
        if failed:
            troubles.append(f"replica {task.id.partition('.')[2]}: {failed[-1]}")
        elif waiting and task.state == "queued" and task.reason:
            troubles.append(
                f"replica {task.id.partition('.')[2]} waits ({task.reason}); "
                f"'mycel explain {task.id}' says more"
            )
    return troubles


def show(given: list[str]) -> int:
    chosen = parser("model list", "List the models that jobs keep up.").parse_args(given)
    with connect(chosen) as client:
        found = [_described(client, one) for one in _services(client)]
    if chosen.json:
        print_json({"items": found})
        return 0
    print_table(
        (
            Column("MODEL", least=16),
            Column("KIND", leaves=2),
            "REPLICAS",
            Column("WORKERS", least=10),
            "JOB",
            Column("WHAT", least=12, leaves=1),
            Column("TROUBLE", wraps=True),
        ),
        [
            (
                one["model"],
                one["kind"],
                f"{len(one['workers'])}/{one['replicas']}",
                ", ".join(one["workers"]) or "-",
                one["job_id"],
                shorten(one["python"] or one["gguf"], 40),
                shorten(one["trouble"] or "-", 60),
            )
            for one in found
        ],
    )
    return 0


def _described(client: Client, service: dict[str, Any]) -> dict[str, Any]:
    tasks = list(client.tasks(job=service["job_id"], limit=service["replicas"]))
    workers = _serving(client, service["model"], tasks)
    troubles = _troubles(tasks) if len(workers) < service["replicas"] else []
    return {**service, "workers": workers, "trouble": troubles[0] if troubles else ""}


def stop(given: list[str]) -> int:
    options = parser("model stop", "Serve a model no longer that a job keeps up.")
    options.add_argument("name", metavar="NAME")
    chosen = options.parse_args(given)
    with connect(chosen) as client:
        found = [one for one in _services(client) if one["model"] == chosen.name]
        if not found:
            raise CommandError(f"no job keeps {chosen.name} up; 'mycel model list' lists them")
        for one in found:
            client.cancel(one["job_id"])
    if chosen.json:
        print_json({"model": chosen.name, "cancelled": [one["job_id"] for one in found]})
    else:
        print(f"{chosen.name} is served no longer")
    return 0


def _services(client: Client) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = client.get("/api/v1/services")["items"]
    return items
