"""Revoking, from the owner's side: sign, keep in the home, tell the swarm if it runs."""

from __future__ import annotations

import time
from typing import Final

import msgspec

from mycel.access.founder import Founder
from mycel.access.home import Home
from mycel.access.secret_files import replace_secret_file
from mycel.access.tokens import Statement, issue, native, to_text
from mycel.client import Client
from mycel.client.errors import ClientError, NotRunning
from mycel.console.errors import CommandError
from mycel.core.model.work import DEFAULT_USER
from mycel.core.rights import ADMIN
from mycel.membership.revocations import read_records

KEPT_MAX: Final = 65_536
ERRAND_SECONDS: Final = 300.0


def revoke(home: Home, founder: Founder, revoked: list[tuple[bytes, float | None]]) -> int | None:
    """Ids with their tokens' ends. How many schedulers took in; None if none runs here: then
    the home's nodes learn of it when they start, and tell the others."""
    records = [
        native().sign_revocation(
            founder.secret, founder.swarm, one, None if ends is None else int(ends)
        )
        for one, ends in revoked
    ]
    with home.changing():
        known = read_records(home.revocations_path)
        kept = list(dict.fromkeys([*known, *records]))[-KEPT_MAX:]
        replace_secret_file(home.revocations_path, msgspec.msgpack.encode(kept))
    try:
        with Client.from_home(home.path, _errand(founder)) as client:
            return client.revoke(records)
    except NotRunning:
        return None
    except ClientError as error:
        raise CommandError(
            f"the scheduler has not taken it in ({error}): it is kept in {home.path}; do it again, "
            "or restart the scheduler, which will find it there"
        ) from None


def _errand(founder: Founder) -> str:
    """By the owner's key, since the home's own token may be what is revoked, or narrowed."""
    grant = Statement(user=DEFAULT_USER, actions=(ADMIN,), expires_at=time.time() + ERRAND_SECONDS)
    return to_text(issue(founder.secret, founder.swarm, grant))
