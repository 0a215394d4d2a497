"""When a job would start here, and how we know."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final

import msgspec

from .batch_jobs import Capacity, ClusterJob, Estimate, EtaSource

REMEMBERED: Final = 50
"""So many of the last waits are history. Older ones tell of another day's load."""
ENOUGH: Final = 5


class Bid(msgspec.Struct, frozen=True):
    """Yes, and in how many seconds; or no, and why."""

    starts_in: float | None
    source: EtaSource | None = None
    refusal: str = ""


class WaitHistory:
    """How long jobs waited between submission and start."""

    def __init__(self) -> None:
        self._waits: deque[float] = deque(maxlen=REMEMBERED)

    def note(self, seconds: float) -> None:
        self._waits.append(max(0.0, seconds))

    @property
    def usual(self) -> float | None:
        """The median: one job that waited for a week says little about the next."""
        if len(self._waits) < ENOUGH:
            return None
        return sorted(self._waits)[len(self._waits) // 2]


def bid_of(
    job: ClusterJob, estimate: Estimate | None, history: WaitHistory, capacity: Capacity | None
) -> Bid:
    """From the best source there is: the batch system itself, then history, then what waits."""
    if estimate is not None:
        if estimate.starts_in is None:
            return Bid(None, EtaSource.BATCH_SYSTEM, estimate.refusal)
        return Bid(estimate.starts_in, EtaSource.BATCH_SYSTEM)
    if capacity is None:
        return Bid(None, None, "the batch system does not answer")
    if job.cores > capacity.cores and not job.elements:
        text = f"{job.cores} cores wanted, the cluster has {capacity.cores}"
        return Bid(None, EtaSource.QUEUE_LENGTH, text)
    if not capacity.pending and job.cores <= capacity.idle_cores:
        return Bid(0.0, EtaSource.QUEUE_LENGTH)
    if history.usual is not None:
        return Bid(history.usual, EtaSource.HISTORY)
    # As if everything that waits were like this job.
    rounds = (capacity.pending + 1) * job.cores / max(1, capacity.cores)
    return Bid(rounds * job.seconds, EtaSource.QUEUE_LENGTH)


class OpenQuestions:
    """Bids that wait for what the batch system says. The oldest are answered without it."""

    def __init__(self, most: int) -> None:
        self.history = WaitHistory()
        self._most = most
        self._open: OrderedDict[int, ClusterJob] = OrderedDict()

    def ask(self, question: int, job: ClusterJob) -> tuple[int, ClusterJob] | None:
        """What has to be answered now, because there are too many."""
        self._open[question] = job
        return self._open.popitem(last=False) if len(self._open) > self._most else None

    def answer(
        self, question: int, estimate: Estimate | None, capacity: Capacity | None
    ) -> Bid | None:
        job = self._open.pop(question, None)
        return None if job is None else bid_of(job, estimate, self.history, capacity)
