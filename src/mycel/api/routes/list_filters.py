"""Which jobs and tasks a list is of: by name, user and time of the job, by state, by stage."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from mycel.api.http.exchange import Query
from mycel.api.http.problems import unprocessable
from mycel.core.journal import JobOpened

FILTERS: Final = ("state", "name", "user", "since", "until")
"""Query parameters of both lists; `stage` belongs to tasks."""
PATTERN_LENGTH_MAX: Final = 256
"""`fnmatch` makes a regular expression of it."""

Sees = Callable[[str], bool]
"""Whether the caller may see what is a user's."""


class JobFilter(msgspec.Struct, frozen=True):
    sees: Sees
    name: str = ""
    """With `*` and `?`; empty: any."""
    user: str = ""
    since: float = 0.0
    """Unix time of the job's submission, as `until`."""
    until: float = float("inf")

    @classmethod
    def of(cls, query: Query, sees: Sees) -> JobFilter:
        name = query.text("name") or ""
        if len(name) > PATTERN_LENGTH_MAX:
            raise unprocessable(f"name has at most {PATTERN_LENGTH_MAX} characters")
        return cls(
            sees,
            name,
            query.text("user") or "",
            _moment(query, "since", 0.0),
            _moment(query, "until", float("inf")),
        )

    @property
    def is_open(self) -> bool:
        """It leaves out only what the caller may not see."""
        return not self.name and not self.user and not self.since and self.until == float("inf")

    def takes(self, job: JobOpened) -> bool:
        return (
            self.sees(job.user)
            and (not self.user or job.user == self.user)
            and self.since <= job.created_at <= self.until
            and (not self.name or fnmatchcase(job.name, self.name))
        )


def one_state(query: Query, states: Iterable[str]) -> str | None:
    state = query.text("state")
    if state is not None and state not in states:
        raise unprocessable(f"state is one of {', '.join(states)}, not {state!r}")
    return state


def _moment(query: Query, name: str, default: float) -> float:
    text = query.text(name)
    if text is None:
        return default
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise unprocessable(f'{name} is a time with its zone, such as "2030-01-31T12:00:00Z"')
    return moment.timestamp()
