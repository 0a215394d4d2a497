"""`mycel results JOB`: what its tasks have given, as lines for people or for programs."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable
from typing import Any

import msgspec

from mycel.cli.arguments import connect, parser
from mycel.cli.id_prefixes import job_id, shown_id
from mycel.cli.job_follower import said_of
from mycel.client import Client
from mycel.client.functions.values import as_sent
from mycel.client.responses import Result
from mycel.console.tables import print_json_line

COLUMNS = ("index", "state", "exit_code", "error")


def results(given: list[str]) -> int:
    options = parser("results", "Print a job's results so far, in the order in which tasks ended.")
    options.add_argument("job", metavar="JOB")
    how = options.add_mutually_exclusive_group()
    how.add_argument(
        "--csv", action="store_true", help="with a column for each parameter and field"
    )
    how.add_argument("--jsonl", action="store_true", help="a line of JSON for each, as --json")
    options.add_argument("--failed", action="store_true", help="only of tasks that have failed")
    options.add_argument("--wait", action="store_true", help="until the job has ended")
    chosen = options.parse_args(given)
    with connect(chosen) as client:
        job = job_id(client, chosen.job)
        found = client.results(job, follow=chosen.wait)
        if chosen.failed:
            found = (one for one in found if one.state == "failed")
        if chosen.csv:
            _print_csv(client, job, found)
        elif chosen.jsonl or chosen.json:
            for result in found:
                whole = _whole(client, job, result)
                print_json_line(msgspec.structs.replace(whole, value=as_sent(whole.value)))
        else:
            for result in found:
                said = said_of(result).partition("\n")[0]
                print(f"{shown_id(f'{job}.{result.index}')}  {result.state}  {said}")
    return 0


def _whole(client: Client, job: str, result: Result) -> Result:
    """With a value that is too long for a line."""
    if not result.size or result.state != "succeeded":
        return result
    return msgspec.structs.replace(result, value=client.result(f"{job}.{result.index}"))


def _print_csv(client: Client, job: str, found: Iterable[Result]) -> None:
    """By index. A task's parameters stand before its value; a value that is an object has a column
    for each of its fields."""
    ended = {one.index: _whole(client, job, one) for one in found}
    given = {
        int(task.id.rpartition(".")[2]): _columns(task.arguments, "argument")
        for task in client.tasks(job=job)
    }
    values = {index: _columns(one.value, "value") for index, one in ended.items()}
    parameters = _names(given[index] for index in ended if index in given)
    fields = _names(values.values())
    kept = io.StringIO()
    writer = csv.writer(kept, lineterminator="\n")
    headings = [_heading(name, "argument", COLUMNS) for name in parameters]
    headings += [_heading(name, "value", (*COLUMNS, *headings)) for name in fields]
    writer.writerow([*COLUMNS[:2], *headings, *COLUMNS[2:]])
    for index in sorted(ended):
        one, own = ended[index], given.get(index, {})
        row = [index, one.state, *(own.get(name, "") for name in parameters)]
        row += [values[index].get(name, "") for name in fields]
        code = "" if one.exit_code is None else one.exit_code
        writer.writerow([*row, code, (one.error or "").strip()])
    sys.stdout.write(kept.getvalue())


def _columns(value: Any, name: str) -> dict[str, Any]:
    """Cells by their columns."""
    if value is None:
        return {}
    if isinstance(value, dict):
        return {str(key): _cell(one) for key, one in value.items()}
    if isinstance(value, list) and name == "argument":
        return {f"{name}_{place}": _cell(one) for place, one in enumerate(value)}
    return {name: _cell(value)}


def _heading(name: str, kind: str, taken: Iterable[str]) -> str:
    return f"{kind}_{name}" if name in taken else name


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, str | int | float):
        return value
    return msgspec.json.encode(as_sent(value)).decode()


def _names(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Of all columns, in the order in which they come."""
    return list(dict.fromkeys(name for row in rows for name in row))
