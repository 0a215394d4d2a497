"""Runs a batch system's commands: with a deadline, a bound on what they print, and an environment
that has nothing of ours in it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import IO, Final

import msgspec

from mycel.core.agent.batch_jobs import BatchFailure

from .errors import BatchError

COMMAND_SECONDS: Final = 30.0
ANSWER_BYTES_MAX: Final = 256 << 20
SAID_BYTES_MAX: Final = 4096
KEPT: Final = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TMPDIR", "KUBECONFIG")
"""Of our environment. Jobs may inherit what their command had, and ours may hold secrets."""
SYSTEM_FOLDERS: Final = "/usr/local/bin:/usr/bin:/bin"


class Said(msgspec.Struct, frozen=True):
    code: int
    out: str
    error: str

    @property
    def complaint(self) -> str:
        """Its last words, for an error."""
        lines = (self.error.strip() or self.out.strip()).splitlines()
        return lines[-1][:300] if lines else f"exit code {self.code} and no word"


class Commands:
    """`keep`: more variables that pass, such as SLURM_CONF."""

    def __init__(
        self,
        *,
        keep: Sequence[str] = (),
        extra: Mapping[str, str] | None = None,
        seconds: float = COMMAND_SECONDS,
    ) -> None:
        kept = {name: os.environ[name] for name in (*KEPT, *keep) if name in os.environ}
        self.environment: Final = {"PATH": SYSTEM_FOLDERS, **kept, **(extra or {})}
        self._seconds = seconds

    def run(self, *command: str, stdin: str = "") -> Said:
        """What it said, whatever its exit code. Output goes to files: what a command leaves running
        may hold a pipe open for ever. Raises BatchError."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as error:
            try:
                process = subprocess.Popen(
                    command,
                    env=self.environment,
                    stdin=subprocess.PIPE,
                    stdout=out,
                    stderr=error,
                    start_new_session=True,
                )
            except FileNotFoundError:
                raise BatchError(
                    BatchFailure.MISSING, f"there is no program {command[0]!r} on this machine"
                ) from None
            except OSError as problem:
                raise BatchError(
                    BatchFailure.MISSING, f"{command[0]} cannot be started: {problem.strerror}"
                ) from None
            try:
                process.communicate(stdin.encode(), timeout=self._seconds)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                said = Said(-1, "", _text(error, SAID_BYTES_MAX))
                raise BatchError(
                    BatchFailure.SLOW,
                    f"{command[0]} gave no answer within {self._seconds:g} s"
                    + (f"; it said: {said.complaint}" if said.error.strip() else ""),
                ) from None
            if os.fstat(out.fileno()).st_size > ANSWER_BYTES_MAX:
                raise BatchError(
                    BatchFailure.NONSENSE,
                    f"{command[0]} printed more than {ANSWER_BYTES_MAX >> 20} MiB",
                )
            answer = _text(out, ANSWER_BYTES_MAX)
            return Said(process.returncode, answer, _text(error, SAID_BYTES_MAX))


def _text(file: IO[bytes], most: int) -> str:
    file.seek(0)
    return file.read(most).decode(errors="replace")
