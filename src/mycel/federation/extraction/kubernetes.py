"""Nodes of Kubernetes, from `kubectl get nodes -o json`. What pods may have counts, not what the
machine has: `allocatable`, and `capacity` where it is missing."""

from __future__ import annotations

import re
from typing import Any, Final

from mycel.core.federation.errors import GraphError
from mycel.federation.json_values import read_json

from .machines import Machine

COMMANDS: Final = (("kubectl", "get", "nodes", "-o", "json"),)
GPU_RESOURCES: Final = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe")
_QUANTITY: Final = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)([a-zA-Z]*)(?:e(\d{1,2}))?")
_UNITS: Final = {
    "": 1.0,
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
    "Pi": 2.0**50,
}


def read_nodes(data: bytes) -> list[Machine]:
    """Raises GraphError."""
    whole = read_json(data, "Kubernetes")
    items = whole.get("items") if isinstance(whole, dict) else None
    if not isinstance(items, list):
        raise GraphError("Kubernetes", "there are no 'items': is it 'kubectl get nodes -o json'?")
    return [_machine(item, f"items[{number}]") for number, item in enumerate(items)]


def _machine(item: Any, place: str) -> Machine:
    metadata = _table(item, "metadata")
    status = _table(item, "status")
    name = metadata.get("name")
    if not isinstance(name, str):
        raise GraphError(place, "has no name")
    amounts = status.get("allocatable") or status.get("capacity")
    if not isinstance(amounts, dict):
        raise GraphError(place, "has neither 'allocatable' nor 'capacity'")
    gpus = sum(quantity(amounts[key], place) for key in GPU_RESOURCES if key in amounts)
    return Machine(
        name=name,
        cores=int(quantity(amounts.get("cpu", 0), place)),
        memory_mb=int(quantity(amounts.get("memory", 0), place) / 1e6),
        gpus=int(gpus),
        up=_is_up(item, status),
        properties=_properties(metadata, status),
    )


def quantity(value: Any, place: str) -> float:
    """`7910m` is 7.91, `32Gi` is 2^35. Raises GraphError."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0:
        return float(value)
    match = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if match is None or match[2] not in _UNITS:
        raise GraphError(place, f"{value!r} is no quantity of Kubernetes")
    return float(match[1]) * _UNITS[match[2]] * 10.0 ** int(match[3] or 0)


def _is_up(item: Any, status: dict[str, Any]) -> bool:
    if _table(item, "spec").get("unschedulable"):
        return False
    conditions = status.get("conditions")
    if not isinstance(conditions, list):
        return True
    ready = [one for one in conditions if isinstance(one, dict) and one.get("type") == "Ready"]
    return not ready or ready[-1].get("status") == "True"


def _properties(metadata: dict[str, Any], status: dict[str, Any]) -> frozenset[str]:
    labels = metadata.get("labels")
    labels = labels if isinstance(labels, dict) else {}
    found = [f"{key}={value}" if value else str(key) for key, value in labels.items()]
    architecture = _table(status, "nodeInfo").get("architecture")
    if isinstance(architecture, str):
        found.append(f"arch={architecture}")
    return frozenset(found)


def _table(value: Any, key: str) -> dict[str, Any]:
    below = value.get(key) if isinstance(value, dict) else None
    return below if isinstance(below, dict) else {}
