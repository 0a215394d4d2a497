"""Nodes of Ray, from its state: `ray list nodes --format json`, `ray.nodes()` as JSON, or the
answer of the dashboard at /api/v0/nodes."""

from __future__ import annotations

from typing import Any, Final

from mycel.core.federation.errors import GraphError
from mycel.federation.json_values import read_json

from .machines import Machine

COMMANDS: Final = (("ray", "list", "nodes", "--format", "json", "--detail"),)


def read_nodes(data: bytes) -> list[Machine]:
    """Raises GraphError. Nodes that are dead are left out: Ray never brings them back."""
    begin = min((at for at in (data.find(b"["), data.find(b"{")) if at >= 0), default=0)
    whole = read_json(data[begin:], "Ray")
    nodes = whole
    for key in ("data", "result", "result"):
        if isinstance(nodes, dict) and key in nodes:
            nodes = nodes[key]
    if not isinstance(nodes, list):
        raise GraphError("Ray", "there is no list of nodes in the answer")
    found = [_machine(node, f"nodes[{number}]") for number, node in enumerate(nodes)]
    return [machine for machine in found if machine is not None]


def _machine(node: Any, place: str) -> Machine | None:
    if not isinstance(node, dict):
        raise GraphError(place, "must be a mapping")
    alive = node.get("Alive", node.get("state") == "ALIVE" if "state" in node else True)
    if not alive:
        return None
    identifier = node.get("node_id") or node.get("NodeID")
    name = node.get("node_name") or node.get("NodeName") or node.get("node_ip") or identifier
    resources = node.get("resources_total", node.get("Resources"))
    if not isinstance(name, str) or not isinstance(resources, dict):
        raise GraphError(place, "has no name or no resources")
    if isinstance(identifier, str) and identifier != name:
        # Several Ray nodes can run on one machine.
        name = f"{name}-{identifier[:8]}"
    labels = node.get("labels", node.get("Labels"))
    having = {key.partition(":")[2] for key in resources if key.startswith("accelerator_type:")}
    if isinstance(labels, dict):
        having |= {f"{key}={value}" for key, value in labels.items()}
    return Machine(
        name=name,
        cores=int(_amount(resources, "CPU", place)),
        memory_mb=int(_amount(resources, "memory", place) / 1e6),
        gpus=int(_amount(resources, "GPU", place)),
        properties=frozenset(having),
    )


def _amount(resources: dict[str, Any], key: str, place: str) -> float:
    value = resources.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1e18:
        raise GraphError(place, f"{key} {value!r} is no amount")
    return float(value)
