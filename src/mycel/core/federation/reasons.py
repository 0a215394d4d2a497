"""Why a cluster does not get a job: at which level it was ruled out, and what was missing."""

from __future__ import annotations

import enum

import msgspec


class Level(enum.StrEnum):
    """In the order in which they are asked. Each costs more than the one before."""

    SPEC = "spec"
    """The spec asks for something that no graph can have."""
    TOKEN = "token"  # noqa: S105 - a level, no secret
    SUMMARY = "summary"
    GRAPH = "graph"
    SUBSYSTEM = "subsystem"
    TIME = "time"
    """It fits, but not now, or not before the cluster's calendar ends."""
    ANSWER = "answer"
    """The cluster itself said no, or said nothing in time."""
    SELECTION = "selection"
    """It fits, and the selection left it out or preferred another."""


class Reason(msgspec.Struct, frozen=True):
    level: Level
    text: str

    def __str__(self) -> str:
        return f"{self.level.value}: {self.text}"


class Outcome(enum.StrEnum):
    """Verdicts, in Fluxion's words."""

    ALLOCATED = "allocated"
    RESERVED = "reserved"
    NO_MATCH = "no-match"
    """Not now, though perhaps later."""
    UNSATISFIABLE = "unsatisfiable"
    """Never, on this cluster."""
    SATISFIABLE = "satisfiable"


class Verdict(msgspec.Struct, frozen=True):
    outcome: Outcome
    at_seconds: int = 0
    """When it starts, if it does."""
    reason: Reason | None = None
    takes: dict[str, int] = {}
    """Of what it got: how much of each type, as `core:exclusive` or `rack:shared`."""
    vertices: tuple[int, ...] = ()
    """What it holds for itself, topmost vertices alone."""

    def __bool__(self) -> bool:
        yes = (Outcome.ALLOCATED, Outcome.RESERVED, Outcome.SATISFIABLE)
        return self.outcome in yes

    def __str__(self) -> str:
        if self.outcome is Outcome.RESERVED:
            return f"reserved@{self.at_seconds}"
        return self.outcome.value
