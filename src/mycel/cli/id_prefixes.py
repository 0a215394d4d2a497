"""Ids as people type and read them: any unique beginning or end will do.

All ids of one day begin alike, since they begin with the time, and end at random. So lists on a
terminal show the ends.
"""

from __future__ import annotations

import sys
from typing import Final

from mycel.client import Client
from mycel.client.responses import Job
from mycel.console.errors import CommandError
from mycel.core.identifiers import ULID_LENGTH

SHOWN_LENGTH: Final = 8


def shown_id(identifier: str) -> str:
    """Of a job or a task, for a list: short on a terminal, whole in files and pipes."""
    if not sys.stdout.isatty():
        return identifier
    job, dot, index = identifier.partition(".")
    return job[-SHOWN_LENGTH:] + dot + index


def job_id(client: Client, text: str) -> str:
    return text.lower() if len(text) == ULID_LENGTH else _found(client, text).id


def task_id(client: Client, text: str) -> str:
    """`<job>.<n>`; of a job with one task, the job alone will do."""
    job, dot, index = text.partition(".")
    job = job_id(client, job)
    if dot:
        return f"{job}.{index}"
    if client.job(job).tasks.total != 1:
        raise CommandError(f"job {job} has several tasks; name one, such as {job}.0")
    return f"{job}.0"


def any_id(client: Client, text: str) -> str:
    """Of a task, if it has a dot, else of a job."""
    return task_id(client, text) if "." in text else job_id(client, text)


def _found(client: Client, text: str) -> Job:
    part = text.lower()
    found = client.find_jobs(part) if part else []
    if part and not found:
        found = client.find_jobs("", ending=part)
    if not found:
        raise CommandError(f"there is no job {text!r}; 'mycel jobs' lists them")
    if len(found) > 1:
        which = " or ".join(one.id for one in found)
        raise CommandError(f"{text!r} is of several jobs, such as {which}; give more of it")
    return found[0]
