"""What is kept of a cluster that has registered.

    name ─ summary ─ graph (a digest) ─ subsystems (digests) ─ state ─ hashes of two secrets

The graph itself is a blob. Only this goes into records, so that a thousand clusters are a small
table. One secret is for users, who may then ask the cluster and submit to it; the other is for
the cluster's agent, which receives work by it. Neither can be told from its hash.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from mycel.core.ranges import Moment, Size

from .errors import FederationError
from .expressions import Value
from .graph.summary import Summary

STATE_KEYS_MAX: Final = 100
STATE_TEXT_MAX: Final = 200
SUBSYSTEMS_MAX: Final = 20
NAME_SHAPE: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
_NAME: Final = re.compile(NAME_SHAPE)
_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
RESERVED_KEYS: Final = frozenset(("job", "min", "max", "abs", "and", "or", "not"))
"""Selection steps mean something else by them."""


class RegistrationError(FederationError):
    """What was asked cannot be done with these clusters; the text says why."""


class NameTaken(RegistrationError):
    """Somebody has registered a cluster of this name."""


class NotRegistered(RegistrationError):
    """There is no cluster of this name."""


class HashedSecret(msgspec.Struct, frozen=True):
    digest: str
    expires_at: Moment = 0.0
    """0 is never."""


class KeptBlob(msgspec.Struct, frozen=True):
    digest: str
    size: Size


class ClusterRecord(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    graph: KeptBlob
    summary: Summary
    subsystems: dict[str, KeptBlob] = {}
    state: dict[str, Value] = {}
    registered_at: Moment
    seen_at: Moment
    """When it last said anything."""
    silent_after_seconds: Moment = 0.0
    """Then it is taken for gone, until it says something again; 0 is never."""
    token: HashedSecret | None = None
    """For its users. A cluster in a group has none: the group's is good for it."""
    group: str = ""
    secret: HashedSecret
    """For its agent."""

    def is_silent(self, now: float) -> bool:
        return 0 < self.silent_after_seconds < now - self.seen_at


class Registered(msgspec.Struct, frozen=True):
    """Secrets in the clear, this once. An empty token: the group's is good for it, as before."""

    record: ClusterRecord
    token: str
    secret: str

    def __repr__(self) -> str:
        return f"Registered({self.record.name!r}, …)"


def is_cluster_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def check_name(name: str, what: str = "cluster") -> str:
    if not is_cluster_name(name):
        raise RegistrationError(
            f"{name!r} is no name for a {what}: up to 63 letters, digits, dots, dashes and "
            "underscores, and the first is a letter or a digit"
        )
    return name


def changed_state(state: Mapping[str, Value], change: Mapping[Any, Any]) -> dict[str, Value]:
    """With new values, and without those that are None. Raises RegistrationError."""
    found = dict(state)
    for key, value in change.items():
        if not isinstance(key, str) or not _KEY.fullmatch(key) or key in RESERVED_KEYS:
            raise RegistrationError(f"{key!r} is no name of a state: write nodes_free, region …")
        if value is None:
            found.pop(key, None)
            continue
        if not isinstance(value, (bool, int, float, str)):
            raise RegistrationError(f"{key}: a state is a number, a text, true or false")
        if isinstance(value, str) and not (len(value) <= STATE_TEXT_MAX and value.isprintable()):
            raise RegistrationError(f"{key}: a text has up to {STATE_TEXT_MAX} printable letters")
        if isinstance(value, (int, float)) and not (abs(value) <= 1e18 and math.isfinite(value)):
            raise RegistrationError(f"{key}: {value} is out of range")
        found[key] = value
    if len(found) > STATE_KEYS_MAX:
        raise RegistrationError(f"a cluster has at most {STATE_KEYS_MAX} states")
    return found
