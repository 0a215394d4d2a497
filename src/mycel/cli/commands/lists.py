"""`mycel jobs`, `mycel tasks`, `mycel workers`, `mycel models`."""

from __future__ import annotations

from mycel.cli.arguments import connect, parser
from mycel.cli.id_prefixes import job_id
from mycel.client import Client, Job, Task, Worker
from mycel.client.responses import Load, TaskCounts
from mycel.console.tables import age, duration, elapsed, print_json, print_table, shorten, size

SHOWN = 100


def jobs(given: list[str]) -> int:
    options = parser("jobs", "List jobs, newest first.")
    options.add_argument("--limit", type=int, default=SHOWN, metavar="N")
    chosen = options.parse_args(given)
    with connect(chosen) as client:
        found = list(client.jobs(limit=max(1, chosen.limit)))
    if chosen.json:
        print_json({"items": found})
        return 0
    print_table(
        ("JOB", "NAME", "STATE", "TASKS", "AGE", "TOOK"),
        [
            (
                job.id,
                shorten(job.name, 24),
                job.state,
                _counts(job.tasks) + _stages(job),
                age(job.created_at),
                elapsed(job.created_at, job.finished_at),
            )
            for job in found
        ],
    )
    return 0


def _counts(tasks: TaskCounts) -> str:
    parts = [f"{tasks.ended}/{tasks.total}"]
    parts += [f"{tasks.running} running"] if tasks.running else []
    parts += [f"{tasks.failed} failed"] if tasks.failed else []
    parts += [f"{tasks.cancelled} cancelled"] if tasks.cancelled else []
    return ", ".join(parts)


def _stages(job: Job) -> str:
    """The stages that something happens in, or is to happen."""
    running = [
        f"{one.name} {one.ended}/{one.tasks}" for one in job.stages if one.state == "running"
    ]
    return f" ({', '.join(running)})" if running else ""


def tasks(given: list[str]) -> int:
    options = parser("tasks", "List tasks, the newest job's first.")
    options.add_argument("--job", metavar="ID", help="only this job's")
    options.add_argument("--state", metavar="STATE", help="only those in this state")
    options.add_argument("--limit", type=int, default=SHOWN, metavar="N")
    chosen = options.parse_args(given)
    with connect(chosen) as client:
        job = None if chosen.job is None else job_id(client, chosen.job)
        limit = max(1, chosen.limit)
        found = list(client.tasks(job=job, state=chosen.state, limit=limit))
        names = {} if chosen.json else _names(client)
    if chosen.json:
        print_json({"items": found})
        return 0
    print_table(
        ("TASK", "STATE", "TRY", "DONE", "WORKER", "AGE", "RAN", "WHAT"),
        [
            (
                task.id,
                task.state,
                str(task.attempt),
                "-" if task.progress is None else f"{task.progress:.0%}",
                names.get(task.worker or "", (task.worker or "")[-8:]),
                age(task.created_at),
                elapsed(task.started_at, task.finished_at),
                shorten(_what(task), 48),
            )
            for task in found
        ],
    )
    return 0


def _names(client: Client) -> dict[str, str]:
    return {worker.peer_id: worker.name for worker in client.workers()}


def _what(task: Task) -> str:
    prefix = f"[{task.stage}] " if task.stage else ""
    what = prefix + _runs(task)
    if task.state == "queued" and task.reason:
        return f"{what} ({task.reason})"
    return f"{what}: {task.error}" if task.error else what


def _runs(task: Task) -> str:
    return task.python or task.model or task.image or " ".join(task.command or [])


def workers(given: list[str]) -> int:
    chosen = parser("workers", "List workers.").parse_args(given)
    with connect(chosen) as client:
        if chosen.json:
            print_json(client.get("/api/v1/workers"))
            return 0
        found = client.workers()
    print_table(
        (
            "WORKER",
            "STATE",
            "RUNNING",
            "CORES",
            "MEMORY",
            "IN USE",
            "GPUS",
            "SUCCESS",
            "MEAN",
            "FAILS",
            "SEEN",
            "RTT",
        ),
        [_worker_row(worker) for worker in found],
    )
    if found:
        print()
        print_table(("WORKERS", "TASKS ARE HELD BY"), _walls_rows(found))
    return 0


def _walls_rows(workers: list[Worker]) -> list[tuple[str, str]]:
    """What holds their tasks, or in full why they take none, each said once."""
    names: dict[str, list[str]] = {}
    for worker in workers:
        has = worker.capabilities
        walls = ", ".join(has.get("walls", ())) or "nothing"
        advice = has.get("advice", "")
        said = walls + (f"; for more, {advice}" if advice else "")
        if not worker.accepting and worker.closed_for:
            said += f" (closed: {worker.closed_for})"
        names.setdefault(said, []).append(worker.name)
    return [(", ".join(sorted(of)), said) for said, of in names.items()]


def models(given: list[str]) -> int:
    chosen = parser("models", "List the models that workers serve.").parse_args(given)
    with connect(chosen) as client:
        found = client.get("/api/v1/models")
    if chosen.json:
        print_json(found)
        return 0
    print_table(
        ("MODEL", "KIND", "WORKERS", "SLOTS", "MEMORY", "GPU MEMORY"),
        [
            (
                model["name"],
                model["kind"],
                ", ".join(worker["name"] for worker in model["workers"]),
                f"{model['slots_free']}/{model['slots_total']} free",
                size(model["memory"]) if model["memory"] else "-",
                size(model["gpu_memory"]) if model["gpu_memory"] else "-",
            )
            for model in found["items"]
        ],
    )
    return 0


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


def _worker_row(worker: Worker) -> tuple[str, ...]:
    has, load, health = worker.capabilities, worker.load, worker.health
    rate, mean = health.success_rate, health.avg_completion_time
    return (
        worker.name or worker.peer_id[-8:],
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
