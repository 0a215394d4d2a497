"""How the agent stands with its origin: whether it has a lease, and whether the origin has said
which attempts still count."""

from __future__ import annotations

from collections.abc import Iterable

from mycel.core.identifiers import fenced

from .attempts import AttemptName


class OriginLease:
    """After a restart it counts as leased for one length: nobody knows yet that it has ended."""

    def __init__(self, boot: int, length: float, now: float) -> None:
        self._boot = boot
        self._length = length
        self._listings = 0
        self._listed: frozenset[AttemptName] = frozenset()
        self.is_confirmed = False
        """The origin has answered the last listing: new work may begin."""
        self.is_held = True
        self.ends_at = now + length

    def list(self, names: Iterable[AttemptName]) -> int:
        """The number of a new listing. Until its answer comes, nothing new is submitted."""
        self.is_confirmed = False
        self._listings += 1
        self._listed = frozenset(names)
        return self._number

    def confirm(self, number: int) -> frozenset[AttemptName] | None:
        """What was listed under that number, and only that may be judged by the answer: a late one
        knows nothing of later attempts. None for any listing but the last."""
        if not self._listings or number != self._number:
            return None
        self.is_confirmed = True
        return self._listed

    def renew(self, sent_at: float, now: float) -> bool:
        """True if it had ended, and is held again."""
        self.ends_at = max(self.ends_at, min(sent_at, now) + self._length)
        was_held = self.is_held
        self.is_held = was_held or self.ends_at > now
        return self.is_held and not was_held

    def end(self, now: float) -> bool:
        """True if it ends now."""
        if not self.is_held or now < self.ends_at:
            return False
        self.is_held = self.is_confirmed = False
        return True

    @property
    def _number(self) -> int:
        return fenced(self._boot, self._listings)
