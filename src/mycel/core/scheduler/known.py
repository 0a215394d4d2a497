"""Workers that are known and not linked: what others, or they themselves, said of them.

A scheduler holds links only to the workers that it uses. The others live here, by what they can
do, and are called when work wants them. A worker that died is remembered for as long as old
records of it may turn up, so that none of them brings it back:

    a sighting of a buried worker counts only if it names a later boot, or was published after
    the death, by more than clocks may differ
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mycel.core.events import Sighting
from mycel.core.facets import Facet, facets_asked, facets_of
from mycel.core.identifiers import PeerId
from mycel.core.matching import obstacle
from mycel.core.resources import Capabilities
from mycel.core.work import Shape

CLOCK_TOLERANCE_SECONDS: Final = 60.0
BURIED_SECONDS: Final = 900.0
"""Longer than any record lives."""
BURIED_MAX: Final = 100_000
VERDICTS_MAX: Final = 64
"""Shapes whose verdict is remembered with a known worker."""


class KnownWorker:
    """Someone worth calling."""

    __slots__ = (
        "addresses",
        "boot",
        "capabilities",
        "expires_at",
        "name",
        "peer",
        "seen_at",
        "sequence",
        "software_version",
        "source",
        "verdicts",
    )

    def __init__(self, sighting: Sighting, now: float) -> None:
        self.peer = sighting.peer
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
        self.verdicts: dict[Shape, bool] = {}

    def suits(self, shape: Shape) -> bool:
        verdict = self.verdicts.get(shape)
        if verdict is None:
            if len(self.verdicts) >= VERDICTS_MAX:
                self.verdicts.clear()
            verdict = self.verdicts[shape] = obstacle(shape, self.capabilities) is None
        return verdict


class KnownWorkers:
    def __init__(self, most: int) -> None:
        self._most = most
        self._workers: dict[PeerId, KnownWorker] = {}
        self._by_facet: dict[Facet, dict[PeerId, KnownWorker]] = {}
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
            self._forget_facets(known)
            known.learn(sighting, now)
        elif self.is_ghost(sighting) or len(self._workers) >= self._most:
            return False
        else:
            known = self._workers[sighting.peer] = KnownWorker(sighting, now)
        for facet in facets_of(known.capabilities):
            self._by_facet.setdefault(facet, {})[known.peer] = known
        return True

    def take(self, peer: PeerId) -> KnownWorker | None:
        """Out of here: it is called, linked, withdrawn or too old."""
        known = self._workers.pop(peer, None)
        if known is not None:
            self._forget_facets(known)
        return known

    def suitable(self, shape: Shape, checks: int) -> Iterator[KnownWorker | None]:
        """Those that satisfy the whole requirement; None at the end if `checks` fresh looks
        were not enough to see all of them: go on later, what was seen is remembered."""
        sets = [self._by_facet.get(facet) for facet in facets_asked(shape)]
        if any(found is None for found in sets):
            return
        fewest = min((found for found in sets if found is not None), key=len)
        for known in list(fewest.values()):
            if shape not in known.verdicts:
                if checks == 0:
                    yield None
                    return
                checks -= 1
            if known.suits(shape):
                yield known

    def suits_some(self, shape: Shape) -> bool:
        return any(self.suitable(shape, len(self._workers)))

    def _forget_facets(self, known: KnownWorker) -> None:
        for facet in facets_of(known.capabilities):
            peers = self._by_facet[facet]
            del peers[known.peer]
            if not peers:
                del self._by_facet[facet]

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
