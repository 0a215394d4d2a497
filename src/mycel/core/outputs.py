"""What a task wrote, made to fit: both outputs travel in one message with the result."""

from __future__ import annotations

from typing import Final

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


def _cut(text: bytes, most: int) -> bytes:
    """Its head and its tail."""
    if len(text) <= most:
        return text
    room = max(0, most - len(_NOTE))
    tail = room // 2
    return text[: room - tail] + _NOTE + text[len(text) - tail :]
