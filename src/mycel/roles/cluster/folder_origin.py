"""Jobs as folders: the origin of an agent that works for the users of one machine.

jobs/<name>/job.json       what to run; it appears whole, by renaming its folder
            cancel         makes the agent cancel it
            state          how it stands, for people
            outcome.json   how it ended; appears last, when everything else is here
            stdout stderr work/      or a folder for each element of an array
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from mycel.access.errors import SecretError
from mycel.access.secret_files import replace_secret_file, write_synced
from mycel.batch.shared_folder import SharedFolder
from mycel.core.agent import agent_events as events
from mycel.core.agent.attempts import (
    AttemptName,
    Cause,
    Outcome,
    OutcomeState,
    is_attempt_name,
)
from mycel.core.agent.batch_jobs import ClusterJob, JobRefused

JOB: Final = "job.json"
JOB_BYTES_MAX: Final = 4 << 20
OUTCOME: Final = "outcome.json"
CANCEL: Final = "cancel"
STATE: Final = "state"
_Kind = TypeVar("_Kind")


class Unsent(Exception):
    """Whoever sends a job is at fault: its name is taken or cannot be one."""


def send(jobs: Path, name: str, job: ClusterJob) -> Path:
    """Puts a job where the agent finds it. Raises Unsent and JobRefused."""
    if not is_attempt_name(name):
        raise Unsent(f"{name[:40]!r} is no name: letters, digits, '-' and '_', at most 100")
    job.checked()
    jobs.mkdir(parents=True, exist_ok=True)
    hidden, folder = jobs / f".{name}.{os.getpid()}", jobs / name
    hidden.mkdir()
    try:
        write_synced(hidden / JOB, msgspec.json.encode(job))
        hidden.rename(folder)
    except OSError as error:
        shutil.rmtree(hidden, ignore_errors=True)
        raise Unsent(f"job {name} cannot be made: {error.strerror}") from None
    return folder


def cancel(jobs: Path, name: str) -> bool:
    """Whether there is such a job."""
    if not is_attempt_name(name) or not (jobs / name / JOB).exists():
        return False
    (jobs / name / CANCEL).touch()
    return True


class JobSeen(msgspec.Struct, frozen=True):
    name: str
    job: ClusterJob | None
    state: str
    outcome: Outcome | None


def look(folder: Path) -> JobSeen:
    outcome = _read(folder / OUTCOME, Outcome)
    state = "waiting"
    with contextlib.suppress(OSError):
        state = (folder / STATE).read_text(errors="replace")[:200].strip()
    if outcome is not None:
        state = outcome.state.value
    return JobSeen(folder.name, _read(folder / JOB, ClusterJob), state, outcome)


def look_at_all(jobs: Path) -> list[JobSeen]:
    return [look(folder) for folder in sorted(jobs.iterdir()) if is_attempt_name(folder.name)]


class FolderOrigin:
    """It never falls silent: it is there as long as the agent is."""

    def __init__(self, jobs: Path, share: SharedFolder) -> None:
        self._jobs = jobs
        self._share = share
        self._known: set[str] = set()
        self._open: set[str] = set()
        """Without an outcome. Only these are looked into again: folders of old jobs may be many,
        and on a network file system."""
        self._cancelled: set[str] = set()
        jobs.mkdir(parents=True, exist_ok=True)

    def news(self, now: float) -> Iterator[events.Event]:
        """What has changed since the last call."""
        yield events.Renewed(now)
        there = {entry.name for entry in os.scandir(self._jobs) if is_attempt_name(entry.name)}
        if self._open - there:  # somebody has removed a job: that counts as a cancel
            self._open &= there
            yield events.Connected()
        for name in sorted(there - self._known):
            if not (self._jobs / name / OUTCOME).exists():
                self._open.add(name)
                yield from self._assign(AttemptName(name))
        self._known = there
        for name in sorted(self._open - self._cancelled):
            if (self._jobs / name / CANCEL).exists():
                self._cancelled.add(name)
                yield events.Cancel(AttemptName(name))
        self._cancelled &= self._open

    def current(self) -> frozenset[AttemptName]:
        return frozenset(AttemptName(name) for name in self._open)

    def show(self, attempt: AttemptName, state: str) -> None:
        folder = self._jobs / attempt
        with contextlib.suppress(OSError):
            (folder / f".{STATE}").write_text(state + "\n")
            (folder / f".{STATE}").replace(folder / STATE)

    def report(self, attempt: AttemptName, job: ClusterJob, outcome: Outcome) -> None:
        """Its files first, then the outcome. Doing it twice changes nothing. Raises OSError and
        SecretError."""
        folder = self._jobs / attempt
        if not folder.exists() or (folder / OUTCOME).exists():
            self._open.discard(attempt)
            return
        for name, source in self._share.files(attempt, job):
            target = folder / name
            target.parent.mkdir(exist_ok=True)
            if source.is_dir():
                shutil.rmtree(target, ignore_errors=True)
                shutil.copytree(source, target, symlinks=True, copy_function=_bring)
            else:
                target.unlink(missing_ok=True)
                _bring(source, target)
        self._end(folder, outcome)

    def _assign(self, name: AttemptName) -> Iterator[events.Event]:
        folder = self._jobs / name
        try:
            with (folder / JOB).open("rb") as file:
                job = msgspec.json.decode(file.read(JOB_BYTES_MAX), type=ClusterJob)
            yield events.Assigned(name, job.checked())
        except (OSError, msgspec.DecodeError, JobRefused, UnicodeDecodeError) as error:
            with contextlib.suppress(OSError, SecretError):
                text = f"{JOB}: {error}"[:500]
                self._end(folder, Outcome(OutcomeState.RETURNED, Cause.REFUSED, (), text))

    def _end(self, folder: Path, outcome: Outcome) -> None:
        replace_secret_file(folder / OUTCOME, msgspec.json.encode(outcome))
        self._open.discard(folder.name)


def _bring(source: str | Path, target: str | Path) -> None:
    """By another name for the same file where that works: the share's is removed afterwards."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)


def _read(path: Path, kind: type[_Kind]) -> _Kind | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError):
        return None
