"""What nodes are attached to beside what they contain: software, I/O, GPUs of some version.

A subsystem is a graph of its own. Its edges to containment vertices attach them; what is
attached to a rack holds for all that lies in the rack.
"""

from __future__ import annotations

from collections.abc import Iterable

from mycel.core.federation.request.request_tree import Require
from mycel.core.matching.version_ranges import version_satisfies

from .vertex_kinds import Attachment


def attached(attachments: Iterable[Attachment], require: Require) -> bool:
    return any(_serves(one, require) for one in attachments)


def _serves(attachment: Attachment, require: Require) -> bool:
    if attachment.subsystem != require.subsystem:
        return False
    value = next((text for name, text in attachment.fields if name == require.field), None)
    if value is None:
        return False
    if require.match and value != require.match:
        return False
    return not require.versions or version_satisfies(value, require.versions)


def describe(require: Require) -> str:
    if require.versions:
        return f"{require.field} {require.versions}"
    return f"{require.field} {require.match}" if require.match else require.field
