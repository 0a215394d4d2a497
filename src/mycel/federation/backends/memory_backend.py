"""The backend that is built in: compact graphs, answers by kind."""

from __future__ import annotations

from mycel.core.federation.errors import GraphError
from mycel.core.federation.graph.calendar import Calendar
from mycel.core.federation.graph.cluster_graph import ClusterGraph, with_attachments
from mycel.core.federation.graph.summary import Summary, summarise
from mycel.core.federation.graph.vertex_kinds import Attachment, KindTable
from mycel.core.federation.reasons import Verdict
from mycel.core.federation.request.request_tree import JobRequest
from mycel.federation.jgf import read_graph, read_subsystem

from .graph_backend import UnknownCluster


class _Kept:
    def __init__(self, graph: ClusterGraph, whole: frozenset[str]) -> None:
        self.calendar = Calendar(graph, whole=whole)
        self.subsystems: dict[str, dict[int, tuple[Attachment, ...]]] = {}

    def redraw(self) -> None:
        merged: dict[int, list[Attachment]] = {}
        for attachments in self.subsystems.values():
            for vertex, those in attachments.items():
                merged.setdefault(vertex, []).extend(those)
        self.calendar.replace_graph(with_attachments(self.calendar.graph, merged))


class MemoryBackend:
    def __init__(self, whole: frozenset[str] = frozenset()) -> None:
        self._whole = whole
        self._table = KindTable()
        self._kept: dict[str, _Kept] = {}

    def put(self, cluster: str, data: bytes) -> Summary:
        graph = read_graph(data, name=cluster, table=self._table)
        self._kept[cluster] = _Kept(graph, self._whole)
        return summarise(graph)

    def remove(self, cluster: str) -> None:
        self._kept.pop(cluster, None)

    def attach(self, cluster: str, subsystem: str, data: bytes) -> None:
        kept = self._of(cluster)
        graph = kept.calendar.graph
        kept.subsystems[subsystem] = read_subsystem(data, subsystem, graph, name=subsystem)
        kept.redraw()

    def detach(self, cluster: str, subsystem: str) -> None:
        kept = self._of(cluster)
        if kept.subsystems.pop(subsystem, None) is not None:
            kept.redraw()

    def summary(self, cluster: str) -> Summary:
        return summarise(self.graph(cluster))

    def graph(self, cluster: str) -> ClusterGraph:
        return self._of(cluster).calendar.graph

    def satisfy(self, cluster: str, job: JobRequest) -> Verdict:
        return self._of(cluster).calendar.satisfy(job)

    def allocate(self, cluster: str, name: str, job: JobRequest, now: int) -> Verdict:
        return self._of(cluster).calendar.allocate(name, job, now)

    def reserve(self, cluster: str, name: str, job: JobRequest, now: int) -> Verdict:
        return self._of(cluster).calendar.reserve(name, job, now)

    def cancel(self, cluster: str, name: str) -> None:
        self._of(cluster).calendar.cancel(name)

    def set_status(self, cluster: str, path: str, up: bool) -> None:
        calendar = self._of(cluster).calendar
        vertex = calendar.graph.find(path)
        if vertex is None:
            raise GraphError(cluster, f"there is no vertex at {path!r}")
        calendar.set_status(vertex, up)

    def _of(self, cluster: str) -> _Kept:
        kept = self._kept.get(cluster)
        if kept is None:
            raise UnknownCluster(f"there is no graph of a cluster {cluster!r}")
        return kept
