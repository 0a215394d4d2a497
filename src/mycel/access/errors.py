"""What can be wrong with secrets and the home folder.

    AccessError
    ├── SecretError         a key or token file
    │   ├── SecretMissing       there is none
    │   ├── SecretExists        there is one already, and it is not overwritten
    │   ├── SecretUnreadable    this user may not read or write it
    │   ├── SecretExposed       others may read it
    │   └── SecretCorrupt       it does not hold what it should
    ├── TokenMistyped       what was given as a token is none
    ├── InviteMistyped      what was given as an invite is none, or is damaged
    ├── InviteUnusable      a good invite that cannot be redeemed here, or any more
    ├── NotFounder          only the swarm's founder has the key that this takes
    ├── HomeUnusable        the home folder cannot be created or used
    ├── HomeInUse           another process has the role's folder
    ├── StateCorrupt        a state file does not hold what it should
    └── NativeMissing       the native extension is not installed

All are for whoever runs the node to correct; starting again without that does not help.
"""

from __future__ import annotations


class AccessError(Exception):
    """The root of the tree."""


class SecretError(AccessError):
    """Something is wrong with a key or token file."""


class SecretMissing(SecretError):
    """There is no such file."""


class SecretExists(SecretError):
    """There is one already."""


class SecretUnreadable(SecretError):
    """This user may not read or write it."""


class SecretExposed(SecretError):
    """Others than its owner may read it."""


class SecretCorrupt(SecretError):
    """It does not hold what it should."""


class TokenMistyped(AccessError):
    """What was given as a token is none."""


class InviteMistyped(AccessError):
    """What was given as an invite is none, or is damaged."""


class InviteUnusable(AccessError):
    """A good invite that cannot be redeemed here, or any more."""


class NotFounder(AccessError):
    """Only the swarm's founder has the key that this takes."""


class HomeUnusable(AccessError):
    """The home folder cannot be created or used."""


class HomeInUse(AccessError):
    """Another process has the role's folder."""

    def __init__(self, folder: str, pid: int | None) -> None:
        who = "another process" if pid is None else f"another process (pid {pid})"
        super().__init__(f"home in use by {who}: stop it, or choose another home than {folder}")
        self.pid = pid


class StateCorrupt(AccessError):
    """A state file does not hold what it should."""


class NativeMissing(AccessError):
    """The native extension is not installed."""
