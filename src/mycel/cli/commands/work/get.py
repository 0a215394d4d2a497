"""`mycel get TASK [DIR]`: brings home what a task has left."""

from __future__ import annotations

import sys
from pathlib import Path

from mycel.cli.arguments import connect, parser
from mycel.cli.id_prefixes import task_id
from mycel.console.tables import print_json, size
from mycel.console.terminal import write_own


def main(given: list[str]) -> int:
    options = parser("get", "Wait for a task, and write what it has left into a folder.")
    options.add_argument("task", metavar="TASK")
    options.add_argument("directory", metavar="DIR", nargs="?", default=".", type=Path)
    chosen = options.parse_args(given)
    with connect(chosen) as client:
        task = task_id(client, chosen.task)
        moved = Moving("received")
        found = client.outputs(task, chosen.directory, moved)
        moved.end()
    if chosen.json:
        files = [str(path) for path in found]
        print_json({"id": task, "files": files, "received": moved.count})
    else:
        for path in found:
            print(path)
    return 0


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
