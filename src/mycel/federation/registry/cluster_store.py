"""Where records of clusters are kept. One suite, `tests/federation/test_registry.py`, holds every
store to what is said here."""

from __future__ import annotations

from typing import Protocol

from mycel.core.federation.registration import ClusterRecord, HashedSecret


class ClusterStore(Protocol):
    """Each call is durable, and all or nothing, when it returns."""

    def add(self, record: ClusterRecord) -> bool:
        """False if there is one of this name: then nothing has changed."""

    def replace(self, record: ClusterRecord) -> bool:
        """False if there is none of this name: then nothing has changed."""

    def remove(self, name: str) -> bool: ...

    def get(self, name: str) -> ClusterRecord | None: ...

    def all(self) -> list[ClusterRecord]:
        """By name."""

    def put_shared(self, key: str, secret: HashedSecret) -> None:
        """Of a secret that is no one cluster's: a group's token, or what they register by."""

    def shared(self, key: str) -> HashedSecret | None: ...

    def remove_shared(self, key: str) -> bool: ...

    def close(self) -> None: ...
