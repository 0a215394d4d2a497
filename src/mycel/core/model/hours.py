"""At what times a worker takes work: `22:00-07:00`, `mon-fri 18:00-08:00`, `sat,sun`.

Times are the worker's own, by the wall. A span that ends before it begins goes on into the next
day, and belongs to the day on which it begins.
"""

from __future__ import annotations

from typing import Final

import msgspec

DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAY_MINUTES: Final = 24 * 60
WEEK_MINUTES: Final = 7 * DAY_MINUTES


class BadHours(ValueError):
    """The text says no times; the message is for whoever wrote it."""


class Span(msgspec.Struct, frozen=True):
    """Minutes of the week, from Monday's midnight on: `begin` ≤ minute < `end`, which may lie
    in the next week."""

    begin: int
    end: int

    def has(self, minute: int) -> bool:
        return self.begin <= minute < self.end or self.begin <= minute + WEEK_MINUTES < self.end


def parse(text: str) -> tuple[Span, ...]:
    words = text.lower().split()
    if not words or len(words) > 2:
        raise _bad(text)
    days = range(7)
    times = words[-1]
    if not times[0].isdigit():
        if len(words) == 2:
            raise _bad(text)
        return tuple(_spans(_days(times, text), 0, DAY_MINUTES))
    begin, dash, end = times.partition("-")
    if not dash:
        raise _bad(text)
    chosen = _days(words[0], text) if len(words) == 2 else list(days)
    first, last = _minute(begin, text), _minute(end, text)
    if first == last:
        raise BadHours(f"{text!r} begins when it ends: leave it away to mean always")
    return tuple(_spans(chosen, first, last if last > first else last + DAY_MINUTES))


def is_within(spans: tuple[Span, ...], minute: int) -> bool:
    """Whether that minute of the week is in one of them; without any, it always is."""
    return not spans or any(span.has(minute) for span in spans)


def _spans(days: list[int], first: int, last: int) -> list[Span]:
    return [Span(day * DAY_MINUTES + first, day * DAY_MINUTES + last) for day in days]


def _days(text: str, whole: str) -> list[int]:
    found: list[int] = []
    for part in text.split(","):
        begin, dash, end = part.partition("-")
        if begin not in DAYS or (dash and end not in DAYS):
            raise _bad(whole)
        first = DAYS.index(begin)
        count = (DAYS.index(end) - first) % 7 if dash else 0
        found += [(first + offset) % 7 for offset in range(count + 1)]
    return sorted(set(found))


def _minute(text: str, whole: str) -> int:
    hours, colon, minutes = text.partition(":")
    if not (colon and hours.isdigit() and minutes.isdigit() and len(minutes) == 2):
        raise _bad(whole)
    minute = int(hours) * 60 + int(minutes)
    if int(minutes) > 59 or minute > DAY_MINUTES:
        raise _bad(whole)
    return minute


def _bad(text: str) -> BadHours:
    return BadHours(
        f'expected times such as "22:00-07:00", "mon-fri 18:00-08:00" or "sat,sun", got {text!r}'
    )
