"""`mycel cluster agent`: the program."""

from __future__ import annotations

import fcntl
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from mycel.batch.registry import make_batch_system
from mycel.batch.shared_folder import SharedFolder
from mycel.console.errors import CommandError
from mycel.core.agent.accept_rules import AcceptRule
from mycel.core.agent.agent_machine import AgentMachine
from mycel.core.agent.agent_settings import AgentSettings

from .agent_journal import AgentJournal
from .agent_loop import AgentLoop
from .folder_origin import FolderOrigin

POLL_SECONDS: Final = 0.5
JOBS: Final = "jobs"
SHARED: Final = "shared"


class AgentOptions(msgspec.Struct, frozen=True):
    folder: Path
    """Its journal and its jobs."""
    shared: Path | None
    """What every node sees; in `folder` without it."""
    system: str
    rule: AcceptRule
    settings: AgentSettings
    until_empty: bool
    """Ends when no job is left."""


def main(options: AgentOptions) -> int:
    options.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _alone(options.folder):
        return serve(options)


def serve(options: AgentOptions) -> int:
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    journal = AgentJournal(options.folder / "journal.jsonl")
    loop = make_loop(options, journal)
    try:
        loop.start()
        while not ended.wait(POLL_SECONDS):
            loop.turn()
            if options.until_empty and not any(loop.machine.attempts):
                break
    finally:
        journal.close()
    return 0


def make_loop(
    options: AgentOptions, journal: AgentJournal, kind: type[AgentLoop] = AgentLoop
) -> AgentLoop:
    mark = f"mycel-{journal.agent}"
    share = SharedFolder(
        options.shared or options.folder / SHARED, mark, is_new=not journal.entries
    )
    machine = AgentMachine(
        options.settings,
        options.rule,
        boot=journal.boot,
        now=_clock(),
        entries=journal.entries,
    )
    return kind(
        machine,
        journal,
        make_batch_system(options.system),
        share,
        FolderOrigin(options.folder / JOBS, share),
        clock=_clock,
        note=_note,
    )


def _clock() -> float:
    """It goes on while the machine sleeps, as the lease does."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _note(text: str) -> None:
    print(f"mycel cluster agent: {text}", file=sys.stderr, flush=True)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise CommandError(f"another agent works for {folder}") from None
        yield
