"""A store that is gone with the process, for tests and trials."""

from __future__ import annotations

from mycel.core.federation.registration import ClusterRecord, HashedSecret


class MemoryStore:
    def __init__(self) -> None:
        self._records: dict[str, ClusterRecord] = {}
        self._shared: dict[str, HashedSecret] = {}

    def add(self, record: ClusterRecord) -> bool:
        return self._records.setdefault(record.name, record) is record

    def replace(self, record: ClusterRecord) -> bool:
        known = record.name in self._records
        if known:
            self._records[record.name] = record
        return known

    def remove(self, name: str) -> bool:
        return self._records.pop(name, None) is not None

    def get(self, name: str) -> ClusterRecord | None:
        return self._records.get(name)

    def all(self) -> list[ClusterRecord]:
        return [self._records[name] for name in sorted(self._records)]

    def put_shared(self, key: str, secret: HashedSecret) -> None:
        self._shared[key] = secret

    def shared(self, key: str) -> HashedSecret | None:
        return self._shared.get(key)

    def remove_shared(self, key: str) -> bool:
        return self._shared.pop(key, None) is not None

    def close(self) -> None:
        """There is nothing to close."""
