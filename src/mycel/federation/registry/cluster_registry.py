"""Registers clusters and answers for them.

A graph is read and checked before anything is kept; its blob is kept before the record that
names it. So a registration is whole or not there, and a crash leaves at most a blob that nobody
names, which the next change removes.
"""

from __future__ import annotations

import fcntl
import gzip
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

import msgspec

from mycel.blobs.blob_store import BlobStore
from mycel.blobs.digests import Digest
from mycel.blobs.errors import BlobError
from mycel.core.federation.decision import ClusterTable
from mycel.core.federation.graph.cluster_graph import ClusterGraph, with_attachments
from mycel.core.federation.graph.summary import summarise
from mycel.core.federation.graph.vertex_kinds import Attachment, KindTable
from mycel.core.federation.reasons import Level, Reason
from mycel.core.federation.registration import (
    SUBSYSTEMS_MAX,
    ClusterRecord,
    HashedSecret,
    KeptBlob,
    NameTaken,
    NotRegistered,
    Registered,
    RegistrationError,
    changed_state,
    check_name,
)
from mycel.federation.auth_file import Auth
from mycel.federation.jgf import BYTES_MAX, read_graph, read_subsystem, unpacked

from .cluster_store import ClusterStore
from .secret_hashes import (
    REGISTRATION_PREFIX,
    SECRET_PREFIX,
    TOKEN_PREFIX,
    make,
    problem_with,
)
from .sqlite_store import SqliteStore

BLOBS_BYTES_MAX: Final = 16 << 30
FOLDER: Final = "clusters"
"""In a home."""
FILE_NAME: Final = "clusters.db"
BLOBS_NAME: Final = "cluster-graphs"
REGISTRATION: Final = "registration"
LOCK_NAME: Final = "clusters.lock"


class ClusterRegistry:
    def __init__(
        self,
        store: ClusterStore,
        open_blobs: Callable[[], BlobStore],
        clock: Callable[[], float],
        changing: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """`changing` keeps out other processes while something changes."""
        self._store = store
        self._open_blobs = open_blobs
        self._blobs = open_blobs()
        self._clock = clock
        self._changing = changing

    def register(
        self,
        name: str,
        graph: bytes,
        *,
        state: Mapping[str, Any] | None = None,
        group: str = "",
        token_seconds: float = 0.0,
        silent_after_seconds: float = 0.0,
    ) -> Registered:
        """Raises GraphError and RegistrationError, and then nothing has changed."""
        with self._changing():
            check_name(name)
            if group:
                check_name(group, "group")
            if self._store.get(name) is not None:
                raise _taken(name)
            summary = summarise(read_graph(unpacked(graph, name), name=name))
            known = changed_state({}, state or {})
            now = self._clock()
            secret, hashed_secret = make(SECRET_PREFIX)
            token, hashed = "", None
            if not group:
                token, hashed = make(TOKEN_PREFIX, _end(now, token_seconds))
            record = ClusterRecord(
                name=name,
                graph=self._keep(graph),
                summary=summary,
                state=known,
                registered_at=now,
                seen_at=now,
                silent_after_seconds=silent_after_seconds,
                token=hashed,
                group=group,
                secret=hashed_secret,
            )
            if not self._store.add(record):
                raise _taken(name)
            if group and self._store.shared(_group(group)) is None:
                token, hashed = make(TOKEN_PREFIX, _end(now, token_seconds))
                self._store.put_shared(_group(group), hashed)
            return Registered(record, token, secret)

    def records(self) -> list[ClusterRecord]:
        return self._store.all()

    def record(self, name: str) -> ClusterRecord:
        found = self._store.get(name)
        if found is None:
            raise NotRegistered(f"no cluster {name!r} is registered")
        return found

    def delete(self, name: str) -> None:
        with self._changing():
            record = self.record(name)
            self._store.remove(name)
            if record.group and not any(one.group == record.group for one in self._store.all()):
                self._store.remove_shared(_group(record.group))
            self._sweep()

    def set_state(self, name: str, change: Mapping[str, Any]) -> ClusterRecord:
        with self._changing():
            record = self.record(name)
            return self._change(record, state=changed_state(record.state, change))

    def replace_graph(self, name: str, graph: bytes) -> ClusterRecord:
        """Subsystems have to belong to the new one as they belonged to the old."""
        with self._changing():
            record = self.record(name)
            read = read_graph(unpacked(graph, name), name=name)
            for subsystem, kept in record.subsystems.items():
                read_subsystem(self._blob(kept), subsystem, read, name=subsystem)
            return self._change(record, graph=self._keep(graph), summary=summarise(read))

    def add_subsystem(self, name: str, subsystem: str, data: bytes) -> ClusterRecord:
        """Or replaces it."""
        with self._changing():
            record = self.record(name)
            check_name(subsystem, "subsystem")
            if len({*record.subsystems, subsystem}) > SUBSYSTEMS_MAX:
                raise RegistrationError(f"{name} has {SUBSYSTEMS_MAX} subsystems already")
            graph = read_graph(self._blob(record.graph), name=name)
            read_subsystem(unpacked(data, subsystem), subsystem, graph, name=subsystem)
            return self._change(
                record, subsystems={**record.subsystems, subsystem: self._keep(data)}
            )

    def remove_subsystem(self, name: str, subsystem: str) -> ClusterRecord:
        with self._changing():
            record = self.record(name)
            left = {key: kept for key, kept in record.subsystems.items() if key != subsystem}
            if len(left) == len(record.subsystems):
                raise RegistrationError(f"{name} has no subsystem {subsystem!r}")
            return self._change(record, subsystems=left)

    # Secrets

    def rotate_token(self, name: str, token_seconds: float = 0.0) -> str:
        """The old one is worth nothing from now on. In a group it is the group's."""
        with self._changing():
            record = self.record(name)
            token, hashed = make(TOKEN_PREFIX, _end(self._clock(), token_seconds))
            self._put_token(record, hashed)
            return token

    def rotate_secret(self, name: str) -> str:
        with self._changing():
            record = self.record(name)
            secret, hashed = make(SECRET_PREFIX)
            self._change(record, secret=hashed)
            return secret

    def revoke_token(self, name: str) -> None:
        """Nobody has a good one until it is rotated."""
        with self._changing():
            _, hashed = make(TOKEN_PREFIX)
            self._put_token(self.record(name), hashed)

    def invite(self, seconds: float = 0.0) -> str:
        """A secret by which clusters may register, as many as like. It replaces the one before."""
        with self._changing():
            text, hashed = make(REGISTRATION_PREFIX, _end(self._clock(), seconds))
            self._store.put_shared(REGISTRATION, hashed)
            return text

    def revoke_invitation(self) -> None:
        with self._changing():
            self._store.remove_shared(REGISTRATION)

    def problem_with_registration(self, secret: str) -> str:
        """Empty if who shows it may register a cluster."""
        kept = self._store.shared(REGISTRATION)
        return problem_with(secret, kept, self._clock(), "registration secret")

    def problem_with_token(self, name: str, token: str) -> str:
        """Empty if a user who shows it may use the cluster."""
        record = self._store.get(name)
        if record is None:
            return "no cluster of this name is registered"
        kept = self._store.shared(_group(record.group)) if record.group else record.token
        problem = problem_with(token, kept, self._clock())
        if not problem and record.is_silent(self._clock()):
            return "it has not been heard of for too long"
        return problem

    def problem_with_secret(self, name: str, secret: str) -> str:
        """Empty if an agent that shows it is the cluster's."""
        record = self._store.get(name)
        kept = None if record is None else record.secret
        return problem_with(secret, kept, self._clock(), "secret")

    # Choosing

    def table(self, auth: Auth | None = None) -> tuple[ClusterTable, dict[str, Reason | None]]:
        """The clusters that are open, and for `ClusterTable.match` what is wrong with the others.
        Only graphs of clusters that are open are read. Without `auth` all that are not silent
        are open: for whoever owns the registry."""
        now = self._clock()
        if auth is None:
            verified: dict[str, Reason | None] = {
                one.name: Reason(Level.TOKEN, "it has not been heard of for too long")
                if one.is_silent(now)
                else None
                for one in self._store.all()
            }
        else:
            verified = auth.verified(self.problem_with_token)
        clusters, kinds = ClusterTable(), KindTable()
        for name, reason in verified.items():
            if reason is None:
                record = self.record(name)
                clusters.put(name, self.graph_of(record, kinds), record.state)
        return clusters, verified

    def graph_of(self, record: ClusterRecord, kinds: KindTable | None = None) -> ClusterGraph:
        """With its subsystems attached."""
        graph = read_graph(self._blob(record.graph), name=record.name, table=kinds)
        merged: dict[int, list[Attachment]] = {}
        for subsystem, kept in record.subsystems.items():
            found = read_subsystem(self._blob(kept), subsystem, graph, name=subsystem)
            for vertex, attachments in found.items():
                merged.setdefault(vertex, []).extend(attachments)
        return with_attachments(graph, merged) if merged else graph

    def close(self) -> None:
        self._store.close()

    def _put_token(self, record: ClusterRecord, token: HashedSecret) -> None:
        if record.group:
            self._store.put_shared(_group(record.group), token)
        else:
            self._change(record, token=token)

    def _change(self, record: ClusterRecord, **changes: Any) -> ClusterRecord:
        new = msgspec.structs.replace(record, seen_at=self._clock(), **changes)
        if not self._store.replace(new):
            raise NotRegistered(f"{record.name} was deleted meanwhile")
        if new.graph != record.graph or new.subsystems != record.subsystems:
            self._sweep()
        return new

    def _keep(self, data: bytes) -> KeptBlob:
        packed = data if data[:2] == b"\x1f\x8b" else gzip.compress(data, mtime=0)
        try:
            return KeptBlob(self._blobs.put(packed), len(packed))
        except (BlobError, OSError) as error:
            raise RegistrationError(f"the graph cannot be kept: {error}") from None

    def _blob(self, kept: KeptBlob) -> bytes:
        digest = Digest(kept.digest)
        if digest not in self._blobs:
            self._blobs = self._open_blobs()  # another process has put it there since
        try:
            with self._blobs.reading(digest) as file:
                return unpacked(file.read(), kept.digest)
        except (BlobError, OSError) as error:
            raise RegistrationError(f"the graph {kept.digest} is lost: {error}") from None

    def _sweep(self) -> None:
        """Removes blobs that no record names."""
        named = {
            kept.digest
            for record in self._store.all()
            for kept in (record.graph, *record.subsystems.values())
        }
        for digest in self._blobs.digests():
            if digest not in named:
                self._blobs.remove(digest)


def open_registry(folder: Path, clock: Callable[[], float]) -> ClusterRegistry:
    """The one of a home."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def blobs() -> BlobStore:
        return BlobStore(folder / BLOBS_NAME, BLOBS_BYTES_MAX, BYTES_MAX, evicts=False)

    store = SqliteStore(folder / FILE_NAME)
    return ClusterRegistry(store, blobs, clock, lambda: _locked(folder / LOCK_NAME))


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _taken(name: str) -> NameTaken:
    return NameTaken(f"a cluster {name!r} is registered already; delete it, or choose a name")


def _group(name: str) -> str:
    return f"group:{name}"


def _end(now: float, seconds: float) -> float:
    return now + seconds if seconds else 0.0
