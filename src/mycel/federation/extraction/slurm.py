"""Nodes of Slurm, from `sinfo --json` (22.05), `scontrol show nodes --json` (24.11) or the plain
text of `scontrol show nodes`, which all versions print.

The generations differ: states and features are one text or a list, numbers are plain or
`{set, infinite, number}`. Fake nodes all have the machine's host name, so the node's name counts.
GPUs are read from `gres`: other fields have them only with an accounting database.
"""

from __future__ import annotations

import re
from typing import Any, Final

from mycel.core.federation.errors import GraphError
from mycel.federation.json_values import read_json

from .machines import Machine

COMMANDS: Final = (
    ("scontrol", "show", "nodes", "--json"),
    ("sinfo", "--json"),
    ("scontrol", "show", "nodes", "--oneliner"),
)
"""In the order in which they are tried: old versions know no JSON of scontrol."""
_DOWN: Final = frozenset(
    (
        "down",
        "drain",
        "draining",
        "drained",
        "fail",
        "failing",
        "error",
        "unknown",
        "future",
        "not_responding",
        "invalid",
        "power_down",
        "powering_down",
        "powered_down",
        "maint",
        "reboot",
    )
)
_GPU: Final = re.compile(r"gpu(?::[^:,()]+)?:(\d+)")
_FIELD: Final = re.compile(r"(\w+(?:/\w+)?)=(\S*)")


def read_nodes(data: bytes) -> list[Machine]:
    """Raises GraphError."""
    text = data.lstrip()
    if text[:1] == b"{":
        return _from_json(text)
    if text.startswith(b"NodeName="):
        return _from_text(text.decode(errors="replace"))
    raise GraphError("Slurm", f"neither JSON nor 'scontrol show nodes': {_begin(text)}")


def _from_json(data: bytes) -> list[Machine]:
    whole = read_json(data, "Slurm")
    errors = whole.get("errors") or []
    nodes = whole.get("nodes")
    if not isinstance(nodes, list):
        said = f"; it says {errors[0]}" if isinstance(errors, list) and errors else ""
        raise GraphError("Slurm", f"there are no 'nodes' in the answer{said}")
    return [_machine(node, number) for number, node in enumerate(nodes)]


def _machine(node: Any, number: int) -> Machine:
    place = f"nodes[{number}]"
    if not isinstance(node, dict) or not isinstance(node.get("name"), str):
        raise GraphError(place, "has no name")
    cpus = _number(node.get("cpus"), f"{place}.cpus")
    threads = max(1, _number(node.get("threads", 1), f"{place}.threads"))
    return Machine(
        name=node["name"],
        cores=max(1, cpus // threads) if cpus else 0,
        memory_mb=_number(node.get("real_memory", 0), f"{place}.real_memory"),
        gpus=_gpus(node.get("gres")),
        up=not _DOWN & _words(node.get("state"), node.get("state_flags")),
        properties=_properties(
            node.get("active_features") or node.get("features"),
            node.get("partitions"),
            node.get("architecture"),
        ),
    )


def _from_text(text: str) -> list[Machine]:
    """One node a line, or several lines a node with empty lines between."""
    lines = text.splitlines()
    if all(line.startswith("NodeName=") for line in lines if line.strip()):
        records = [line for line in lines if line.strip()]
    else:
        records = re.split(r"\n\s*\n", text.strip())
    return [_from_record(dict(_FIELD.findall(record))) for record in records]


def _from_record(fields: dict[str, str]) -> Machine:
    name = fields.get("NodeName", "")
    place = f"node {name!r}"
    threads = max(1, _number(fields.get("ThreadsPerCore", "1"), place))
    cpus = _number(fields.get("CPUTot", "0"), place)
    state = fields.get("State", "").replace("+", " ").replace("*", " not_responding ")
    return Machine(
        name=name,
        cores=max(1, cpus // threads) if cpus else 0,
        memory_mb=_number(fields.get("RealMemory", "0"), place),
        gpus=_gpus(fields.get("Gres")),
        up=not _DOWN & _words(state),
        properties=_properties(
            fields.get("ActiveFeatures"), fields.get("Partitions"), fields.get("Arch")
        ),
    )


def _number(value: Any, place: str) -> int:
    if isinstance(value, dict):
        value = value.get("number", 0) if value.get("set", True) else 0
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise GraphError(place, f"{value!r} is no number of anything")
    return value


def _gpus(gres: Any) -> int:
    """`gpu:a100:2(S:0),gpu:1` are three."""
    if not isinstance(gres, str) or gres in ("(null)", "N/A"):
        return 0
    found = sum(int(count[:9]) for count in _GPU.findall(gres))
    bare = sum(part.strip() == "gpu" for part in gres.split(","))
    return found + bare


def _words(*values: Any) -> set[str]:
    found: set[str] = set()
    for value in values:
        if isinstance(value, str):
            found.update(value.lower().split())
        elif isinstance(value, list):
            found.update(str(one).lower() for one in value)
    return found


def _properties(features: Any, partitions: Any, architecture: Any) -> frozenset[str]:
    named = [one for one in _listed(features) if one and one != "(null)"]
    named += [f"partition={one}" for one in _listed(partitions) if one]
    if isinstance(architecture, str) and architecture:
        named.append(f"arch={architecture}")
    return frozenset(named)


def _listed(value: Any) -> list[str]:
    if isinstance(value, str):
        return [word.strip() for word in value.split(",")]
    return [str(one) for one in value] if isinstance(value, list) else []


def _begin(text: bytes) -> str:
    return repr(text[:40].decode(errors="replace")) if text else "nothing"
