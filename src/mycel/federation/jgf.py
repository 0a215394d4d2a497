"""Graphs as JSON Graph Format, in two dialects.

    Fluxion    "nodes": [{"id": "0", "metadata": {…}}, …], edges in the containment subsystem
    rainbow    "nodes": {"0": {"label": …, "metadata": {…}}, …}, each edge there and back

Edges that point up (`in`) are left out: they repeat what the others say. Everything that is
wrong is refused with its place.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from mycel.core.federation.errors import GraphError
from mycel.core.federation.graph.cluster_graph import (
    CONTAINMENT,
    SIZE_MAX,
    VERTICES_MAX,
    ClusterGraph,
    Vertex,
    build_graph,
)
from mycel.core.federation.graph.vertex_kinds import Attachment, KindTable

from .json_values import read_json

BYTES_MAX: Final = 512 << 20
NAME_MAX: Final = 1_000
PROPERTIES_MAX: Final = 1_000
"""Of one vertex; also what a vertex of a subsystem says of itself."""
_UP: Final = frozenset(("in", "contained", "contained_by"))


def read_file(path: Path) -> bytes:
    """Unpacked if it is gzip."""
    return unpacked(path.read_bytes(), str(path))


def unpacked(data: bytes, place: str) -> bytes:
    """Up to a limit: a little gzip can unpack to very much."""
    if data[:2] == b"\x1f\x8b":
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
                data = packed.read(BYTES_MAX + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise GraphError(place, f"cannot be unpacked: {error}") from None
    if len(data) > BYTES_MAX:
        raise GraphError(place, f"is over {BYTES_MAX >> 20} MiB")
    return data


def read_graph(data: bytes, *, name: str = "", table: KindTable | None = None) -> ClusterGraph:
    """Raises GraphError."""
    nodes, edges = _parts(data, name)
    vertices: dict[str, Vertex] = {}
    foreign: set[str] = set()
    for identifier, metadata in nodes:
        if identifier in vertices or identifier in foreign:
            raise GraphError(_of(name, identifier), "the id is there twice")
        if _elsewhere(metadata):
            foreign.add(identifier)
        else:
            vertices[identifier] = _vertex(identifier, metadata, name)
        if len(vertices) > VERTICES_MAX:
            raise GraphError(name, f"has more than {VERTICES_MAX} vertices")
    children: dict[str, list[str]] = {}
    up: list[tuple[str, str]] = []
    for number, source, target, subsystem, relation in _edges(edges, name):
        if subsystem != CONTAINMENT or source in foreign or target in foreign:
            _check_ends(source, target, vertices, foreign, name, number)
            continue
        if relation in _UP:
            up.append((target, source))
            _check_ends(source, target, vertices, foreign, name, number)
        else:
            children.setdefault(source, []).append(target)
    _check_reverse(up, children, name)
    try:
        return build_graph(vertices, children, table=table)
    except GraphError as error:
        raise GraphError(": ".join(filter(None, (name, error.place))), error.problem) from None


def read_subsystem(
    data: bytes, subsystem: str, graph: ClusterGraph, *, name: str = ""
) -> dict[int, tuple[Attachment, ...]]:
    """What each containment vertex is attached to. Raises GraphError."""
    nodes, edges = _parts(data, name)
    attachments: dict[str, Attachment] = {}
    for identifier, metadata in nodes:
        if identifier in attachments:
            raise GraphError(_of(name, identifier), "the id is there twice")
        if identifier in graph.vertex_of:
            raise GraphError(_of(name, identifier), "is the id of a vertex of the cluster too")
        attachments[identifier] = Attachment(
            subsystem, identifier, _fields(metadata, _of(name, identifier))
        )
    found: dict[int, dict[Attachment, None]] = {}
    for number, source, target, _, _ in _edges(edges, name):
        for end in (source, target):
            if end not in attachments and end not in graph.vertex_of:
                raise GraphError(_edge(name, number), f"there is no vertex {end!r}")
        for inside, outside in ((source, target), (target, source)):
            if inside in attachments and outside in graph.vertex_of:
                vertex = graph.vertex_of[outside]
                found.setdefault(vertex, {})[attachments[inside]] = None
    if not found:
        raise GraphError(name, "no edge attaches it to a vertex of the cluster")
    return {vertex: tuple(those) for vertex, those in found.items()}


def write_graph(vertices: Mapping[str, Vertex], children: Mapping[str, list[str]]) -> bytes:
    """In Fluxion's dialect, which rainbow's tools can read too once converted."""
    paths: dict[str, str] = {}
    inside = {child: parent for parent, below in children.items() for child in below}
    for identifier, vertex in vertices.items():
        above = paths.get(inside.get(identifier, ""), "")
        paths[identifier] = f"{above}/{vertex.name}"
    nodes = [
        {"id": identifier, "metadata": _metadata(number, vertex, paths[identifier])}
        for number, (identifier, vertex) in enumerate(vertices.items())
    ]
    edges = [
        {"source": parent, "target": child, "metadata": {"subsystem": CONTAINMENT}}
        for parent, below in children.items()
        for child in below
    ]
    return msgspec.json.encode({"graph": {"nodes": nodes, "edges": edges}})


def _metadata(number: int, vertex: Vertex, path: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "type": vertex.type,
        "basename": vertex.basename or vertex.type,
        "name": vertex.name,
        "uniq_id": number,
        "rank": vertex.rank,
        "status": 0 if vertex.up else 1,
        "exclusive": False,
        "unit": vertex.unit,
        "size": vertex.size,
        "paths": {CONTAINMENT: path},
    }
    if vertex.properties:
        found["properties"] = dict.fromkeys(sorted(vertex.properties), "")
    return found


def _parts(data: bytes, name: str) -> tuple[list[tuple[str, dict[str, Any]]], list[Any]]:
    whole = read_json(data, name)
    graph = whole.get("graph", whole) if isinstance(whole, dict) else None
    if not isinstance(graph, dict):
        raise GraphError(name, "there is no 'graph' with nodes and edges")
    if "nodes" not in graph and isinstance(whole.get("scheduling"), dict):
        graph = whole["scheduling"].get("graph")
        if not isinstance(graph, dict):
            raise GraphError(name, "there is no 'graph' in 'scheduling'")
    nodes, edges = graph.get("nodes"), graph.get("edges", [])
    if not isinstance(edges, list):
        raise GraphError(f"{name} edges".strip(), "must be a list")
    if isinstance(nodes, dict):
        return [
            (_identifier(key, name), _table(value, name, key)) for key, value in nodes.items()
        ], edges
    if not isinstance(nodes, list):
        raise GraphError(f"{name} nodes".strip(), "must be a list or a mapping")
    found = []
    for number, node in enumerate(nodes):
        identifier = node.get("id") if isinstance(node, dict) else None
        if isinstance(identifier, int) and not isinstance(identifier, bool):
            identifier = str(identifier)
        if not isinstance(identifier, str) or not identifier:
            raise GraphError(f"{name} nodes[{number}]".strip(), "has no 'id'")
        found.append((_identifier(identifier, name), _table(node, name, identifier)))
    return found, edges


def _identifier(text: str, name: str) -> str:
    if len(text) > NAME_MAX or not text.isprintable():
        raise GraphError(_of(name, text), f"an id is up to {NAME_MAX} printable characters")
    return text


def _table(node: Any, name: str, identifier: str) -> dict[str, Any]:
    metadata = node.get("metadata") if isinstance(node, dict) else None
    if not isinstance(metadata, dict):
        raise GraphError(_of(name, identifier), "has no 'metadata'")
    return metadata


def _elsewhere(metadata: Mapping[str, Any]) -> bool:
    """Whether it says that it lies in other subsystems alone, such as power or network."""
    paths = metadata.get("paths")
    return isinstance(paths, dict) and bool(paths) and CONTAINMENT not in paths


def _vertex(identifier: str, metadata: Mapping[str, Any], name: str) -> Vertex:
    place = _of(name, identifier)
    type_ = _text(metadata, "type", place)
    if not type_:
        raise GraphError(place, "has no 'type'")
    basename = _text(metadata, "basename", place)
    shown = _text(metadata, "name", place) or _last(metadata) or f"{basename or type_}{identifier}"
    size = metadata.get("size", 1)
    if not isinstance(size, int) or isinstance(size, bool):
        raise GraphError(place, f"size {size!r} is no whole number")
    if not 0 <= size <= SIZE_MAX:
        raise GraphError(place, f"size {size} is not between 0 and {SIZE_MAX}")
    return Vertex(
        identifier=identifier,
        type=type_,
        name=shown,
        basename=basename,
        size=size,
        unit=_text(metadata, "unit", place),
        rank=_rank(metadata.get("rank", -1), place),
        up=_up(metadata.get("status", 0), place),
        properties=_properties(metadata.get("properties"), place),
    )


def _text(metadata: Mapping[str, Any], key: str, place: str) -> str:
    value = metadata.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise GraphError(place, f"{key} {value!r} is no text")
    if len(value) > NAME_MAX:
        raise GraphError(place, f"{key} has more than {NAME_MAX} characters")
    if not value.isprintable():
        raise GraphError(place, f"{key} {value!r} has characters that cannot be printed")
    return value


def _last(metadata: Mapping[str, Any]) -> str:
    paths = metadata.get("paths")
    path = paths.get(CONTAINMENT) if isinstance(paths, dict) else None
    return path.rpartition("/")[2] if isinstance(path, str) else ""


def _rank(value: Any, place: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -1 <= value <= SIZE_MAX:
        raise GraphError(place, f"rank {value!r} is no whole number from -1 on")
    return value


def _up(value: Any, place: str) -> bool:
    if value in (0, "up", "UP") and value is not False:
        return True
    if value in (1, "down", "DOWN") and value is not True:
        return False
    raise GraphError(place, f"status {value!r} is neither 0 (up) nor 1 (down)")


def _properties(value: Any, place: str) -> frozenset[str]:
    if value is None:
        return frozenset()
    if not isinstance(value, (dict, list)) or not all(isinstance(one, str) for one in value):
        raise GraphError(place, "properties must be a mapping or a list of texts")
    if len(value) > PROPERTIES_MAX:
        raise GraphError(place, f"has more than {PROPERTIES_MAX} properties")
    for one in value:
        if len(one) > NAME_MAX or not one.isprintable():
            raise GraphError(place, f"{one!r} is no property: it is too long, or not printable")
    return frozenset(value)


def _fields(metadata: Mapping[str, Any], place: str) -> tuple[tuple[str, str], ...]:
    """What a job can ask of a subsystem's vertex: everything that is a text or a number."""
    found = []
    for key, value in sorted(metadata.items()):
        if isinstance(value, bool):
            found.append((key, "true" if value else "false"))
        elif isinstance(value, (str, int, float)):
            text = str(value)
            if len(text) > NAME_MAX:
                raise GraphError(place, f"{key!r} has more than {NAME_MAX} characters")
            found.append((key, text))
    if len(found) > PROPERTIES_MAX:
        raise GraphError(place, f"has more than {PROPERTIES_MAX} properties")
    return tuple(found)


def _edges(edges: Iterable[Any], name: str) -> Iterable[tuple[int, str, str, str, str]]:
    for number, edge in enumerate(edges):
        if not isinstance(edge, dict):
            raise GraphError(_edge(name, number), "must be a mapping")
        ends = []
        for key in ("source", "target"):
            end = edge.get(key)
            if isinstance(end, int) and not isinstance(end, bool):
                end = str(end)
            if not isinstance(end, str):
                raise GraphError(_edge(name, number), f"has no {key!r}")
            ends.append(end)
        subsystem, relation = _relation(edge)
        yield number, ends[0], ends[1], subsystem, relation


def _relation(edge: Mapping[str, Any]) -> tuple[str, str]:
    """The subsystem of an edge and its direction, in each of the ways that are in use."""
    relation = edge.get("relation")
    metadata = edge.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    named = metadata.get("name")
    if isinstance(named, dict) and named:
        subsystem = CONTAINMENT if CONTAINMENT in named else next(iter(named))
        return str(subsystem), str(named[subsystem])
    subsystem = metadata.get("subsystem", CONTAINMENT)
    return str(subsystem), relation if isinstance(relation, str) else "contains"


def _check_ends(
    source: str,
    target: str,
    vertices: Mapping[str, Vertex],
    foreign: set[str],
    name: str,
    number: int,
) -> None:
    for end in (source, target):
        if end not in vertices and end not in foreign:
            raise GraphError(_edge(name, number), f"there is no vertex {end!r}")


def _check_reverse(up: list[tuple[str, str]], children: Mapping[str, list[str]], name: str) -> None:
    """An `in` without its `contains` would be lost silently."""
    down = {(parent, child) for parent, below in children.items() for child in below}
    for parent, child in up:
        if (parent, child) not in down:
            problem = f"{child!r} is in {parent!r}, but {parent!r} does not contain it"
            raise GraphError(name, problem)


def _of(name: str, identifier: str) -> str:
    return f"{name} vertex {identifier!r}".strip()


def _edge(name: str, number: int) -> str:
    return f"{name} edges[{number}]".strip()
