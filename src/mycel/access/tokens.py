"""Tokens: how they are made, narrowed and read, as text and in files.

One kind for everything, biscuits; `native/node/src/membership.rs` says what is in them. A
token travels as text: `mycel_` and base64.
"""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import msgspec

from mycel.core.rights import Rights
from mycel.swarm.token_rights import rights_of

from .errors import NativeMissing, SecretCorrupt, SecretMissing, TokenMistyped
from .secret_files import create_secret_file, read_secret_file, replace_secret_file

PREFIX: Final = "mycel_"
TOKEN_BYTES_MAX: Final = 8192
_API_TOKEN: Final = "the API token"  # noqa: S105 – its name, not the token
_MEMBER_TOKEN: Final = "the member token"  # noqa: S105


class Terms(msgspec.Struct, frozen=True):
    """What a block says of an invite; `native/node/src/invite.rs` has the rules."""

    serial: bytes
    gateways: tuple[tuple[bytes, int], ...]
    """Who may admit: the public key of each gateway, and its place. Gateways that share a home
    folder have one place, and keep one count."""
    joins: dict[int, int]
    """How many may join at each place."""

    @property
    def total(self) -> int:
        return sum(self.joins.values())


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """What one block of a token grants, or leaves of what was granted. None says nothing."""

    user: str | None = None
    roles: tuple[str, ...] | None = None
    actions: tuple[str, ...] | None = None
    priority_max: int | None = None
    caps: dict[str, float] = {}
    cluster: str | None = None
    expires_at: float | None = None
    """Unix time; whole seconds count."""
    peer: str | None = None
    """Whom the owner makes a member by it; it is bound to that peer."""
    invite: Terms | None = None

    def spelled(self) -> dict[str, Any]:
        """As the native extension takes it: caps in thousandths."""
        caps = {name: round(most * 1000) for name, most in self.caps.items()}
        expires_at = None if self.expires_at is None else int(self.expires_at)
        changed: dict[str, Any] = {"caps": caps, "expires_at": expires_at}
        if self.invite is not None:
            changed["invite"] = msgspec.structs.astuple(self.invite)
        return msgspec.structs.asdict(self) | changed


def native() -> ModuleType:
    """Late: a command line that only reads a token must not pay for the extension."""
    try:
        from mycel import _native
    except ImportError as error:
        raise NativeMissing(
            f"the native extension cannot be loaded ({error}): install Mycel from its wheel"
        ) from error
    return _native


def issue(owner_secret: bytes, swarm: str, grant: Statement) -> bytes:
    """A token of the owner's, not bound to anybody."""
    made: bytes = native().issue_token(owner_secret, swarm, grant.spelled())
    return made


def delegate(owner_secret: bytes, swarm: str, key: bytes, grant: Statement) -> bytes:
    """Lets the holder of `key` give on what it grants, or less, and is good for nothing else."""
    made: bytes = native().delegate_token(owner_secret, swarm, key, grant.spelled())
    return made


def issue_delegated(
    secret: bytes, owner_public: bytes, delegation: bytes, grant: Statement
) -> bytes:
    made: bytes = native().issue_delegated_token(secret, owner_public, delegation, grant.spelled())
    return made


def narrow(owner_public: bytes, token: bytes, limits: Statement) -> bytes:
    made: bytes = native().narrow_token(owner_public, token, limits.spelled())
    return made


def bind(owner_public: bytes, token: bytes, peer: str) -> bytes:
    """Good for this peer alone."""
    made: bytes = native().bind_token(owner_public, token, peer)
    return made


def terms_of(owner_public: bytes, token: bytes) -> Terms | None:
    """Of an invite, or of a delegation that lets its key invite."""
    found = native().invite_terms(owner_public, token)
    if found is None:
        return None
    serial, gateways, joins = found
    return Terms(serial, tuple(gateways), joins)


def inspect(owner_public: bytes, token: bytes, peer: str = "") -> Rights:
    """What a token says if it holds for this peer; without one, for whomever it is bound to.
    Its end and its revocation are the caller's question.

    Raises `swarm.errors.InvalidToken`.
    """
    return rights_of(native().inspect_token(owner_public, peer, token))


# As text


def to_text(token: bytes) -> str:
    return PREFIX + base64.urlsafe_b64encode(token).decode().rstrip("=")


def from_text(text: str) -> bytes:
    """Raises `TokenMistyped`; the message never holds the token."""
    text = text.strip()
    if not text.startswith(PREFIX) or len(text) > 2 * TOKEN_BYTES_MAX:
        raise TokenMistyped(f"this is no token: tokens begin with {PREFIX!r}")
    token = decode_base64(text[len(PREFIX) :])
    if not token:
        raise TokenMistyped("this token is damaged: copy the whole of it")
    return token


def decode_base64(text: str) -> bytes:
    """Nothing if it is not well-formed."""
    try:
        return base64.b64decode(
            text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True
        )
    except (binascii.Error, UnicodeEncodeError):
        return b""


# In files


def load_api_token(path: Path) -> str:
    try:
        text = read_secret_file(path, _API_TOKEN).decode("ascii", errors="replace").strip()
    except SecretMissing as error:
        raise SecretMissing(
            f"{error}; whoever founded the swarm makes one ('mycel user add NAME'): put it there"
        ) from None
    try:
        from_text(text)
    except TokenMistyped as error:
        raise SecretCorrupt(f"{path}: {error}; move it away to get a new one") from None
    return text


def store_api_token(path: Path, token: bytes) -> None:
    create_secret_file(path, to_text(token).encode() + b"\n")


def store_member_token(path: Path, token: bytes) -> None:
    """In place of an earlier one: a node that joins again brings a fresh token."""
    replace_secret_file(path, to_text(token).encode() + b"\n")


def load_member_token(path: Path) -> bytes:
    try:
        text = read_secret_file(path, _MEMBER_TOKEN).decode("ascii", errors="replace")
    except SecretMissing as error:
        raise SecretMissing(f"{error}; join the swarm with --join INVITE") from None
    try:
        return from_text(text)
    except TokenMistyped:
        raise SecretCorrupt(
            f"{path} does not hold a member token: join the swarm again with --join"
        ) from None
