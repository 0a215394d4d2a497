"""What a task leaves, made to fit: its outputs and its error travel in one message with the
result, and no number of it may be one that others do not take."""

from __future__ import annotations

from typing import Final

import msgspec

from mycel.core.ranges import (
    ERROR_CHARACTERS_MAX,
    EXIT_CODE_MAX,
    EXIT_CODE_MIN,
    MEMORY_MAX,
    WORD_CHARACTERS_MAX,
    bounded,
)

from .work import Finished

_SECONDS_MAX: Final = 1e12

OUTPUTS_BYTES_MAX: Final = 12 << 20
"""Of both together. Each alone has its own limit where it is read."""
_NOTE: Final = b"\n... more is left out: both outputs together were too long ...\n"


def fitting(stdout: bytes, stderr: bytes, most: int = OUTPUTS_BYTES_MAX) -> tuple[bytes, bytes]:
    """Both as they are if they fit; otherwise the longer gives way, down to half of the room."""
    if len(stdout) + len(stderr) <= most:
        return stdout, stderr
    half = most // 2
    return (
        _cut(stdout, max(half, most - len(stderr))),
        _cut(stderr, max(half, most - len(stdout))),
    )


def is_credible(finished: Finished) -> bool:
    """Quick, for most."""
    error, code = finished.error, finished.exit_code
    return (
        (not error or (len(error) <= ERROR_CHARACTERS_MAX and error.isascii()))
        and (code is None or EXIT_CODE_MIN <= code <= EXIT_CODE_MAX)
        and 0 <= finished.peak_memory <= MEMORY_MAX
        and 0.0 <= finished.cpu_seconds <= _SECONDS_MAX
        and 0.0 <= finished.started_at <= _SECONDS_MAX
        and 0.0 <= finished.ended_at <= _SECONDS_MAX
        and len(finished.code) <= WORD_CHARACTERS_MAX
    )


def made_credible(finished: Finished) -> Finished:
    """Its error cut, if that is all; a failure, if what it says of itself cannot be."""
    error = bounded(finished.error, ERROR_CHARACTERS_MAX)
    finished = msgspec.structs.replace(finished, error="")
    if is_credible(finished):
        return msgspec.structs.replace(finished, error=error)
    told = "what is told of its end cannot be: its exit code, its memory or its times"
    return Finished(
        finished.attempt,
        "failed",
        error=bounded(f"{told}; {error}" if error else told, ERROR_CHARACTERS_MAX),
        driver_fault=finished.driver_fault,
        stdout=finished.stdout,
        stderr=finished.stderr,
    )


def _cut(text: bytes, most: int) -> bytes:
    """Its head and its tail."""
    if len(text) <= most:
        return text
    room = max(0, most - len(_NOTE))
    tail = room // 2
    return text[: room - tail] + _NOTE + text[len(text) - tail :]
