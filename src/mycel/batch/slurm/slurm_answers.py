"""What Slurm's commands print, from 22.05 on. Text is read, not JSON: 22.05 ignores every filter
when it prints JSON, so a busy cluster would answer with all its jobs."""

from __future__ import annotations

import re
from typing import Final

from mycel.batch.errors import BatchError
from mycel.core.agent.batch_jobs import BatchEntry, BatchFailure, BatchState, Capacity

QUEUE_FORMAT: Final = "%i|%T|%r|%j"
"""The name comes last, because it is the only one that somebody else may have chosen."""
NODES_FORMAT: Final = "%N|%C"

_STATES: Final = {
    "PENDING": BatchState.PENDING,
    "CONFIGURING": BatchState.PENDING,
    "REQUEUED": BatchState.PENDING,
    "REQUEUE_FED": BatchState.PENDING,
    "REQUEUE_HOLD": BatchState.PENDING,
    "RESV_DEL_HOLD": BatchState.PENDING,
    "SPECIAL_EXIT": BatchState.PENDING,
    "RUNNING": BatchState.RUNNING,
    "RESIZING": BatchState.RUNNING,
    "SIGNALING": BatchState.RUNNING,
    "STOPPED": BatchState.RUNNING,
    "SUSPENDED": BatchState.RUNNING,
    "COMPLETING": BatchState.ENDING,
    "STAGE_OUT": BatchState.ENDING,
    "COMPLETED": BatchState.COMPLETED,
    "FAILED": BatchState.FAILED,
    "CANCELLED": BatchState.CANCELLED,
    "REVOKED": BatchState.CANCELLED,
    "TIMEOUT": BatchState.TIMED_OUT,
    "DEADLINE": BatchState.TIMED_OUT,
    "OUT_OF_MEMORY": BatchState.OUT_OF_MEMORY,
    "NODE_FAIL": BatchState.NODE_FAILED,
    "BOOT_FAIL": BatchState.NODE_FAILED,
    "PREEMPTED": BatchState.PREEMPTED,
}
HOPELESS: Final = frozenset(
    {
        "AccountNotAllowed",
        "BadConstraints",
        "DependencyNeverSatisfied",
        "InvalidAccount",
        "InvalidQOS",
        "PartitionNodeLimit",
        "PartitionTimeLimit",
        "QOSNotAllowed",
        "QOSTimeLimit",
    }
)
"""Reasons for which a job waits for ever, unless an administrator changes something."""

# The first that matches counts. What is in none of them was written after this table.
_COMPLAINTS: Final = (
    (BatchFailure.MISSING, r"configuration source|DNS SRV|conf file|parse_config|_parse_next_key"),
    (BatchFailure.FULL, r"temporarily unable to accept|MaxSubmitJob|Resource temporarily"),
    (BatchFailure.SLOW, r"[Tt]imed out|Zero Bytes were transmitted|receive fail|recv"),
    (
        BatchFailure.DOWN,
        (
            r"Unable to contact|[Cc]onnect(ion)? (failure|refused)|standby mode|authentication"
            r"|munge"
        ),
    ),
    (BatchFailure.REFUSED, r"submission failed|allocation failure|[Ii]nvalid|[Uu]nrecognized"),
)
_JOB: Final = re.compile(r"(\d{1,12})(?:_(\d{1,9}))?(?:\+\d+)?")
_START: Final = re.compile(r"to start at (\d{1,12})\b")


def failure_of(complaint: str) -> BatchFailure:
    for failure, pattern in _COMPLAINTS:
        if re.search(pattern, complaint):
            return failure
    return BatchFailure.NONSENSE


def read_submitted(out: str) -> str:
    """`18` or `18;cluster`, as `--parsable` prints it."""
    number = out.strip().partition(";")[0]
    if not number.isascii() or not number.isdigit() or len(number) > 12:
        raise _nonsense("sbatch", out)
    return number


def read_queue(out: str, prefix: str) -> list[BatchEntry]:
    entries = []
    for line in out.splitlines():
        if not line.strip():
            continue
        parts = line.strip("\r\n").split("|", 3)
        if len(parts) != 4:
            raise _nonsense("squeue", line)
        number, state, reason, name = parts
        if not name.startswith(prefix):
            continue
        found = _JOB.fullmatch(number.strip())
        if found is None:
            raise _nonsense("squeue", line)
        entries.append(
            BatchEntry(name, int(found[2] or 0), _state(state, reason), number, reason.strip())
        )
    return entries


def _state(text: str, reason: str) -> BatchState:
    """What a later Slurm adds is taken for no end, since the job may still do something."""
    word = text.strip().rstrip("*+").split(" ")[0]
    if not word.replace("_", "").isalpha():
        raise _nonsense("squeue", text)
    state = _STATES.get(word.upper(), BatchState.ENDING)
    if state is BatchState.PENDING and reason.strip() in HOPELESS:
        return BatchState.HOPELESS
    return state


def read_start(said: str) -> float:
    """Seconds since 1970, out of `sbatch --test-only` with SLURM_TIME_FORMAT=%s."""
    found = _START.search(said)
    if found is None:
        raise _nonsense("sbatch --test-only", said)
    return float(found[1])


def read_capacity(nodes: str, pending: str) -> Capacity:
    """A node is listed once for each of its partitions."""
    cores: dict[str, tuple[int, int]] = {}
    for line in nodes.splitlines():
        name, _, numbers = line.strip().partition("|")
        counts = numbers.split("/")
        if not name or len(counts) != 4 or not all(one.isdigit() for one in counts):
            raise _nonsense("sinfo", line)
        _, idle, _, total = (int(one[:9]) for one in counts)
        cores[name] = (idle, total)
    waiting = sum(1 for line in pending.splitlines() if line.strip())
    return Capacity(
        sum(idle for idle, _ in cores.values()), sum(all_ for _, all_ in cores.values()), waiting
    )


def _nonsense(program: str, said: str) -> BatchError:
    return BatchError(
        BatchFailure.NONSENSE, f"{program} answered what cannot be read: {said.strip()[:200]!r}"
    )
