"""`mycel get ID [DIR]`: brings home what a task, or all tasks of a job, have left."""

from __future__ import annotations

import sys
from pathlib import Path

from mycel.cli.arguments import connect, parser
from mycel.cli.id_prefixes import job_id, task_id
from mycel.client import Client
from mycel.console.tables import print_json, size
from mycel.console.terminal import write_own


def main(given: list[str]) -> int:
    options = parser(
        "get",
        "Wait for a task (JOB.N), and write what it has left into a folder; of a job with several "
        "tasks, into a folder for each, by its number.",
    )
    options.add_argument("id", metavar="ID")
    options.add_argument("directory", metavar="DIR", nargs="?", default=".", type=Path)
    chosen = options.parse_args(given)
    moving = Moving("received")
    with connect(chosen) as client:
        if "." in chosen.id:
            identifier = task_id(client, chosen.id)
            found = client.outputs(identifier, chosen.directory, moving)
        else:
            identifier = job_id(client, chosen.id)
            found = _of_job(client, identifier, chosen.directory, moving)
    moving.end()
    if chosen.json:
        files = [str(path) for path in found]
        print_json({"id": identifier, "files": files, "received": moving.count})
    else:
        for path in found:
            print(path)
    return 0


def _of_job(client: Client, job: str, directory: Path, moving: Moving) -> list[Path]:
    """A task that left nothing, because it failed or was to leave nothing, is passed over."""
    ended = client.wait_job(job)
    if ended.tasks.total == 1:
        return client.outputs(f"{job}.0", directory, moving)
    found: list[Path] = []
    passed_over = 0
    for task in client.tasks(job=job):
        if task.outputs is not None and task.outputs.digest:
            found += client.outputs(task.id, directory / task.id.rpartition(".")[2], moving)
        elif task.outputs is not None:
            passed_over += 1
    if passed_over:
        print(f"mycel: {passed_over} tasks have left nothing", file=sys.stderr)
    return found


class Moving:
    """How far a transfer is, on a terminal."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._shown = ""
        self.count = 0
        """Bytes that were moved."""

    def __call__(self, moved: int, total: int) -> None:
        self.count = moved
        text = f"{size(moved)} of {size(total)} {self._what}"
        if sys.stderr.isatty() and text != self._shown:
            self._shown = text
            write_own(sys.stderr, f"\r\033[K{text}")
            sys.stderr.flush()

    def end(self) -> None:
        if self._shown:
            print(file=sys.stderr)
