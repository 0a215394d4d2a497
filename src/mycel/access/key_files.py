"""Ed25519 secrets of nodes and of a swarm's owner: 32 raw bytes, kept as a line of hex."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from .errors import SecretCorrupt, SecretExists, SecretMissing
from .secret_files import create_secret_file, read_secret_file

SECRET_BYTES: Final = 32


def create_key(path: Path) -> bytes:
    """A new secret, in a new file; refused if there is one."""
    secret = os.urandom(SECRET_BYTES)
    store_key(path, secret)
    return secret


def store_key(path: Path, secret: bytes) -> None:
    """Keeps a secret that came from elsewhere, in a new file."""
    assert len(secret) == SECRET_BYTES, "an Ed25519 secret has 32 bytes"
    create_secret_file(path, secret.hex().encode() + b"\n")


def load_key(path: Path, what: str = "the key") -> bytes:
    content = read_secret_file(path, what)
    try:
        secret = bytes.fromhex(content.decode("ascii").strip())
    except ValueError:  # which a character outside of ASCII is too
        raise SecretCorrupt(
            f"{path} does not hold {what} as hex: put a backup there, or move it away to get a "
            "new identity"
        ) from None
    if len(secret) != SECRET_BYTES:
        raise SecretCorrupt(
            f"{what} in {path} has {len(secret)} bytes instead of {SECRET_BYTES}: put a backup "
            "there, or move it away to get a new identity"
        )
    return secret


def load_or_create_key(path: Path, what: str = "the key") -> bytes:
    try:
        return load_key(path, what)
    except SecretMissing:
        pass
    try:
        return create_key(path)
    except SecretExists:
        return load_key(path, what)  # another process was faster


def store_public_key(path: Path, public: bytes) -> None:
    """The owner's public half. One home holds nodes of one owner: another one is refused."""
    try:
        create_secret_file(path, public.hex().encode() + b"\n")
    except SecretExists:
        if load_key(path, "the owner's public key") != public:
            raise SecretExists(
                f"{path} is another owner's: nodes of two swarms need two homes (--home). If "
                "none of this home has ever got into that swarm, delete that file"
            ) from None
