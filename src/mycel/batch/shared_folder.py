"""The folder that the agent and all nodes see: claims, results, and fences.

A fence is the agent's claim. It is a symbolic link, because that appears with its content in one
step: after a crash the agent can tell its own fence from the claim of a job that began.
"""

from __future__ import annotations

import contextlib
import errno
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mycel.core.agent.attempts import ElementSeen
from mycel.core.agent.batch_jobs import ClusterJob

from .batch_system import Submission
from .job_script import EXIT_CODE, STDERR, STDOUT, WORK, job_script

FENCE: Final = "fenced"
SUBMITTED: Final = ".submitted"
"""Here lies, in a folder for each attempt, what the batch system itself writes."""
EXIT_CODE_BYTES_MAX: Final = 8


class ShareGone(OSError):
    """The site's fault: the folder is not what it was. A retry can help, once it is mounted."""


class SharedFolder:
    """`mark` names a file that shows that this is still the same folder: where a file system is
    not mounted there is an empty folder instead, and claims in that would mean nothing. Who has
    claimed nothing yet makes it (`is_new`). Everything raises OSError."""

    def __init__(self, path: Path, mark: str = "", *, is_new: bool = True) -> None:
        self.path: Final = path.absolute()
        self._mark = self.path / f".{mark}" if mark else self.path
        if is_new:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if mark:
                self._mark.touch()
        self._check()

    def _check(self) -> None:
        if not self._mark.exists():
            raise ShareGone(
                errno.ENOENT,
                f"the shared folder has lost its mark {self._mark.name}: is it mounted?",
                str(self.path),
            )

    def submission(self, name: str, attempt: str, job: ClusterJob) -> Submission:
        self._check()
        folder = self.path / SUBMITTED / attempt
        folder.mkdir(parents=True, exist_ok=True)
        script = job_script(attempt, job, self.path)
        return Submission(name=name, job=job, script=script, folder=folder)

    def claim(self, attempt: str, job: ClusterJob, index: int) -> Path:
        return self.path / (f"{attempt}.{index}" if job.elements else attempt)

    def fence(self, attempt: str, job: ClusterJob) -> frozenset[int]:
        """The elements that will never run, because they had not begun."""
        self._check()
        won = set()
        for index in job.indexes:
            claim = self.claim(attempt, job, index)
            with contextlib.suppress(FileExistsError):
                claim.symlink_to(FENCE)
            if claim.is_symlink():
                won.add(index)
        return frozenset(won)

    def look(self, attempt: str, job: ClusterJob) -> tuple[ElementSeen, ...]:
        self._check()
        return tuple(self._seen(self.claim(attempt, job, index)) for index in job.indexes)

    def files(self, attempt: str, job: ClusterJob) -> Iterator[tuple[str, Path]]:
        """What there is to bring home: names to show, and where it lies."""
        self._check()
        for index in job.indexes:
            claim = self.claim(attempt, job, index)
            place = f"{index}/" if job.elements else ""
            for name in (STDOUT, STDERR, WORK):
                if (claim / name).exists():
                    yield place + name, claim / name

    def remove(self, attempt: str, job: ClusterJob) -> None:
        """The claims stay, empty: a copy that starts late must still find them."""
        shutil.rmtree(self.path / SUBMITTED / attempt, ignore_errors=True)
        for index in job.indexes:
            claim = self.claim(attempt, job, index)
            if claim.is_symlink() or not claim.is_dir():
                continue
            for entry in claim.iterdir():
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry, ignore_errors=True)
                else:
                    with contextlib.suppress(OSError):
                        entry.unlink()

    @staticmethod
    def _seen(claim: Path) -> ElementSeen:
        if claim.is_symlink() or not claim.exists():
            return ElementSeen(claimed=False)
        try:
            with (claim / EXIT_CODE).open("rb") as file:
                text = file.read(EXIT_CODE_BYTES_MAX).strip()
        except FileNotFoundError:
            return ElementSeen(claimed=True)
        return ElementSeen(claimed=True, exit_code=int(text) if text.isdigit() else None)
