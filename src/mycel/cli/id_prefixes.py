"""Ids as people type them: any unique beginning will do."""

from __future__ import annotations

from mycel.client import Client
from mycel.console.errors import CommandError
from mycel.core.identifiers import ULID_LENGTH


def job_id(client: Client, text: str) -> str:
    prefix = text.lower()
    if len(prefix) == ULID_LENGTH:
        return prefix
    found = client.find_jobs(prefix) if prefix else []
    if not found:
        raise CommandError(f"there is no job {text!r}; 'mycel jobs' lists them")
    if len(found) > 1:
        raise CommandError(f"{text!r} is the beginning of several jobs' ids; give more of it")
    return found[0].id


def task_id(client: Client, text: str) -> str:
    """`<job>.<n>`; of a job with one task, the job alone will do."""
    job, dot, index = text.partition(".")
    job = job_id(client, job)
    if dot:
        return f"{job}.{index}"
    if client.job(job).tasks.total != 1:
        raise CommandError(f"job {job} has several tasks; name one, such as {job}.0")
    return f"{job}.0"
