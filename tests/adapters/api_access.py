"""A swarm's owner for the API's tests, and tokens that are real."""

from __future__ import annotations

import os

from mycel._native import identity
from mycel.access.tokens import Statement, inspect, issue, to_text
from mycel.api.authentication import Authenticator
from mycel.core.rights import ACTIONS

SWARM = "test"
OWNER = os.urandom(32)
OWNER_PUBLIC = identity(OWNER)[0]
REVOKED: set[bytes] = set()


def token_of(grant: Statement) -> str:
    return to_text(issue(OWNER, SWARM, grant))


TOKEN = token_of(Statement(user="owner", actions=ACTIONS))


def authenticator() -> Authenticator:
    return Authenticator(lambda token: inspect(OWNER_PUBLIC, token), SWARM, REVOKED)
