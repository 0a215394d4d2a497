"""Whose model a name means.

A model's *full* name says who serves it, and is what tasks and workers are matched by:

    llama-2-7b, org/model     the swarm owner's: of a worker's own configuration, or of the
                              owner's jobs
    alice//llama-2-7b         kept up by a job of the user alice

No name that anybody gives has two slashes in a row, so that no two models have one full name.
People write one slash, `alice/llama-2-7b`. Since `org/model` is also what the owner's models may
be called, the part before the first slash means a user only where that is settled (`is_users`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .work import DEFAULT_USER

BOUNDARY: Final = "//"
NAME_LENGTH_MAX: Final = 256


def full_name(user: str, name: str) -> str:
    """Of a model that this user serves under this name."""
    return name if user == DEFAULT_USER else f"{user}{BOUNDARY}{name}"


def shown(full: str) -> str:
    """For people."""
    return full.replace(BOUNDARY, "/")


def split(full: str) -> tuple[str, str]:
    """The user and the name; the owner's have no user in them."""
    user, boundary, name = full.rpartition(BOUNDARY)
    return (user, name) if boundary else (DEFAULT_USER, full)


def root_of(user: str) -> str:
    """Anybody can make parts of itself (`alice/ci`), and nobody of another."""
    return user.partition("/")[0]


def objection(name: str) -> str | None:
    """Why no model can be called that; None if one can."""
    if not name or len(name) > NAME_LENGTH_MAX:
        return f"a model's name has 1 to {NAME_LENGTH_MAX} characters"
    if not name.isprintable():
        return "a model's name has printable characters only"
    if any(part in ("", ".", "..") for part in name.split("/")):
        return "a model's name has no empty parts, '.' or '..' between slashes"
    return None


def objection_to_serving(name: str, user: str) -> str | None:
    """Why this user can serve no model under that name; None if it can. Only the owner's have
    slashes in their names: in others' the last slash ends the user."""
    if user == DEFAULT_USER:
        if name.startswith(f"{DEFAULT_USER}/"):
            return f"leave {DEFAULT_USER}/ away: it is the owner's without it"
    elif "/" in name:
        return "only the owner's models have a slash in their names; yours gets your own before it"
    return objection(name)


def resolve(
    asked: str,
    user: str,
    exists: Callable[[str], bool],
    is_users: Callable[[str, str], bool],
) -> str:
    """The full name that `user` means: its own model, else the owner's; another's only where
    that is what was written. `is_users(prefix, asked)` says whether a prefix is a user's."""
    prefix, slash, rest = asked.partition("/")
    if slash and prefix == DEFAULT_USER:
        return rest
    if slash and (prefix == root_of(user) or is_users(prefix, asked)):
        return BOUNDARY.join(asked.rsplit("/", 1))
    if not slash:
        while user and user != DEFAULT_USER:
            own = full_name(user, asked)
            if exists(own):
                return own
            user = user.rpartition("/")[0]
    return asked
