"""What keeps graphs and answers for them.

A backend is chosen by configuration. All of them give the same answers; they differ in what
they are built on and how fast they are. `tests/federation/test_backends.py` holds each to it.
"""

from __future__ import annotations

from typing import Protocol

from mycel.core.federation.errors import FederationError
from mycel.core.federation.graph.summary import Summary
from mycel.core.federation.reasons import Verdict
from mycel.core.federation.request.request_tree import JobRequest


class UnknownCluster(FederationError):
    """No graph of this name was put."""


class GraphBackend(Protocol):
    def put(self, cluster: str, data: bytes) -> Summary:
        """A graph as JSON Graph Format; replaces an earlier one and forgets its jobs. Raises
        GraphError, and then nothing has changed."""

    def remove(self, cluster: str) -> None:
        """Does nothing if it is not there."""

    def attach(self, cluster: str, subsystem: str, data: bytes) -> None:
        """Adds or replaces a subsystem; jobs keep what they hold. Raises GraphError, and then
        nothing has changed."""

    def detach(self, cluster: str, subsystem: str) -> None: ...

    def summary(self, cluster: str) -> Summary: ...

    def satisfy(self, cluster: str, job: JobRequest) -> Verdict:
        """Whether it could ever run."""

    def allocate(self, cluster: str, name: str, job: JobRequest, now: int) -> Verdict:
        """Now, or not at all."""

    def reserve(self, cluster: str, name: str, job: JobRequest, now: int) -> Verdict:
        """Now, or at the first time at which it fits."""

    def cancel(self, cluster: str, name: str) -> None:
        """Frees what the job holds. Raises UnknownJob."""

    def set_status(self, cluster: str, path: str, up: bool) -> None:
        """Of the vertex at `/cluster/rack0/node1`. Raises GraphError if there is none."""
