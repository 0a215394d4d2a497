"""Revoking, from the owner's side: sign, keep in the home, tell the swarm if it runs."""

from __future__ import annotations

from typing import Final

import msgspec

from mycel.access.founding import Founder
from mycel.access.home import Home
from mycel.access.secret_files import replace_secret_file
from mycel.access.tokens import native
from mycel.client import Client
from mycel.client.errors import ClientError

KEPT_MAX: Final = 65_536


def revoke(home: Home, founder: Founder, revoked: list[tuple[bytes, float | None]]) -> int | None:
    """Ids with their tokens' ends. How many schedulers took in; None if none runs here: then
    the home's nodes learn of it when they start, and tell the others."""
    records = [
        native().sign_revocation(
            founder.secret, founder.swarm, one, None if ends is None else int(ends)
        )
        for one, ends in revoked
    ]
    path = home.revocations_path
    try:
        known = msgspec.msgpack.decode(path.read_bytes(), type=list[bytes])
    except (OSError, msgspec.DecodeError):
        known = []
    kept = list(dict.fromkeys([*known, *records]))[-KEPT_MAX:]
    replace_secret_file(path, msgspec.msgpack.encode(kept))
    try:
        with Client.from_home(home.path) as client:
            return client.revoke(records)
    except ClientError:
        return None
