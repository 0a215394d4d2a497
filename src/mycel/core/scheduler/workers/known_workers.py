"""Workers that are known and not linked: what others, or they themselves, said of them.

A scheduler holds links only to the workers that it uses. The others live here, by what they can
do, and are called when work wants them. A worker that died is remembered for as long as old
records of it may turn up, so that none of them brings it back:

    a sighting of a buried worker counts only if it names a later boot, or was published after
    the death, by more than clocks may differ
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from mycel.core.events import Sighting
from mycel.core.identifiers import PeerId
from mycel.core.matching import Pool
from mycel.core.matching.worker_sets import without
from mycel.core.model.resources import Capabilities
from mycel.core.model.work import Shape

CLOCK_TOLERANCE_SECONDS: Final = 60.0
BURIED_SECONDS: Final = 900.0
"""Longer than any record lives."""
BURIED_MAX: Final = 100_000


class KnownWorker:
    """Someone worth calling."""

    __slots__ = (
        "addresses",
        "boot",
        "capabilities",
        "expires_at",
        "heard_at",
        "hears_knocks",
        "knocks_left",
        "missed",
        "name",
        "peer",
        "rtt_seconds",
        "seen_at",
        "sequence",
        "software_version",
        "source",
    )

    def __init__(self, sighting: Sighting, now: float) -> None:
        self.peer = sighting.peer
        self.heard_at: float | None = None
        """When it last answered a check itself."""
        self.rtt_seconds: float | None = None
        self.missed = 0
        """Checks in a row without an answer: it is suspect."""
        self.hears_knocks = False
        """It answered the last one."""
        self.knocks_left = 1
        """So many checks may be knocks before one has to be thorough; below 0 while it is
        believed to hear none."""
        self.learn(sighting, now)

    def learn(self, sighting: Sighting, now: float) -> None:
        self.boot = sighting.boot
        self.sequence = sighting.sequence
        self.name = sighting.name
        self.capabilities: Capabilities = sighting.capabilities
        self.addresses = sighting.addresses
        self.software_version = sighting.software_version
        self.source = sighting.source
        self.seen_at = now
        self.expires_at = now + sighting.valid_seconds


class KnownWorkers:
    def __init__(self, most: int, pool: Pool) -> None:
        self._most = most
        self._pool = pool
        self._workers: dict[PeerId, KnownWorker] = {}
        self._buried: dict[PeerId, tuple[int, float, float]] = {}
        """Boot, Unix time of the death, and when to forget it; oldest first."""

    def __len__(self) -> int:
        return len(self._workers)

    def __iter__(self) -> Iterator[KnownWorker]:
        return iter(self._workers.values())

    def get(self, peer: PeerId) -> KnownWorker | None:
        return self._workers.get(peer)

    def see(self, sighting: Sighting, now: float) -> bool:
        """Takes in what is new; False if it is old news, a ghost, or one too many."""
        known = self._workers.get(sighting.peer)
        if known is not None:
            if (sighting.boot, sighting.sequence) < (known.boot, known.sequence):
                return False
            known.learn(sighting, now)
        elif self.is_ghost(sighting) or len(self._workers) >= self._most:
            return False
        else:
            known = self._workers[sighting.peer] = KnownWorker(sighting, now)
        self._pool.put(
            known.peer, known.capabilities, linked=False, source=known.source, seen_at=now
        )
        return True

    def take(self, peer: PeerId) -> KnownWorker | None:
        """Out of here: it is withdrawn or too old."""
        known = self._workers.pop(peer, None)
        if known is not None:
            self._pool.remove(peer)
        return known

    def hand_over(self, peer: PeerId) -> KnownWorker | None:
        """It is called or linked: it leaves here, and keeps its place in the pool."""
        return self._workers.pop(peer, None)

    def suitable(self, shape: Shape, random: Callable[[], float]) -> Iterator[KnownWorker]:
        """Those that satisfy the whole requirement, the best first."""
        pool = self._pool
        unlinked = without(pool.eligible(shape), pool.linked)
        for member, _ in pool.ranked(shape, random, among=unlinked) if unlinked else ():
            yield self._workers[PeerId(member.key)]

    # Signs of life

    def heard(self, known: KnownWorker, rtt_seconds: float, now: float) -> None:
        known.heard_at, known.rtt_seconds = now, rtt_seconds
        known.missed = 0
        member = self._pool.get(known.peer)
        assert member is not None, "a known worker has no place in the pool"
        self._pool.set_rtt(member, rtt_seconds)
        self._may_be_called(known, True)

    def missed(self, known: KnownWorker) -> None:
        known.missed += 1
        self._may_be_called(known, False)

    def _may_be_called(self, known: KnownWorker, yes: bool) -> None:
        member = self._pool.get(known.peer)
        assert member is not None, "a known worker has no place in the pool"
        self._pool.set_available(member, yes)

    # The dead

    def bury(self, peer: PeerId, boot: int, died_at_unix: float) -> None:
        self._buried.pop(peer, None)
        self._buried[peer] = (boot, died_at_unix, died_at_unix + BURIED_SECONDS)
        for oldest in list(self._buried):
            if len(self._buried) <= BURIED_MAX and self._buried[oldest][2] > died_at_unix:
                break
            del self._buried[oldest]

    def unbury(self, peer: PeerId) -> None:
        """It speaks to us: whatever was believed of it, it lives."""
        self._buried.pop(peer, None)

    def is_ghost(self, sighting: Sighting) -> bool:
        buried = self._buried.get(sighting.peer)
        if buried is None:
            return False
        boot, died_at, _ = buried
        is_later_boot = 0 < boot < sighting.boot
        return not is_later_boot and sighting.published_at <= died_at + CLOCK_TOLERANCE_SECONDS
