"""Token files: the API's bearer token, and what admits a node to its swarm."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from .errors import NativeMissing, SecretCorrupt, SecretExists, SecretMissing
from .secret_files import create_secret_file, read_secret_file

API_TOKEN_BYTES: Final = 32
ROLE_BITS: Final = {"gateway": 1, "scheduler": 2, "worker": 4, "cluster": 8}
"""How a token says what its bearer may be."""
_API_TOKEN: Final = "the API token"  # noqa: S105 – its name, not the token
_MEMBER_TOKEN: Final = "the member token"  # noqa: S105


def load_api_token(path: Path) -> str:
    content = read_secret_file(path, _API_TOKEN)
    try:
        token = content.decode("ascii").strip()
    except UnicodeDecodeError:
        token = ""
    if not token or any(character.isspace() for character in token):
        raise SecretCorrupt(f"{path} does not hold an API token: move it away to get a new one")
    return token


def load_or_create_api_token(path: Path) -> str:
    try:
        return load_api_token(path)
    except SecretMissing:
        pass
    random = os.urandom(API_TOKEN_BYTES)
    token = base64.urlsafe_b64encode(random).decode().rstrip("=")
    try:
        create_secret_file(path, token.encode() + b"\n")
    except SecretExists:
        return load_api_token(path)  # another process was faster
    return token


def is_same_token(presented: str, expected: str) -> bool:
    """In a time that does not tell how much of it was right."""
    import hmac  # brings OpenSSL along, which a command line does without

    return hmac.compare_digest(presented.encode(errors="surrogatepass"), expected.encode())


def issue_member_token(
    owner_secret: bytes, peer_id: str, expires_at: int, roles: Iterable[str]
) -> bytes:
    """Signed by the owner for one peer; `expires_at` is Unix time."""
    # Late: a command line that only reads a token must not pay for the extension.
    try:
        from mycel import _native
    except ImportError as error:
        raise NativeMissing(
            f"the native extension cannot be loaded ({error}): install Mycel from its wheel"
        ) from error
    mask = 0
    for role in roles:
        mask |= ROLE_BITS[role]
    return _native.issue_token(owner_secret, peer_id, expires_at, mask)


def store_member_token(path: Path, token: bytes) -> None:
    create_secret_file(path, base64.urlsafe_b64encode(token) + b"\n")


def load_member_token(path: Path) -> bytes:
    content = read_secret_file(path, _MEMBER_TOKEN).strip()
    try:
        token = base64.b64decode(content, altchars=b"-_", validate=True)
    except binascii.Error:
        token = b""
    if not token:
        raise SecretCorrupt(f"{path} does not hold a member token: join the swarm again")
    return token
