"""How many files and sockets this process may have open."""

from __future__ import annotations

import resource
from typing import Final

DESCRIPTORS_MAX: Final = 65_536
"""More than a node with every connection that its limits allow has use for."""


def raise_limit() -> None:
    """To what the system allows. The usual soft limit of 1,024 is for programs that use
    `select`; tasks keep it, as the helper that starts them is there before this is called."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
