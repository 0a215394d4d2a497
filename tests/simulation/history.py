"""What happened, as the world saw it: executions on workers, and answers to clients."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from mycel.core.effects import Happening, TaskWrote
from mycel.core.identifiers import AttemptId, JobId, LeaseId, PeerId

from .graphs import Graph


class Execution(msgspec.Struct):
    """A task's code really ran."""

    number: int
    worker: PeerId
    worker_life: int
    scheduler: PeerId
    task: tuple[JobId, int]
    attempt: AttemptId
    lease: LeaseId
    cores: float
    started_at: float
    while_waking: bool
    """Its worker was frozen until this moment: a lane goes on with what it has before the
    worker itself can tell that the lease is over."""
    ended_at: float | None = None
    handed: list[list[Any]] = []
    """What it was given of earlier stages."""


class Seen(msgspec.Struct, frozen=True):
    """A client was told that this task has ended so."""

    at: float
    job: JobId
    index: int
    state: str


class History:
    def __init__(self) -> None:
        self.executions: list[Execution] = []
        self.given: dict[tuple[PeerId, AttemptId], tuple[PeerId, JobId, int]] = {}
        """By scheduler and attempt: which worker it was sent to, of which task."""
        self.charged: dict[tuple[PeerId, AttemptId], float] = {}
        """By scheduler and attempt: what its worker asks for it."""
        self.acknowledged: dict[JobId, int] = {}
        """Jobs whose submission was answered, with the number of tasks acknowledged."""
        self.refused: set[JobId] = set()
        """Jobs that came after their deadline."""
        self.graphs: dict[JobId, Graph] = {}
        self.seen: list[Seen] = []
        self.cancelled: set[tuple[JobId, int]] = set()
        """Cancellations that were answered."""
        self.told: list[Happening] = []
        self.restored: list[tuple[Execution, bytes]] = []
        """Checkpoints that tasks have found."""
        self.wrote: list[TaskWrote] = []
        """Output of tasks that took long, as schedulers heard it."""
        self.objections: Counter[str] = Counter()
        """Why workers have refused tasks."""
        self.complaints: list[str] = []
