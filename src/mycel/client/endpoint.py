"""Which swarm a client talks to, and by what token.

What the caller says goes before the environment, and that before what is written down:

    api (with a token)  >  a context  >  a home folder
    MYCEL_API (with MYCEL_TOKEN)  >  MYCEL_CONTEXT  >  MYCEL_HOME
    the current context (`mycel login`, `mycel context use`)  >  ~/.mycel
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from . import contexts
from .connection import Address
from .contexts import HOME_CONTEXT, Context
from .errors import NothingToSubmitTo, NotLoggedIn, NotRunning

API_VARIABLE: Final = "MYCEL_API"
TOKEN_VARIABLE: Final = "MYCEL_TOKEN"  # noqa: S105 – its name
CONTEXT_VARIABLE: Final = "MYCEL_CONTEXT"
TRUST_VARIABLE: Final = "MYCEL_CA_FILE"


class Endpoint(msgspec.Struct, frozen=True):
    address: Address
    token: str


class Wanted(msgspec.Struct, frozen=True):
    """What the caller says of it; all may be left away."""

    api: str | None = None
    token: str | None = None
    context: str | None = None
    home: str | Path | None = None
    ca_file: str | Path | None = None


def find(wanted: Wanted, environment: Mapping[str, str]) -> Endpoint:
    trust = environment.get(TRUST_VARIABLE, "") if wanted.ca_file is None else str(wanted.ca_file)
    if wanted.api:
        token = wanted.token or environment.get(TOKEN_VARIABLE)
        return _of_api(wanted.api, token, trust, environment)
    if wanted.context:
        return _of_context(wanted.context, wanted.token, trust, environment)
    if wanted.home:
        return of_home(wanted.home, wanted.token, environment)
    token = wanted.token or environment.get(TOKEN_VARIABLE)
    if api := environment.get(API_VARIABLE):
        return _of_api(api, token, trust, environment)
    if context := environment.get(CONTEXT_VARIABLE):
        return _of_context(context, token, trust, environment)
    if not environment.get("MYCEL_HOME") and (current := contexts.read(environment).current):
        return _of_context(current, token, trust, environment)
    return of_home(None, token, environment)


def _of_api(api: str, token: str | None, trust: str, environment: Mapping[str, str]) -> Endpoint:
    address = Address.parse(api, trust)
    known = _logged_in(address.text, environment) if not token or not trust else None
    if known is not None:
        address = Address.parse(api, trust or known.ca_file)
        token = token or known.token
    if not token:
        raise NotLoggedIn(address.text)
    return Endpoint(address, token)


def _logged_in(api: str, environment: Mapping[str, str]) -> Context | None:
    """A token goes only where it was for: to the address that it was given with."""
    every = contexts.read(environment).contexts.values()
    return next((one for one in every if one.api == api), None)


def _of_context(
    name: str, token: str | None, trust: str, environment: Mapping[str, str]
) -> Endpoint:
    if name == HOME_CONTEXT:
        return of_home(None, token, environment)
    found = contexts.read(environment).named(name)
    return Endpoint(Address.parse(found.api, trust or found.ca_file), token or found.token)


def of_home(home: str | Path | None, token: str | None, environment: Mapping[str, str]) -> Endpoint:
    """Of the swarm that `mycel up` started with this home folder, with the home's token unless
    another is given."""
    from mycel.access.home import find_home, read_state
    from mycel.access.tokens import load_api_token

    place = find_home(home, environment)
    role = place.role("scheduler")
    state = read_state(role.state_path, _RoleState)
    if role.holder() is None or state is None or not state.api:
        joined = [one.name for one in place.roles() if one.joined_path.exists()]
        if joined:
            raise NothingToSubmitTo(str(place.path), joined)
        raise NotRunning(str(place.path))
    # Ours, if it is pinned: it is for the name that others call this machine by, and we do not.
    address = Address.parse(state.api, state.certificate, pinned=bool(state.certificate))
    return Endpoint(address, token or load_api_token(place.token_path))


class _RoleState(msgspec.Struct):
    api: str = ""
    certificate: str = ""
