"""What can be wrong with a topology. Whoever wrote it can put it right.

TopologyError
├── BadTopology    a name used twice, a link to nowhere, a weight out of bounds
├── Disconnected   some servers cannot reach each other
└── Unreachable    failures have cut the two nodes apart
"""

from __future__ import annotations


class TopologyError(Exception):
    """The root of the tree."""


class BadTopology(TopologyError):
    """The nodes or links contradict each other."""


class Disconnected(TopologyError):
    """Some servers cannot reach each other even though nothing has failed."""


class Unreachable(TopologyError):
    """Failures have cut the two nodes apart."""
