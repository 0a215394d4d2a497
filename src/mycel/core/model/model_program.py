"""What is to be loaded as a model, in a process of its own."""

from __future__ import annotations

from typing import Literal

import msgspec

Kind = Literal["chat", "completion", "embedding", "image", "custom"]
"""What a model takes and gives."""


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be loaded: either of the first two."""

    name: str
    kind: Kind = "chat"
    python: str = ""
    gguf: str = ""
    folder: str = ""
    """Put in front of the import path."""
    slots: int = 1
    batch: int = 1
    context: int = 4096
    threads: int = 0
    gpu_layers: int = -1
    memory: int = 0
    """What it is said to take."""
