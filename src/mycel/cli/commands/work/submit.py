"""`mycel submit FILE`: a job from a file in TOML, YAML or JSON."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from typing import Any

from mycel.cli.arguments import connect, parser
from mycel.cli.command_parser import did_you_mean
from mycel.cli.job_follower import follow_job
from mycel.cli.task_texts import what_runs
from mycel.client import Client, Invalid, Job, Task
from mycel.client.errors import ClientError
from mycel.client.job_files import JobFile
from mycel.client.responses import Preview, Sample, ShapePreview
from mycel.console.errors import CommandError
from mycel.console.tables import print_json, print_table, size
from mycel.console.terminal import write_own
from mycel.core.identifiers import ulid

from .get import Moving


def main(given: list[str]) -> int:
    options = parser(
        "submit", "Submit a job from a TOML, YAML or JSON file; '-' reads JSON or YAML."
    )
    options.add_argument("file", metavar="FILE")
    how = options.add_mutually_exclusive_group()
    how.add_argument("--wait", action="store_true", help="until the job has ended")
    how.add_argument(
        "--follow",
        action="store_true",
        help="print results as they come, and the output of tasks that take longer than a moment",
    )
    how.add_argument(
        "--dry-run", action="store_true", help="say what would come of it, and submit nothing"
    )
    chosen = options.parse_args(given)
    file = JobFile.read(chosen.file)
    with connect(chosen) as client:
        try:
            if chosen.dry_run:
                return _preview(client.preview_job(file.body), chosen)
            if file.local.sources:
                moving = Moving("sent")
                client.upload(file.local.sources, moving)
                moving.end()
            job = _submitted(client, file.body)
        except Invalid as error:
            raise CommandError(f"{file.place(error.path, error.detail)}: {error.detail}") from error
        return _report(client, job, chosen)


def _submitted(client: Client, body: dict[str, Any]) -> Job:
    """Whoever interrupts it is not left with a job whose id they do not know."""
    identifier = body.get("id") or ulid(time.time_ns() // 1_000_000, os.urandom(10))
    try:
        return client.submit_job_in_parts({**body, "id": identifier}, _progress)
    except BaseException as error:
        if "id" not in body:
            with contextlib.suppress(ClientError):  # most often there is none yet
                client.cancel(identifier)
                if isinstance(error, KeyboardInterrupt):
                    print(f"mycel: job {identifier} is cancelled", file=sys.stderr)
        raise


def _progress(sent: int) -> None:
    if sys.stderr.isatty():
        write_own(sys.stderr, f"\r{sent:,} tasks sent")
        sys.stderr.flush()


def _preview(preview: Preview, options: argparse.Namespace) -> int:
    if options.json:
        print_json(preview)
        return 0
    print(f"{preview.tasks:,} task{'s' if preview.tasks != 1 else ''}")
    if preview.stages:
        print()
        print_table(
            ("STAGE", "TASKS", "NEEDS", "ON FAILURE"),
            [
                (one.name, f"{one.tasks:,}", ", ".join(one.needs) or "-", one.on_failure)
                for one in preview.stages
            ],
        )
    print()
    print_table(
        ("TASKS", "STAGES", "RESOURCES", "FROM", "WORKERS", "FREE NOW", "SIDE BY SIDE"),
        [
            (
                f"{one.tasks:,}",
                ", ".join(one.stages) or "-",
                _resources(one),
                one.source,
                f"{one.workers_able} of {one.workers_known}",
                str(one.workers_free),
                f"{one.slots:,}",
            )
            for one in preview.shapes
        ],
    )
    for one in preview.shapes:
        for row in one.missing:
            more = row.count - len(row.workers)
            who = ", ".join(row.workers) + (f" and {more} more" if more > 0 else "")
            print(f"  {who}: {row.reason}")
        if not one.workers_able:
            print(f"  {_resources(one)}: no known worker can run this; it would wait for one")
    for sample in preview.samples:
        _print_sample(sample)
    return 0


def _print_sample(sample: Sample) -> None:
    of = f" of {sample.stage}" if sample.stage else ""
    print(f"\nThe first task{of} runs:")
    shown = Task(
        "", "", "", python=sample.python, model=sample.model, image=sample.image,
        command=sample.command, arguments=sample.arguments,
    )  # fmt: skip
    print(f"  {what_runs(shown)}")
    for name, value in sample.env.items():
        print(f"  with {name}={value}")
    for path in sample.unfilled:
        hint = did_you_mean(path, sample.parameters)
        print(f"mycel: nothing gives ${{{path}}} a value: it stays as it is{hint}", file=sys.stderr)


def _resources(shape: ShapePreview) -> str:
    asked = shape.requirements
    cores = asked.get("cpu_cores")
    parts = [f"{cores:g} cores" if cores != 1 else "1 core"] if cores else []
    sizes = {"memory": asked.get("min_memory"), "disk": asked.get("disk")}
    parts += [f"{size(amount)} {name}" for name, amount in sizes.items() if amount]
    if asked.get("gpus"):
        gpus = asked["gpus"]
        parts.append(f"{gpus['count']:g} GPU {gpus.get('model', '')}".rstrip())
    parts += [f"{amount:g} {name}" for name, amount in asked.get("custom", {}).items()]
    return ", ".join(parts) or "a slot of its model"


def _report(client: Client, job: Job, options: argparse.Namespace) -> int:
    if options.follow:
        return follow_job(client, job.id, as_json=options.json)
    if not options.wait:
        print_json(client.get(f"/api/v1/jobs/{job.id}")) if options.json else print(job.id)
        return 0
    code = follow_job(client, job.id, results=False, as_json=options.json)
    if options.json:
        print_json(client.get(f"/api/v1/jobs/{job.id}"))
    return code
