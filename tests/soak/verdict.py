"""What came of it: the book of promises against the journal, the API and the traces.

Every execution left a trace. For each task one execution at most is committed; any other has
to be explained: by an end in the journal, by the kill of its worker, or by a cancellation.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import msgspec
from blake3 import blake3

from mycel.client import Client, NotFound

from .load import Load

SHOWN = 10
LOST_SECONDS = 3.0
"""No task takes longer: a worker's kill explains only what began so shortly before it."""


class Execution(msgspec.Struct):
    task: str
    number: int
    pid: int
    nonce: str
    worker: str
    began: float
    computed: float | None = None


class Row(msgspec.Struct):
    state: str
    number: int
    value: bytes
    digest: bytes
    error: str
    ended_at: float


class Verdict(msgspec.Struct):
    complaints: list[str] = []
    tasks: int = 0
    states: dict[str, int] = {}
    executions: int = 0
    executions_again: int = 0
    by_journal: int = 0
    """Executions that were not committed, explained by an end in the journal."""
    by_lost_worker: int = 0
    by_cancellation: int = 0
    running_at_kill: int = 0
    """Executions that a kill of the scheduler met, over all kills."""
    adopted: int = 0
    """Those of them that were committed by the scheduler that came after."""


def read_executions(log: Path) -> dict[str, list[Execution]]:
    """By task, in order."""
    found: dict[str, Execution] = {}
    for line in log.read_text().splitlines():
        entry = json.loads(line)
        if entry["event"] == "began":
            found[entry["nonce"]] = Execution(
                entry["task"],
                entry["number"],
                entry["pid"],
                entry["nonce"],
                entry["worker"],
                entry["at"],
            )
        else:
            found[entry["nonce"]].computed = entry["at"]
    tasks: dict[str, list[Execution]] = defaultdict(list)
    for execution in found.values():
        tasks[execution.task].append(execution)
    return tasks


def judge(
    load: Load,
    client: Client,
    journal: Path,
    log: Path,
    scheduler_kills: list[float],
    worker_kills: list[tuple[str, float]],
) -> Verdict:
    verdict = Verdict(complaints=[])
    executions = read_executions(log)
    rows, ends = _read_journal(journal, verdict)
    shown = _read_api(load, client, verdict)
    _compare_api(rows, shown, load, verdict)
    for job, count in load.jobs.items():
        for index in range(count):
            task = f"{job}.{index}"
            row = rows.pop(task, None)
            if row is None:
                verdict.complaints.append(f"{task} is lost: the journal has no end of it")
                continue
            _judge_task(task, row, executions.get(task, []), ends, load, worker_kills, verdict)
            committed = _committed(row, executions.get(task, []))
            for one in executions.get(task, []):
                met = [at for at in scheduler_kills if one.began < at < (one.computed or one.began)]
                verdict.running_at_kill += len(met)
                verdict.adopted += one is committed and bool(met)
    verdict.complaints += [f"{task} was never acknowledged, and has an end" for task in rows]
    return verdict


def _read_journal(
    journal: Path, verdict: Verdict
) -> tuple[dict[str, Row], Counter[tuple[str, int]]]:
    database = sqlite3.connect(f"file:{journal}?mode=ro", uri=True)
    try:
        broken = database.execute("PRAGMA quick_check").fetchone()[0]
        if broken != "ok":
            verdict.complaints.append(f"the journal is damaged: {broken}")
        rows: dict[str, Row] = {}
        query = (
            "SELECT jobs.id || '.' || task_index, results.state, results.number, value, digest, "
            "error, results.ended_at FROM results JOIN jobs ON jobs.number = results.job"
        )
        for task, *fields in database.execute(query):
            if task in rows:
                verdict.complaints.append(f"{task} has two ends in the journal")
            rows[task] = Row(*fields)
        ended = database.execute(
            "SELECT jobs.id || '.' || task_index, ended_attempts.number FROM ended_attempts "
            "JOIN jobs ON jobs.number = ended_attempts.job"
        )
        return rows, Counter((task, number) for task, number in ended)
    finally:
        database.close()


def _read_api(load: Load, client: Client, verdict: Verdict) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for identifier, count in load.jobs.items():
        try:
            job = client.job(identifier)
        except NotFound:
            verdict.complaints.append(f"job {identifier} was acknowledged, and is not there")
            continue
        if not job.is_over or job.tasks.total != count or job.tasks.ended != count:
            verdict.complaints.append(f"job {identifier} of {count} tasks shows {job}")
        for result in client.results(identifier, follow=False):
            task = f"{identifier}.{result.index}"
            if task in shown:
                verdict.complaints.append(f"{task} is shown twice among the results")
            shown[task] = (result.state, result.value, result.sequence)
    return shown


def _compare_api(rows: dict[str, Row], shown: dict[str, Any], load: Load, verdict: Verdict) -> None:
    for task, row in rows.items():
        value = json.loads(row.value) if row.value else None
        if task not in shown or shown[task][:2] != (row.state, value):
            verdict.complaints.append(f"{task}: journal {row}, API {shown.get(task)}")
    for task, early in load.seen.items():
        if shown.get(task) != early:
            verdict.complaints.append(f"{task} was shown as {early}, and is {shown.get(task)}")
    for task in load.cancelled:
        if task in rows and rows[task].state != "cancelled":
            verdict.complaints.append(
                f"{task} was cancelled for the client, and {rows[task].state}"
            )


def _committed(row: Row, executions: list[Execution]) -> Execution | None:
    if row.state == "succeeded":
        nonce = json.loads(row.value)["nonce"]
    elif row.state == "failed":
        nonce = row.error.splitlines()[0].rpartition(" ")[2]
    else:
        return None
    return next((one for one in executions if one.nonce == nonce), None)


def _judge_task(
    task: str,
    row: Row,
    executions: list[Execution],
    ends: Counter[tuple[str, int]],
    load: Load,
    worker_kills: list[tuple[str, float]],
    verdict: Verdict,
) -> None:
    verdict.tasks += 1
    verdict.states[row.state] = verdict.states.get(row.state, 0) + 1
    verdict.executions += len(executions)
    verdict.executions_again += max(0, len(executions) - 1)
    committed = _committed(row, executions)
    if row.state == "cancelled":
        if task not in load.asked_to_cancel:
            verdict.complaints.append(f"{task} is cancelled, and nobody asked for that")
    elif committed is None or committed.computed is None:
        verdict.complaints.append(f"{task}: no execution computed what was committed: {row}")
    else:
        if row.state == "succeeded":
            value = json.loads(row.value)
            mine = (committed.task, committed.number, committed.pid)
            if (value["task"], value["number"], value["pid"]) != mine or value["task"] != task:
                verdict.complaints.append(f"{task}: the value is of {mine}: {value}")
            if blake3(row.value).digest() != row.digest:
                verdict.complaints.append(f"{task}: the digest does not fit the value")
        if committed.number != row.number:
            verdict.complaints.append(
                f"{task}: attempt {row.number} is committed with the value of {committed.number}"
            )
    wasted = [one for one in executions if one is not committed]
    for execution in wasted:
        end = (task, execution.number)
        if ends[end] > 0:
            ends[end] -= 1
            verdict.by_journal += 1
        elif row.state == "cancelled" and execution is wasted[-1]:
            verdict.by_cancellation += 1
        elif any(
            execution.worker == worker and 0 < killed_at - execution.began < LOST_SECONDS
            for worker, killed_at in worker_kills
        ):
            verdict.by_lost_worker += 1
        else:
            verdict.complaints.append(f"{task}: nothing explains {execution}; committed: {row}")
