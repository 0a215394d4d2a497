"""What the agent says to a batch system and hears from it, in words that all of them share."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

import msgspec

SECONDS_MAX: Final = 366 * 86_400
NODES_MAX: Final = 100_000
CORES_MAX: Final = 65_536
MEMORY_MB_MAX: Final = 1 << 32
ELEMENTS_MAX: Final = 10_000
"""Of an array. Slurm's own limit is 1,001 unless it is configured."""
COMMAND_BYTES_MAX: Final = 1 << 20
NAME_BYTES_MAX: Final = 128


class JobRefused(ValueError):
    """The submitter's fault: no batch system could run this. A retry cannot help."""

    def __init__(self, field: str, wrong: str) -> None:
        super().__init__(f"{field}: {wrong}")
        self.field = field


class ClusterJob(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """One job for a batch system. `checked` says what is allowed."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = {}
    elements: int = 0
    """Of an array; 0 for a job that is none."""
    nodes: int = 1
    tasks_per_node: int = 1
    cores_per_task: int = 1
    memory_mb: int = 1000
    """On each node. Without a limit, Slurm would give the job the whole node."""
    gpus_per_node: int = 0
    exclusive: bool = False
    seconds: int = 3600
    """After this the batch system ends the job. Its estimates depend on it."""
    notice_seconds: int = 0
    """So long before its time limit the script gets SIGTERM, where the batch system can do that."""
    priority: int = 0
    account: str = ""
    partition: str = ""
    qos: str = ""

    @property
    def indexes(self) -> range:
        """Of its elements; a job that is no array has one."""
        return range(self.elements or 1)

    @property
    def cores(self) -> int:
        """All elements together."""
        return len(self.indexes) * self.nodes * self.tasks_per_node * self.cores_per_task

    def checked(self) -> ClusterJob:
        """Raises JobRefused."""
        if not self.command or self.command[0][:1] in ("", "-"):
            raise JobRefused("command", "is empty or begins with '-'")
        texts = [*self.command, *self.environment, *self.environment.values()]
        if sum(len(text.encode(errors="replace")) for text in texts) > COMMAND_BYTES_MAX:
            raise JobRefused("command", f"with its environment is over {COMMAND_BYTES_MAX} bytes")
        for text in texts:
            if "\0" in text or not _is_utf8(text):
                raise JobRefused("command", "holds a NUL or is no UTF-8")
        for name in self.environment:
            if not name.isascii() or not name.replace("_", "a").isalnum() or name[0].isdigit():
                raise JobRefused("environment", f"{name[:40]!r} is no name of a variable")
        for field, least, most in _RANGES:
            value = getattr(self, field)
            if not least <= value <= most:
                raise JobRefused(field, f"{value} is not in {least} to {most}")
        for field in ("account", "partition", "qos"):
            text = getattr(self, field)
            if text and not _is_plain(text):
                raise JobRefused(field, "has letters, digits, '.', '_', '-' and ',' only")
        return self


_RANGES: Final = (
    ("elements", 0, ELEMENTS_MAX),
    ("nodes", 1, NODES_MAX),
    ("tasks_per_node", 1, CORES_MAX),
    ("cores_per_task", 1, CORES_MAX),
    ("memory_mb", 1, MEMORY_MB_MAX),
    ("gpus_per_node", 0, CORES_MAX),
    ("seconds", 1, SECONDS_MAX),
    ("notice_seconds", 0, 65_535),
    ("priority", -1_000_000, 1_000_000),
)


def _is_utf8(text: str) -> bool:
    return text.isascii() or not any(0xD800 <= ord(character) <= 0xDFFF for character in text)


def _is_plain(text: str) -> bool:
    """Slurm takes lists of partitions; a leading '-' could be taken for an option."""
    allowed = text.replace(".", "").replace("_", "").replace("-", "").replace(",", "")
    return len(text) <= NAME_BYTES_MAX and text.isascii() and allowed.isalnum() and text[0] != "-"


class BatchState(Enum):
    """Of a job, or of one element of an array."""

    PENDING = "pending"
    HOPELESS = "hopeless"
    """It waits, and will for ever: something about it is not allowed or not there."""
    RUNNING = "running"
    ENDING = "ending"
    """The script has ended, the batch system is not done with it. Not an end."""
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    OUT_OF_MEMORY = "out_of_memory"
    NODE_FAILED = "node_failed"
    PREEMPTED = "preempted"

    @property
    def is_active(self) -> bool:
        return self in _ACTIVE


_ACTIVE: Final = frozenset(
    {BatchState.PENDING, BatchState.HOPELESS, BatchState.RUNNING, BatchState.ENDING}
)


class BatchEntry(msgspec.Struct, frozen=True):
    """A line of the batch system's queue. One name may be there several times: an array's
    elements, and copies of a job that was submitted twice."""

    name: str
    index: int
    """Of an array's element; 0 for a job that is none."""
    state: BatchState
    batch_id: str = ""
    reason: str = ""


class Capacity(msgspec.Struct, frozen=True):
    """What is idle now, and how many jobs of anybody wait."""

    idle_cores: int
    cores: int
    pending: int


class EtaSource(Enum):
    BATCH_SYSTEM = "batch_system"
    """It computed when the job would start, as `sbatch --test-only` does."""
    HISTORY = "history"
    """What earlier jobs waited here."""
    QUEUE_LENGTH = "queue_length"
    """What waits, over what the cluster got done lately. The weakest."""


class Estimate(msgspec.Struct, frozen=True):
    """In how many seconds the job would start; or that it never can, and why."""

    starts_in: float | None
    refusal: str = ""


class BatchFailure(Enum):
    """Why a batch system did not do what it was asked."""

    MISSING = "missing"
    """Its programs are not here."""
    DOWN = "down"
    """It cannot be reached. It has not seen the request."""
    SLOW = "slow"
    """No answer in time. The request may have been obeyed."""
    FULL = "full"
    """It takes no more jobs now."""
    REFUSED = "refused"
    """It will never take this job."""
    NONSENSE = "nonsense"
    """Its answer cannot be read. The request may have been obeyed."""

    @property
    def is_final(self) -> bool:
        """Asking again cannot help."""
        return self is BatchFailure.REFUSED
