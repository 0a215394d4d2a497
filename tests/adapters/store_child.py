"""Commits group after group and prints each that is done, until somebody kills it.

Run as a program by the crash test: `-m …store_child FILE [BYTES_MAX]`. With a limit on the size
of files it prints the error that a full disk leads to, and ends.
"""

from __future__ import annotations

import queue
import resource
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from mycel.core.journal import Entry
from mycel.store.sqlite.sqlite_journal import SqliteStore

from .store_harness import block, opened, task_ended

TASKS_PER_GROUP = 5
GROUPS_MAX = 100_000


def main() -> None:
    calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
    store = SqliteStore(Path(sys.argv[1]), calls.put)
    print("boot", store.raise_boot(), flush=True)
    if len(sys.argv) > 2:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        limit = int(sys.argv[2])
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    def told(number: int, error: BaseException | None) -> None:
        if error is not None:
            print("error", number, type(error).__name__, str(error).replace("\n", " "), flush=True)
            if type(error).__name__ == "JournalBroken":
                sys.exit(0)
            return
        print("done", number, flush=True)

    value = b"x" * (100_000 if len(sys.argv) > 2 else 100)
    for number in range(1, GROUPS_MAX):
        tasks = [
            task_ended(number, index, attempt=number * 10 + index, value=value)
            for index in range(TASKS_PER_GROUP)
        ]
        group: list[Entry] = [opened(number), block(number, count=TASKS_PER_GROUP), *tasks]
        store.commit(group, partial(told, number))
        while number % 8 == 0 or not calls.empty():
            calls.get()()
            if calls.empty():
                break


if __name__ == "__main__":
    main()
