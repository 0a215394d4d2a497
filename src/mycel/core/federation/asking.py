"""The second level of choosing: the clusters that fit are asked, and have until a deadline.

    ask ──▶ open ──▶ everybody has answered, or the deadline is there ──▶ closed

What comes late, twice or from somebody who was not asked changes nothing.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

from .decision import Answer


class Heard(enum.StrEnum):
    """What became of an answer."""

    COUNTED = "counted"
    TWICE = "twice"
    """The first one counts: a cluster may not bid again after it has seen others."""
    LATE = "late"
    NOT_ASKED = "not_asked"


class Asking:
    def __init__(self, clusters: Iterable[str], now: float, deadline_seconds: float) -> None:
        self.asked = frozenset(clusters)
        self.until = now + deadline_seconds
        self.answers: dict[str, Answer] = {}

    def answer(self, answer: Answer, now: float) -> Heard:
        if answer.cluster not in self.asked:
            return Heard.NOT_ASKED
        if answer.cluster in self.answers:
            return Heard.TWICE
        if now > self.until:
            return Heard.LATE
        self.answers[answer.cluster] = answer
        return Heard.COUNTED

    def is_closed(self, now: float) -> bool:
        return now > self.until or len(self.answers) == len(self.asked)
