"""`mycel submit FILE`: a job as the REST API takes it, in TOML or JSON."""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from mycel.client import Client, Invalid, Job

from .arguments import connect, parser
from .errors import CommandError
from .output import print_json

_TOML_PLACE = re.compile(r"(.*) \(at line (\d+), column (\d+)\)", re.DOTALL)
_TASK_KINDS = ("command", "python", "model", "image")


def main(given: list[str]) -> int:
    options = parser("submit", "Submit a job from a TOML or JSON file; '-' reads JSON.")
    options.add_argument("file", metavar="FILE")
    how = options.add_mutually_exclusive_group()
    how.add_argument("--wait", action="store_true", help="until the job has ended")
    how.add_argument("--follow", action="store_true", help="print results as they come")
    chosen = options.parse_args(given)
    text = _read(chosen.file)
    body = parse(chosen.file, text)
    with connect(chosen) as client:
        try:
            job = submit(client, body)
        except Invalid as error:
            raise CommandError(f"{_place(chosen.file, text, error.path)}{error.detail}") from error
        return _report(client, job, chosen)


def _read(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CommandError(f"{file} is not UTF-8 text (byte {error.start})") from error
    except OSError as error:
        raise CommandError(f"{file} cannot be read: {error.strerror}") from error


def parse(file: str, text: str) -> dict[str, Any]:
    """The job; a single task in the file is a job of one."""
    body = _parse_toml(file, text) if file.endswith(".toml") else _parse_json(file, text)
    if not isinstance(body, dict):
        raise CommandError(f"{file} has to hold a table: task, and count or arguments")
    if "task" not in body and any(kind in body for kind in _TASK_KINDS):
        return {"task": body, "count": 1}
    return body


def _parse_json(file: str, text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        where = f"{file}, line {error.lineno}, column {error.colno}"
        raise CommandError(f"{where}: this is not JSON: {error.msg}") from error


def _parse_toml(file: str, text: str) -> Any:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        match = _TOML_PLACE.fullmatch(str(error))
        if match is None:
            raise CommandError(f"{file}: this is not TOML: {error}") from error
        reason, line, column = match.groups()
        where = f"{file}, line {line}, column {column}"
        raise CommandError(f"{where}: this is not TOML: {reason}") from error


def _place(file: str, text: str, path: str) -> str:
    """The line of the key that the API complains of, where the file's format tells."""
    keys = tuple(re.findall(r"[^.$\[\]]+", path))
    if not file.endswith(".toml"):
        return f"{file}, at {path}: " if path else f"{file}: "
    from mycel.config.lines import lines_of_keys

    lines = lines_of_keys(text)
    if keys[:1] == ("task",) and ("task",) not in lines and keys not in lines:
        keys = keys[1:]  # the file is a single task
    while keys and keys not in lines:
        keys = keys[:-1]
    line = f", line {lines[keys]}" if keys else ""
    return f"{file}{line}, at {path}: " if path else f"{file}: "


def submit(client: Client, body: dict[str, Any]) -> Job:
    """Big argument lists go in batches, unless the file chose its own id."""
    arguments = body.get("arguments")
    known = {"task", "arguments", "name"}
    if isinstance(arguments, list) and len(arguments) > 10_000 and set(body) <= known:
        return client.submit_job(body["task"], arguments=arguments, name=body.get("name", ""))
    return client.submit_job_body(body)


def _report(client: Client, job: Job, options: argparse.Namespace) -> int:
    if options.follow:
        for result in client.results(job.id):
            if options.json:
                print(msgspec.json.encode(result).decode(), flush=True)
            else:
                said = result.error or msgspec.json.encode(result.value).decode()
                line = f"{job.id}.{result.index}  {result.state}  {said.splitlines()[0]}"
                print(line, flush=True)
        job = client.job(job.id)
        return 0 if job.state == "succeeded" else 1
    if options.wait:
        job = client.wait_job(job.id)
    if options.json:
        print_json(client.get(f"/api/v1/jobs/{job.id}"))
    elif options.wait:
        counts = job.tasks
        print(
            f"{job.id}  {job.state}: {counts.succeeded} succeeded, {counts.failed} failed, "
            f"{counts.cancelled} cancelled"
        )
    else:
        print(job.id)
    return 0 if not options.wait or job.state == "succeeded" else 1
