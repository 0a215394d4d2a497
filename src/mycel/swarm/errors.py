"""What the swarm raises, and who is at fault.

    SwarmError
    ├── InvalidAddress     the caller: no multiaddr, or no peer id
    ├── InvalidKey         the caller: no Ed25519 key of 32 bytes
    ├── InvalidToken       whoever gave the token: not signed by this owner for this peer
    ├── InvalidSetting     the caller: an unknown or impossible setting
    ├── FrameTooLong       the caller: a frame over its protocol's limit
    ├── NodeStopped        the caller: the node was stopped
    ├── Overloaded         nobody: too many commands at once, a retry helps
    └── ListenFailed       the machine: the address cannot be listened on
        └── AddressInUse   somebody listens there already

What a peer does raises nothing: it is told to the `SwarmListener`.
"""

from __future__ import annotations


class SwarmError(Exception):
    """The root of them all."""


class InvalidAddress(SwarmError): ...


class InvalidKey(SwarmError): ...


class InvalidToken(SwarmError):
    def __init__(self, message: str, code: str = "other") -> None:
        super().__init__(message)
        self.code = code
        """Why, as in refusals of the hello (docs/wire.md): `expired`, `delegation`, …"""


class InvalidSetting(SwarmError): ...


class FrameTooLong(SwarmError): ...


class NodeStopped(SwarmError): ...


class Overloaded(SwarmError): ...


class ListenFailed(SwarmError): ...


class AddressInUse(ListenFailed): ...
