"""A cluster as a tree of what contains what.

Vertices are numbered in depth-first order, so that a subtree is a range of numbers: the
children of `v` begin at `v + 1`, and each ends where the next begins. A vertex costs three
machine integers and a pointer to a name that most vertices share.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from mycel.core.federation.errors import GraphError

from .vertex_kinds import Attachment, Kind, KindTable

ROOT: Final = 0
SIZE_MAX: Final = 1 << 50
VERTICES_MAX: Final = 3_000_000
DEPTH_MAX: Final = 64
TYPES_MAX: Final = 64
"""A summary names each of them, and goes into records and gossip."""
RESERVED_TYPES: Final = frozenset(("slot",))
CONTAINMENT: Final = "containment"


class Vertex(msgspec.Struct, frozen=True, kw_only=True):
    """One vertex as a reader found it."""

    identifier: str
    type: str
    name: str = ""
    basename: str = ""
    size: int = 1
    unit: str = ""
    rank: int = -1
    up: bool = True
    properties: frozenset[str] = frozenset()


class ClusterGraph:
    """Made by `build_graph`; never changes. Status and jobs are kept outside, in `Occupancy`."""

    __slots__ = ("_numbers", "ends", "kinds", "names", "parents", "ranks", "table", "vertex_of")

    def __init__(
        self,
        kinds: Sequence[Kind],
        numbers: array[int],
        parents: array[int],
        ends: array[int],
        names: list[str],
        ranks: dict[int, int],
        vertex_of: dict[str, int],
        table: KindTable,
    ) -> None:
        self.kinds = kinds
        self._numbers = numbers
        self.parents = parents
        self.ends = ends
        self.names = names
        self.ranks = ranks
        self.vertex_of = vertex_of
        """By the identifiers of the file it came from; empty if nothing will be attached."""
        self.table = table

    def __len__(self) -> int:
        return len(self._numbers)

    def kind(self, vertex: int) -> Kind:
        return self.kinds[self._numbers[vertex]]

    @property
    def root_kind(self) -> Kind:
        return self.kind(ROOT)

    def parent(self, vertex: int) -> int:
        """-1 above the root."""
        return self.parents[vertex]

    def children(self, vertex: int) -> Iterator[int]:
        child, end, ends = vertex + 1, self.ends[vertex], self.ends
        while child < end:
            yield child
            child = ends[child]

    def subtree(self, vertex: int) -> range:
        return range(vertex, self.ends[vertex])

    def ancestors(self, vertex: int) -> Iterator[int]:
        """From the parent up."""
        vertex = self.parents[vertex]
        while vertex >= 0:
            yield vertex
            vertex = self.parents[vertex]

    def name(self, vertex: int) -> str:
        return self.names[vertex]

    def rank(self, vertex: int) -> int:
        return self.ranks.get(vertex, -1)

    def path(self, vertex: int) -> str:
        parts = [self.names[vertex], *(self.names[above] for above in self.ancestors(vertex))]
        return "/" + "/".join(reversed(parts))

    def find(self, path: str) -> int | None:
        """The vertex at `/cluster/rack0/node1`."""
        words = path.strip("/").split("/")
        if not words or words[0] != self.names[ROOT]:
            return None
        vertex = ROOT
        for word in words[1:]:
            below = (child for child in self.children(vertex) if self.names[child] == word)
            found = next(below, None)
            if found is None:
                return None
            vertex = found
        return vertex

    def totals(self) -> dict[str, int]:
        """How much there is of each type, the root included."""
        root = self.root_kind
        totals = dict(root.totals)
        totals[root.type] = totals.get(root.type, 0) + root.size
        return totals


def build_graph(
    vertices: Mapping[str, Vertex],
    children_of: Mapping[str, Sequence[str]],
    *,
    table: KindTable | None = None,
    attachments: Mapping[str, Sequence[Attachment]] | None = None,
    keep_identifiers: bool = True,
) -> ClusterGraph:
    """Checks that it is one tree. Raises GraphError with the vertex that is wrong."""
    types: set[str] = set()
    for vertex in vertices.values():
        _check_vertex(vertex)
        types.add(vertex.type)
        if len(types) > TYPES_MAX:
            place = f"vertex {vertex.identifier!r}"
            raise GraphError(place, f"the graph has more than {TYPES_MAX} types")
    root = _find_root(vertices, children_of)
    kinds = KindTable() if table is None else table
    return _Builder(vertices, children_of, kinds, attachments or {}).build(root, keep_identifiers)


def _check_vertex(vertex: Vertex) -> None:
    place = f"vertex {vertex.identifier!r}"
    if not vertex.type:
        raise GraphError(place, "has no type")
    if vertex.type in RESERVED_TYPES:
        raise GraphError(place, f"type {vertex.type!r} is reserved for job specs")
    if vertex.size < 0:
        raise GraphError(place, f"size is {vertex.size}, but must not be negative")
    if vertex.size > SIZE_MAX:
        raise GraphError(place, f"size {vertex.size} is more than any cluster has")


def _find_root(vertices: Mapping[str, Vertex], children_of: Mapping[str, Sequence[str]]) -> str:
    if not vertices:
        raise GraphError("", "the graph has no vertices")
    if len(vertices) > VERTICES_MAX:
        raise GraphError("", f"the graph has more than {VERTICES_MAX} vertices")
    parents: dict[str, str] = {}
    for parent, children in children_of.items():
        for child in children:
            place = f"edge {parent!r} -> {child!r}"
            for end in (parent, child):
                if end not in vertices:
                    raise GraphError(place, f"there is no vertex {end!r}")
            if parent == child:
                raise GraphError(place, "a vertex cannot contain itself")
            if child in parents:
                if parents[child] == parent:
                    raise GraphError(place, "the edge is there twice")
                raise GraphError(
                    place, f"{parents[child]!r} contains {child!r} too; one parent is possible"
                )
            parents[child] = parent
    roots = [identifier for identifier in vertices if identifier not in parents]
    if not roots:
        raise GraphError("", "there is no root: every vertex lies in another one (a cycle)")
    if len(roots) > 1:
        shown = ", ".join(repr(root) for root in roots[:3])
        raise GraphError("", f"there are {len(roots)} roots ({shown}…); a cluster has one")
    return roots[0]


class _Builder:
    def __init__(
        self,
        vertices: Mapping[str, Vertex],
        children_of: Mapping[str, Sequence[str]],
        table: KindTable,
        attachments: Mapping[str, Sequence[Attachment]],
    ) -> None:
        self._vertices = vertices
        self._children_of = children_of
        self._table = table
        self._attachments = attachments
        self._shared_names: dict[str, str] = {}

    def build(self, root: str, keep_identifiers: bool) -> ClusterGraph:
        order, parents, ends = self._order(root)
        if len(order) < len(self._vertices):
            reached = set(order)
            lost = next(one for one in self._vertices if one not in reached)
            raise GraphError(f"vertex {lost!r}", "lies in a cycle that the root does not reach")
        given = self._attachments
        own = {index: given[one] for index, one in enumerate(order) if one in given}
        inherited = _inherit(parents, own)
        found = [self._vertices[one] for one in order]
        kinds, numbers = _number_kinds(parents, found, inherited, self._table)
        for type_, amount in kinds[-1].totals.items():
            if amount > SIZE_MAX:
                raise GraphError("", f"{amount} {type_} in all is more than any cluster has")
        ranks = {index: one.rank for index, one in enumerate(found) if one.rank >= 0}
        names = [self._name(one) for one in order]
        vertex_of = {one: index for index, one in enumerate(order)} if keep_identifiers else {}
        return ClusterGraph(kinds, numbers, parents, ends, names, ranks, vertex_of, self._table)

    def _order(self, root: str) -> tuple[list[str], array[int], array[int]]:
        """Depth first, without recursion: a file may be as deep as it likes until we refuse."""
        order: list[str] = []
        parents = array("i")
        ends = array("i")
        stack: list[tuple[str, int, int]] = [(root, -1, 1)]
        open_: list[int] = []
        while stack:
            identifier, parent, depth = stack.pop()
            if depth > DEPTH_MAX:
                raise GraphError(f"vertex {identifier!r}", f"lies more than {DEPTH_MAX} deep")
            index = len(order)
            while open_ and open_[-1] != parent:
                ends[open_.pop()] = index
            order.append(identifier)
            parents.append(parent)
            ends.append(0)
            open_.append(index)
            below = reversed(self._children_of.get(identifier, ()))
            stack.extend((child, index, depth + 1) for child in below)
        for index in open_:
            ends[index] = len(order)
        return order, parents, ends

    def _name(self, identifier: str) -> str:
        vertex = self._vertices[identifier]
        name = vertex.name or f"{vertex.basename or vertex.type}{identifier}"
        return self._shared_names.setdefault(name, name)


def with_attachments(
    graph: ClusterGraph, attachments: Mapping[int, Sequence[Attachment]]
) -> ClusterGraph:
    """The same cluster, attached to these and to nothing else."""
    vertices = [graph.kind(vertex) for vertex in range(len(graph))]
    inherited = _inherit(graph.parents, attachments)
    kinds, numbers = _number_kinds(graph.parents, vertices, inherited, graph.table)
    return ClusterGraph(
        kinds,
        numbers,
        graph.parents,
        graph.ends,
        graph.names,
        graph.ranks,
        graph.vertex_of,
        graph.table,
    )


def _inherit(
    parents: array[int], attachments: Mapping[int, Sequence[Attachment]]
) -> dict[int, tuple[Attachment, ...]]:
    """What is attached to a rack holds for all that lies in it."""
    if not any(attachments.values()):
        return {}
    found: dict[int, tuple[Attachment, ...]] = {}
    shared: dict[tuple[Attachment, ...], tuple[Attachment, ...]] = {}
    for index, parent in enumerate(parents):
        above = found.get(parent, ())
        own = attachments.get(index, ())
        if own:
            merged = dict.fromkeys((*above, *own))
            above = tuple(sorted(merged, key=lambda one: (one.subsystem, one.identifier)))
            above = shared.setdefault(above, above)
        if above:
            found[index] = above
    return found


def _number_kinds(
    parents: array[int],
    vertices: Sequence[Vertex] | Sequence[Kind],
    inherited: Mapping[int, tuple[Attachment, ...]],
    table: KindTable,
) -> tuple[list[Kind], array[int]]:
    """Children before parents: a kind is made of its children's."""
    kinds: list[Kind] = []
    places: dict[int, int] = {}
    numbers = array("i", bytes(array("i").itemsize * len(parents)))
    below: list[dict[Kind, int] | None] = [None] * len(parents)
    for index in range(len(parents) - 1, -1, -1):
        vertex = vertices[index]
        kind = table.intern(
            vertex.type,
            vertex.size,
            below[index] or {},
            up=vertex.up,
            unit=vertex.unit,
            properties=vertex.properties,
            attachments=inherited.get(index, ()),
        )
        below[index] = None
        if kind.number not in places:
            places[kind.number] = len(kinds)
            kinds.append(kind)
        numbers[index] = places[kind.number]
        parent = parents[index]
        if parent >= 0:
            siblings = below[parent]
            if siblings is None:
                siblings = below[parent] = {}
            siblings[kind] = siblings.get(kind, 0) + 1
    return kinds, numbers
