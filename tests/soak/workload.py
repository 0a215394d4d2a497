"""What the soak's tasks do: wait a little, and leave a trace that outlives every process.

One line is written before the work and one after it, each by a single append, so that the
executions that took place can be compared with the values that were committed.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any


def record(log: str, seconds: float, fails: bool) -> dict[str, Any]:
    """Returns what only this execution can know."""
    value = {
        "task": os.environ["MYCEL_TASK_ID"],
        "number": int(os.environ["MYCEL_ATTEMPT"]),
        "pid": os.getpid(),
        "nonce": os.urandom(8).hex(),
    }
    # The working folder is <home>/<worker>/tasks/…
    worker = os.environ["MYCEL_WORKDIR"].partition("/tasks/")[0].rpartition("/")[2]
    _append(log, {**value, "event": "began", "worker": worker})
    time.sleep(seconds)
    _append(log, {**value, "event": "computed", "worker": worker})
    if fails:
        raise ValueError(value["nonce"])
    return value


def _append(log: str, line: dict[str, Any]) -> None:
    line["at"] = time.time()
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, json.dumps(line).encode() + b"\n")
    finally:
        os.close(descriptor)
