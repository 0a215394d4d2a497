"""The native extension; `mycel.swarm.libp2p` is its only user but for keys, tokens and the
program that starts tasks."""

from typing import final

from mycel.core.identifiers import PeerId

def identity(secret: bytes) -> tuple[bytes, PeerId]:
    """The public key and the peer id that belong to an Ed25519 secret of 32 bytes.

    Raises `InvalidKey`.
    """

def public_key_of(peer: str) -> bytes:
    """The Ed25519 public key that a peer id holds. Raises `InvalidAddress`, `InvalidKey`."""

def launcher() -> bytes:
    """The program that stands between the spawn helper and a task (`native/python/launch`); empty
    where there is none. `mycel.drivers.sandbox.launch` writes what it is told."""

Terms = tuple[bytes, list[tuple[bytes, int]], dict[int, int]]
"""Of an invite: its serial, (public key, place) of each gateway, how many may join at each."""

Statement = dict[str, str | int | list[str] | dict[str, int] | Terms | None]
"""What a block of a token says: user, roles, actions, priority_max, caps (in thousandths),
cluster, expires_at, peer (made a member), invite. What is absent or None is not said."""

Described = tuple[
    str,
    str | None,
    int,
    list[str],
    int | None,
    dict[str, int],
    str | None,
    int | None,
    list[bytes],
    bytes,
    bool,
    tuple[bytes, int, bytes | None] | None,
]
"""swarm, user, roles (a bit mask), actions, priority_max, caps, cluster, expires_at,
revocation ids (one a block), signer's public key, whether it is bound to a peer; of the invite that
it stems from the serial, how many may join, and the key of the gateway that admitted."""

# All of these raise `InvalidToken` for a token that is not good, or cannot be made.

def issue_token(owner_secret: bytes, swarm: str, grant: Statement) -> bytes:
    """A token of the owner's, unbound."""

def delegate_token(owner_secret: bytes, swarm: str, key: bytes, grant: Statement) -> bytes:
    """Good for nothing but for the holder of `key` to give on what it grants, or less."""

def issue_delegated_token(
    secret: bytes, owner_public: bytes, delegation: bytes, grant: Statement
) -> bytes:
    """What a delegate gives on, unbound."""

def narrow_token(owner_public: bytes, token: bytes, limits: Statement) -> bytes: ...
def bind_token(owner_public: bytes, token: bytes, peer_id: str) -> bytes: ...
def inspect_token(owner_public: bytes, peer_id: str, token: bytes) -> Described:
    """What a token says that holds for this peer; an empty peer asks nothing. Expiry and
    revocation are the caller's question."""

def invite_terms(owner_public: bytes, token: bytes) -> Terms | None:
    """Of an invite, or of a delegation that lets its key invite; None of any other token."""

def sign_revocation(
    owner_secret: bytes, swarm: str, id: bytes, expires_at: int | None
) -> bytes: ...
def read_revocation(
    owner_public: bytes, swarm: str, record: bytes
) -> tuple[bytes, int | None] | None:
    """The id and the token's end, of a record that the owner signed."""

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
    def write_file(self, descriptor: int, offset: int, length: int, frame_bytes: int) -> int:
        """Queues a part of a file as frames, until all of it is queued or the stream is full;
        how much of it that was. It reads the disk: not for the loop's thread. Raises `OSError`."""

    def close(self) -> None: ...

@final
class Slice:
    """A long frame, where it arrived: a read-only buffer."""

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

def begin_write_back(descriptor: int, offset: int, length: int) -> None:
    """Lets the disk begin with what was written there; a sync takes less time afterwards."""

@final
class Node:
    """A libp2p node. Commands return at once; `drain` tells what came of them."""

    def __new__(
        cls,
        *,
        secret: bytes,
        swarm_name: str,
        owner_public: bytes,
        token: bytes,
        protocols: list[tuple[str, int, bool, int, int, bool, bool]],
        liveness: tuple[float, float, float],
        settings: dict[str, int | float | str],
    ) -> Node: ...
    @property
    def peer(self) -> PeerId: ...
    def fileno(self) -> int: ...
    def drain(self) -> list[tuple[int, tuple[object, ...]]]: ...
    def acknowledge(self) -> None:
        """What was drained has been dealt with: streams that waited read on."""

    def listen(self, listen: int, address: str) -> None: ...
    def dial(self, address: str) -> None: ...
    def dial_peer(self, peer: str, addresses: list[str]) -> None: ...
    def disconnect(self, peer: str) -> None: ...
    def accuse(self, peer: str) -> None: ...
    def reserve(self, gateway: str) -> None: ...
    def keep(self, peer: str, kept: bool) -> None: ...
    def open_stream(self, peer: str, protocol: str) -> None: ...
    def subscribe(self, topic: str) -> None: ...
    def publish(self, topic: str, data: bytes) -> None: ...
    def provide(self, key: bytes) -> None: ...
    def stop_providing(self, key: bytes) -> None: ...
    def find_providers(self, query: int, key: bytes) -> None: ...
    def put_record(self, payload: bytes, sequence: int, expires_at: float) -> None: ...
    def withdraw_record(self) -> None: ...
    def get_record(self, query: int, peer: str) -> None: ...
    def peers(
        self,
    ) -> list[tuple[PeerId, int, list[str], bool, float | None, float, float, str]]:
        """Peer, roles, addresses, relayed, round trip, connected at, heard at, software."""

    def figures(self) -> dict[str, int | dict[str, int]]: ...
    def revoke(self, records: list[bytes]) -> list[bool]: ...
    def stop(self) -> None: ...
