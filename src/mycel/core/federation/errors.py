"""What can be wrong with what others send about clusters.

    FederationError          always the sender's fault; the text says where and what to do
    ├── GraphError           a cluster's graph
    ├── SpecError            a job spec
    └── ExpressionError      a step of a selection

None of them is worth a retry with the same input.
"""

from __future__ import annotations

from typing import Final

PLACE_MAX: Final = 300
PROBLEM_MAX: Final = 1_000
"""Messages repeat what was sent, and a megabyte of it helps nobody."""


class FederationError(Exception):
    """Base; the message is written for the person who sent the input."""

    def __init__(self, problem: str, place: str = "") -> None:
        place, problem = _shortened(place, PLACE_MAX), _shortened(problem, PROBLEM_MAX)
        super().__init__(f"{place}: {problem}" if place else problem)
        self.place = place
        self.problem = problem


class GraphError(FederationError):
    """A graph that is no cluster. `place` names the vertex or edge."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(problem, place)


class SpecError(FederationError):
    """A job spec that nobody can run. `place` names the line or the key."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(problem, place)


class ExpressionError(FederationError):
    """A selection step that cannot be read, or cannot be computed."""


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 10]}… ({len(text)} characters)"
