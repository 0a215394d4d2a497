"""The native extension; `mycel.swarm.libp2p` is its only user but for keys and tokens."""

from typing import final

from mycel.core.identifiers import PeerId

def identity(secret: bytes) -> tuple[bytes, PeerId]:
    """The public key and the peer id that belong to an Ed25519 secret of 32 bytes.

    Raises `InvalidKey`.
    """

def issue_token(owner_secret: bytes, peer_id: str, expires_at: int, roles: int) -> bytes:
    """A membership token: the owner's signature over peer id, expiry (seconds since 1970)
    and roles (a bit mask: gateway 1, scheduler 2, worker 4, cluster 8).

    Raises `InvalidKey`, `InvalidAddress`.
    """

def inspect_token(owner_public: bytes, peer_id: str, token: bytes) -> tuple[int, int]:
    """Expiry and roles of a token that the owner signed for this peer, expired or not.

    Raises `InvalidKey`, `InvalidAddress`, `InvalidToken`.
    """

@final
class Stream:
    """Satisfies `mycel.swarm.interface.Stream`."""

    @property
    def peer(self) -> PeerId: ...
    @property
    def protocol(self) -> str: ...
    @property
    def full(self) -> bool: ...
    def write(self, frame: bytes) -> None: ...
    def close(self) -> None: ...

@final
class Node:
    """A libp2p node. Commands return at once; `drain` tells what came of them."""

    def __new__(
        cls,
        *,
        secret: bytes,
        owner_public: bytes,
        token: bytes,
        protocols: list[tuple[str, int, bool, int, int]],
        liveness: tuple[float, float, float],
        settings: dict[str, int | float],
    ) -> Node: ...
    @property
    def peer(self) -> PeerId: ...
    @property
    def dropped_notices(self) -> int:
        """Gossip, round trips and refusals that were dropped because nobody drained."""

    def fileno(self) -> int: ...
    def drain(self) -> list[tuple[int, tuple[object, ...]]]: ...
    def acknowledge(self) -> None:
        """What was drained has been dealt with: streams that waited read on."""

    def listen(self, listen: int, address: str) -> None: ...
    def dial(self, address: str) -> None: ...
    def disconnect(self, peer: str) -> None: ...
    def open_stream(self, peer: str, protocol: str) -> None: ...
    def subscribe(self, topic: str) -> None: ...
    def publish(self, topic: str, data: bytes) -> None: ...
    def stop(self) -> None: ...
