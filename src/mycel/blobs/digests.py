"""Digests as they are written: `blake3:` and 64 hexadecimal digits, over the exact bytes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import BinaryIO, Final, NewType

from blake3 import blake3

from .errors import BadDigest

Digest = NewType("Digest", str)
PREFIX: Final = "blake3:"
CHUNK_BYTES: Final = 1 << 20
_SHAPE: Final = re.compile(r"blake3:[0-9a-f]{64}")


def parse(text: str) -> Digest:
    if _SHAPE.fullmatch(text) is None:
        raise BadDigest(f"{text[:80]!r} is no digest: expected 'blake3:' and 64 hexadecimal digits")
    return Digest(text)


def of_bytes(data: bytes) -> Digest:
    return Digest(PREFIX + blake3(data).hexdigest())


def of_open(file: BinaryIO) -> Digest:
    """From where it stands to its end."""
    found = blake3()
    while chunk := file.read(CHUNK_BYTES):
        found.update(chunk)
    return Digest(PREFIX + found.hexdigest())


def of_file(path: Path) -> Digest:
    return Digest(PREFIX + blake3(max_threads=blake3.AUTO).update_mmap(path).hexdigest())


def hexadecimal(digest: Digest) -> str:
    return digest.removeprefix(PREFIX)
