"""What the worker and its spawn helper say to each other.

Both ways a frame is four bytes of length, then msgpack: a list of requests to the helper, one
`Report` from it. The descriptors that a `StartProgram` needs travel beside its bytes
(SCM_RIGHTS), in the order of the requests.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from mycel.core.model.resources import Pairs
from mycel.core.ranges import MANY, Balance, Data, ExitCode, Finite, Reason, Size
from mycel.drivers.interface import Finished, Text
from mycel.drivers.sandbox.run_confinement import RunConfinement, SandboxPlan

LENGTH_BYTES: Final = 4
INTERPRETER_SOCKET: Final = 3
"""The number under which an interpreter finds its socket, …"""
INTERPRETER_MEMORY: Final = 4
"""… and the memory that outlives its crash."""


class Configure(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """Once, before the first process."""

    root: str
    environment: dict[str, str]
    grace_seconds: float
    output_bytes_max: int


class ProcessRun(msgspec.Struct, array_like=True):
    attempt: int
    number: int
    task_id: str
    command: tuple[str, ...] = ()
    """Empty: the one of the whole request."""
    folder: str = ""
    """Empty: the lane's own."""


class RunProcesses(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Attempts that share all but their arguments, for one lane."""

    lane: int
    job_id: str
    command: tuple[str, ...]
    environment: Pairs
    timeout_seconds: float | None
    runs: list[ProcessRun]
    confinement: RunConfinement | None = None


class Withdraw(msgspec.Struct, frozen=True, array_like=True, tag=2):
    attempts: list[int]


class Kill(msgspec.Struct, frozen=True, array_like=True, tag=3):
    attempts: list[int]
    grace_seconds: float


class CloseLane(msgspec.Struct, frozen=True, array_like=True, tag=4):
    lane: int


class StartProgram(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """With two descriptors: its socket and its memory."""

    interpreter: int
    command: list[str]
    environment: dict[str, str]
    folder: str
    """It is there; the helper removes it after the interpreter's end."""
    confinement: RunConfinement | None = None


class StopProgram(msgspec.Struct, frozen=True, array_like=True, tag=6):
    interpreter: int
    grace_seconds: float


Request = (
    SandboxPlan
    | Configure
    | RunProcesses
    | Withdraw
    | Kill
    | CloseLane
    | StartProgram
    | StopProgram
)


class ProgramEnded(msgspec.Struct, frozen=True, array_like=True):
    """Its whole process group is gone."""

    interpreter: Balance
    """Programs that serve models have numbers below zero."""
    exit_code: ExitCode
    output: Data
    """What it wrote past its own capture: for example a crash report of the C library."""
    broken_limit: Reason = ""
    """Which limit it died of, in words."""


class Report(msgspec.Struct, array_like=True):
    started: Annotated[list[tuple[Size, Finite]], MANY] = []
    finished: Annotated[list[Finished], MANY] = []
    returned: Annotated[list[tuple[Size, Annotated[list[Size], MANY]]], MANY] = []
    withdrawn: Annotated[list[Size], MANY] = []
    ended: Annotated[list[ProgramEnded], MANY] = []
    written: Annotated[list[Text], MANY] = []


class FrameReader:
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        buffer = self._buffer
        buffer += data
        frames = []
        start = 0
        while len(buffer) - start >= LENGTH_BYTES:
            end = start + LENGTH_BYTES + int.from_bytes(buffer[start : start + 4], "little")
            if end > len(buffer):
                break
            frames.append(bytes(buffer[start + LENGTH_BYTES : end]))
            start = end
        if start:
            del buffer[:start]
        return frames


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(LENGTH_BYTES, "little") + payload
