"""What the worker and a warm interpreter exchange, byte by byte.

The interpreter imports this too: the standard library only, and little of it.
"""

from __future__ import annotations

import struct
import time

FRAME = struct.Struct("<IB")
"""From the interpreter: length of what follows, kind."""
RESULTS, STARTED, RETURNED, WITHDRAWN, DOOMED, WRITTEN, STANDING = 1, 2, 3, 4, 5, 6, 7
RESULT = struct.Struct("<QddBiIIIIQ")
"""attempt, started at, ended at, how it ended, exit code, lengths: value, error, stdout, stderr;
and the most memory that the interpreter has had, after tasks that took long"""
SUCCEEDED, FAILED, LEFT = 0, 1, 2
"""`LEFT`: it succeeded, and has left its result in a file."""
NO_EXIT_CODE = -1
STARTED_AT = struct.Struct("<Qd")
TEXT = struct.Struct("<QBQ")
"""attempt, stream, offset; what was written follows"""

MEMORY = struct.Struct("<IIQd")
"""ready?, bytes of results not yet sent, the attempt that runs (or 0), since when"""
RESULTS_OFFSET = 32
MEMORY_BYTES = RESULTS_OFFSET + (64 << 10)

RECEIVE_BYTES = 1 << 16
"""Python makes room for all of it before it reads. Above 128 KiB these are pages that the kernel
gives and takes back each time, which takes ten times as long as a short read."""
LENGTH_BYTES = 4
RUN_BATCH, WITHDRAW, KILL = 0, 1, 2
"""To the interpreter: four bytes of length, then marshal of one of these and its content."""


def clock() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
