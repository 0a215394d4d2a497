"""Names of container images: `[registry[:port]/]path[:tag][@digest]`, and nothing else.

Engines take more for a name, such as `docker-archive:/home/me/image.tar` and `dir:/srv`: they
would read those on the worker's own disk, with the engine's rights, for whoever asks.
"""

from __future__ import annotations

import re
from typing import Final

_SEGMENT: Final = r"[A-Za-z0-9][\w.-]*"
_NAME: Final = re.compile(
    rf"(?:{_SEGMENT}(?::[0-9]+)?/)?{_SEGMENT}(?:/{_SEGMENT})*(?::\w[\w.-]*)?(?:@\w+:[0-9a-f]+)?",
    re.ASCII,
)
_PLACES: Final = frozenset(
    {
        "containers-storage",
        "dir",
        "docker-archive",
        "docker-daemon",
        "oci",
        "oci-archive",
        "ostree",
        "sif",
        "tarball",
    }
)
"""Before a colon, these are no names to podman but places to read from."""


def is_image_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None and text.partition(":")[0] not in _PLACES
