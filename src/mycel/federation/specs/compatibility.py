"""What an image needs of the machine it runs on, as requirements on nodes.

A `compatibility` block is a mapping (`mpi.variant: mpich`), or the document that compspec's
tools write, with a list of `compatibilities`; OCI annotations carry the same under
`org.supercontainers.`, inline or in a whole manifest. Nodes say what they have in a subsystem of
this name, which is made of what `compspec extract` wrote.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from mycel.core.federation.errors import SpecError
from mycel.core.federation.request.request_tree import Require
from mycel.core.matching.version_ranges import is_version_range

SUBSYSTEM: Final = "compatibility"
ANNOTATION_PREFIXES: Final = ("org.supercontainers.", "io.mycel.compatibility.")
ENTRIES_MAX: Final = 200
_RANGE: Final = re.compile(r"\s*(?:>=|<=|==|!=|>|<)")


def read_compatibility(value: Any, place: str) -> tuple[Require, ...]:
    """Raises SpecError."""
    if not isinstance(value, Mapping):
        raise SpecError(place, "must be a mapping of what is needed")
    if "compatibilities" in value:
        listed = value["compatibilities"]
        if not isinstance(listed, list):
            raise SpecError(f"{place}.compatibilities", "must be a list")
        found: dict[str, Any] = {}
        for number, one in enumerate(listed):
            attributes = one.get("attributes") if isinstance(one, Mapping) else None
            if not isinstance(attributes, Mapping):
                raise SpecError(f"{place}.compatibilities[{number}]", "has no 'attributes'")
            found.update(attributes)
        value = found
    annotations = value.get("annotations") if "annotations" in value else None
    if annotations is not None:
        if not isinstance(annotations, Mapping):
            raise SpecError(f"{place}.annotations", "must be a mapping")
        # An OCI manifest or index has its annotations beside what does not concern nodes.
        rest = {} if "schemaVersion" in value else value
        value = {**{k: v for k, v in rest.items() if k != "annotations"}, **_ours(annotations)}
    if len(value) > ENTRIES_MAX:
        raise SpecError(place, f"has more than {ENTRIES_MAX} entries")
    return tuple(_require(key, one, f"{place}.{key}") for key, one in value.items())


def _ours(annotations: Mapping[Any, Any]) -> dict[str, Any]:
    """OCI annotations that are about compatibility, without their prefix."""
    return {
        key[len(prefix) :]: value
        for key, value in annotations.items()
        for prefix in ANNOTATION_PREFIXES
        if isinstance(key, str) and key.startswith(prefix)
    }


def _require(key: Any, value: Any, place: str) -> Require:
    if not isinstance(key, str) or not key:
        raise SpecError(place, "each key is a text")
    if isinstance(value, bool):
        value = "true" if value else "false"
    if not isinstance(value, (str, int, float)):
        raise SpecError(place, "must be a text or a number")
    text = str(value)
    if _RANGE.match(text):
        if not is_version_range(text):
            raise SpecError(place, f"{text!r} is no version range such as >=4.1,<5")
        return Require(SUBSYSTEM, key, versions=text)
    return Require(SUBSYSTEM, key, match=text)
