"""What a running node can take over from a changed configuration.

Whatever shapes a socket, a folder or an agreement with other nodes stays as it was until the
node starts again; the rest takes effect at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from .settings import Configuration

LIVE: Final = ("node.log_level", "scheduler.")
"""Keys, or the beginnings of keys, that are taken over while the node runs…"""
FIXED: Final = frozenset(
    {
        "scheduler.api.bind_address",  # a socket that others know
        "scheduler.lease_seconds",  # agreed with every worker
        "scheduler.heartbeat_seconds",  # the streams that stand were opened with it
        "scheduler.fault_tolerance.health_check_timeout",  # likewise
    }
)
"""…except these."""


SCHEDULING: Final = ("scheduler", "node")
"""Roles that read more of `[scheduler]` than what all nodes agree on."""


class Changes(msgspec.Struct, frozen=True):
    applied: list[str]
    needs_restart: list[str]


def changes(before: Configuration, after: Configuration, role: str) -> Changes:
    """Which keys that this role reads differ, in two lists."""
    old, new = dict(leaves(before)), dict(leaves(after))
    differ = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    applied = [key for key in differ if key.startswith(LIVE) and key not in FIXED]
    needs_restart = [key for key in differ if key not in applied and _is_read(key, role)]
    if role not in SCHEDULING:
        applied = [key for key in applied if not key.startswith("scheduler.")]
    return Changes(applied, needs_restart)


def _is_read(key: str, role: str) -> bool:
    """Whether a start of this role would look at it."""
    section = key.partition(".")[0]
    if section in ("gateway", "worker"):
        return role == section or (role, section) == ("node", "worker")
    return role in SCHEDULING or key != "scheduler.api.bind_address"


def leaves(section: msgspec.Struct, above: str = "") -> Iterator[tuple[str, Any]]:
    """Every key with its value."""
    for name in section.__struct_fields__:
        value, key = getattr(section, name), f"{above}{name}"
        if key == "origins":
            continue
        if isinstance(value, msgspec.Struct):
            yield from leaves(value, f"{key}.")
        else:
            yield key, value
