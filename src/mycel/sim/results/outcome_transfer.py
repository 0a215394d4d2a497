"""An outcome as text, so that it can be a task's value: columns as numpy's own archive, compressed.

What comes back is data from another machine: it is read without pickle, and every field is checked.
"""

from __future__ import annotations

import base64
import io
import zipfile
from dataclasses import fields
from typing import Any, Final

import msgspec
import numpy

from mycel.sim.errors import SimulationError
from mycel.sim.run_records import Sample

from .run_results import Outcome

REST: Final = "rest"
PER_JOB: Final = ("arrival_ns", "end_ns", "longest_ns", "priority")
PER_TASK: Final = (
    "task_job",
    "task_start_ns",
    "task_end_ns",
    "task_server",
    "task_arrived_at",
)


class Rest(msgspec.Struct, forbid_unknown_fields=True):
    """What is no column."""

    policy: str
    seed: int
    load: float | None
    slots: int
    messages: int
    completions: int
    events: int
    bytes: int
    preemptions: int
    losses: int
    undelivered: int
    warm_up_ns: int
    interrupted: bool
    samples: list[Sample]
    marks: list[tuple[int, str]]
    link_share: dict[int, float]
    belief_ages_ns: list[int]
    preempted_ns: list[int]


def encode(outcome: Outcome) -> str:
    rest = {
        field.name: getattr(outcome, field.name)
        for field in fields(outcome)
        if field.name not in (*PER_JOB, *PER_TASK)
    }
    columns = {name: getattr(outcome, name) for name in (*PER_JOB, *PER_TASK)}
    columns[REST] = numpy.frombuffer(msgspec.json.encode(rest), numpy.uint8)
    packed = io.BytesIO()
    numpy.savez_compressed(packed, **columns)
    return base64.b85encode(packed.getvalue()).decode()


def decode(text: object) -> Outcome:
    if not isinstance(text, str):
        raise SimulationError(f"a run on the swarm gave no outcome but {type(text).__name__}")
    try:
        with numpy.load(io.BytesIO(base64.b85decode(text)), allow_pickle=False) as packed:
            columns: dict[str, Any] = {name: packed[name] for name in (*PER_JOB, *PER_TASK, REST)}
        rest = msgspec.json.decode(columns.pop(REST).tobytes(), type=Rest)
        _check(columns)
    except (
        ValueError,
        KeyError,
        EOFError,
        OSError,
        zipfile.BadZipFile,
        msgspec.ValidationError,
    ) as error:
        raise SimulationError(
            f"a run on the swarm gave an outcome that cannot be read ({error}): its workers need "
            "the same release of Mycel"
        ) from None
    return Outcome(**columns, **{name: getattr(rest, name) for name in rest.__struct_fields__})


def _check(columns: dict[str, Any]) -> None:
    for names in (PER_JOB, PER_TASK):
        lengths = {len(columns[name]) for name in names}
        if len(lengths) != 1 or any(
            columns[name].ndim != 1 or columns[name].dtype != numpy.int64 for name in names
        ):
            raise ValueError(f"{', '.join(names)} are not columns of one length")
    jobs = len(columns["arrival_ns"])
    task_job = columns["task_job"]
    if len(task_job) and not 0 <= int(task_job.min()) <= int(task_job.max()) < jobs:
        raise ValueError("a task belongs to no job")
