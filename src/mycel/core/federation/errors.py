"""What can be wrong with what others send about clusters.

    FederationError          always the sender's fault; the text says where and what to do
    ├── GraphError           a cluster's graph
    ├── SpecError            a job spec
    └── ExpressionError      a step of a selection

None of them is worth a retry with the same input.
"""

from __future__ import annotations


class FederationError(Exception):
    """Base; the message is written for the person who sent the input."""


class GraphError(FederationError):
    """A graph that is no cluster. `place` names the vertex or edge."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(f"{place}: {problem}" if place else problem)
        self.place = place
        self.problem = problem


class SpecError(FederationError):
    """A job spec that nobody can run. `place` names the line or the key."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(f"{place}: {problem}" if place else problem)
        self.place = place
        self.problem = problem


class ExpressionError(FederationError):
    """A selection step that cannot be read, or cannot be computed."""
