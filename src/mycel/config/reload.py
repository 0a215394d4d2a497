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


class Changes(msgspec.Struct, frozen=True, omit_defaults=True):
    applied: list[str]
    needs_restart: list[str]
    """All that a new start would change, also by what was written earlier."""
    error: str = ""
    """Why nothing was taken over, if that is so."""


def changes(
    started: Configuration, before: Configuration, after: Configuration, role: str
) -> Changes:
    """Which keys that this role reads differ: from what was taken over last, and from what the
    role was started with."""
    applied = [key for key in _differing(before, after) if _is_live(key)]
    if role not in SCHEDULING:
        applied = [key for key in applied if not key.startswith("scheduler.")]
    fixed = [key for key in _differing(started, after) if not _is_live(key)]
    return Changes(applied, [key for key in fixed if _is_read(key, role)])


def _differing(one: Configuration, other: Configuration) -> list[str]:
    old, new = dict(leaves(one)), dict(leaves(other))
    return sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))


def _is_live(key: str) -> bool:
    return key.startswith(LIVE) and key not in FIXED


def _is_read(key: str, role: str) -> bool:
    """Whether a start of this role would look at it."""
    section = key.partition(".")[0]
    if section in ("gateway", "worker"):
        return role == section or (role, section) == ("node", "worker")
    if section == "clusters":
        return False  # commands read it, and no role
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
