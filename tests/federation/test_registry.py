"""Clusters register, change, and are used by whoever has their token."""

from __future__ import annotations

import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from mycel.blobs.blob_store import BlobStore
from mycel.core.federation.errors import FederationError, GraphError
from mycel.core.federation.graph.summary import Summary
from mycel.core.federation.reasons import Level
from mycel.core.federation.registration import (
    ClusterRecord,
    HashedSecret,
    KeptBlob,
    RegistrationError,
)
from mycel.federation.auth_file import read_auth
from mycel.federation.registry.cluster_registry import (
    BLOBS_NAME,
    FILE_NAME,
    ClusterRegistry,
    open_registry,
)
from mycel.federation.registry.cluster_store import ClusterStore
from mycel.federation.registry.memory_store import MemoryStore
from mycel.federation.registry.sqlite_store import SqliteStore, StoreUnusable
from mycel.federation.specs.spec_reader import read_spec

from .test_backends import CLUSTER, SOFTWARE
from .test_graphs import graph, node

JOB = read_spec("nodes: 2\ntask: {requirements: {cpu_cores: 1}}")


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ClusterStore]:
    made = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "clusters.db")
    yield made
    made.close()


def record(name: str, **more: object) -> ClusterRecord:
    given = ClusterRecord(
        name=name,
        graph=KeptBlob("blake3:" + "0" * 64, 7),
        summary=Summary({"node": 3}, {"node": 2}),
        registered_at=1.5,
        seen_at=2.5,
        secret=HashedSecret("ab", 9.5),
    )
    return msgspec.structs.replace(given, **more)


# What every store promises


def test_a_store_keeps_what_it_is_given(store: ClusterStore) -> None:
    full = record(
        "b",
        state={"a": 1, "b": 0.5, "c": "x", "d": True},
        subsystems={"io": KeptBlob("blake3:" + "1" * 64, 8)},
        token=HashedSecret("cd"),
        group="lab",
    )
    assert store.add(full)
    assert store.add(record("a"))
    assert store.get("b") == full
    assert [one.name for one in store.all()] == ["a", "b"]
    assert not store.add(record("b", group="other")), "the name is taken"
    assert store.get("b") == full
    assert store.replace(record("b"))
    assert store.get("b") == record("b")
    assert not store.replace(record("c"))
    assert store.get("c") is None
    assert store.remove("b")
    assert not store.remove("b")
    store.put_shared("lab", HashedSecret("1"))
    store.put_shared("lab", HashedSecret("2", 5.0))
    assert store.shared("lab") == HashedSecret("2", 5.0)
    assert store.remove_shared("lab")
    assert store.shared("lab") is None


def test_names_are_values_and_no_sql(store: ClusterStore) -> None:
    for name in ("'; DROP TABLE clusters; --", "50%", '"', "ä\n"):
        assert store.add(record(name))
        assert store.get(name) == record(name)
        assert store.remove(name)


def test_all_of_it_survives_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "clusters.db"
    first = SqliteStore(path)
    first.add(record("a"))
    first.put_shared("lab", HashedSecret("1"))
    first.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = SqliteStore(path)
    assert again.get("a") == record("a")
    assert again.shared("lab") == HashedSecret("1")
    again.close()


def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "clusters.db"
    path.write_bytes(b"something else entirely" * 100)
    with pytest.raises(StoreUnusable, match=r"clusters\.db"):
        SqliteStore(path)


# The registry


@pytest.fixture
def registry(store: ClusterStore, tmp_path: Path, clock: Clock) -> ClusterRegistry:
    return ClusterRegistry(
        store, lambda: BlobStore(tmp_path / "blobs", 1 << 30, evicts=False), clock
    )


def blobs(folder: Path) -> int:
    return sum(path.is_file() for path in (folder / "blobs" / "objects").rglob("*"))


def test_a_cluster_registers_and_is_matched_by_those_with_its_token(
    registry: ClusterRegistry, tmp_path: Path, clock: Clock
) -> None:
    made = registry.register("alpha", CLUSTER, state={"region": "eu"}, token_seconds=60)
    assert made.record.summary.totals == {"cluster": 1, "core": 4, "node": 2}
    assert made.token != made.secret
    assert registry.problem_with_token("alpha", made.token) == ""
    assert registry.problem_with_secret("alpha", made.secret) == ""
    assert "not valid" in registry.problem_with_token("alpha", made.secret)
    assert "not valid" in registry.problem_with_secret("alpha", made.token)
    assert registry.problem_with_secret("beta", made.secret)
    auth = tmp_path / "auth.toml"
    auth.write_text(
        f'[clusters.alpha]\ntoken = "{made.token}"\n[clusters.beta]\ntoken = "x"\n',
        encoding="utf-8",
    )
    auth.chmod(0o600)
    clusters, verified = registry.table(read_auth(auth))
    assert verified["alpha"] is None
    assert verified["beta"] is not None
    assert [one.name for one in clusters.match(JOB, verified).fitting] == ["alpha"]
    clock.now += 60
    clusters, verified = registry.table(read_auth(auth))
    assert verified["alpha"] is not None
    assert verified["alpha"].level is Level.TOKEN
    assert "expired" in verified["alpha"].text
    assert not clusters.clusters


def test_secrets_are_kept_as_hashes_and_shown_nowhere(tmp_path: Path, clock: Clock) -> None:
    registry = open_registry(tmp_path, clock)
    made = registry.register("alpha", CLUSTER, group="lab")
    registry.close()
    assert made.token not in repr(made)
    assert made.secret not in repr(made)
    for path in tmp_path.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert made.token.encode() not in data
            assert made.secret.encode() not in data


def test_clusters_of_a_group_share_one_token(registry: ClusterRegistry) -> None:
    first = registry.register("alpha", CLUSTER, group="lab")
    second = registry.register("beta", CLUSTER, group="lab")
    assert first.token
    assert not second.token, "there is one already"
    assert first.secret != second.secret, "each has a secret of its own"
    assert registry.problem_with_token("beta", first.token) == ""
    new = registry.rotate_token("beta")
    for name in ("alpha", "beta"):
        assert registry.problem_with_token(name, first.token)
        assert registry.problem_with_token(name, new) == ""
    registry.delete("alpha")
    assert registry.problem_with_token("beta", new) == ""
    registry.delete("beta")
    again = registry.register("alpha", CLUSTER, group="lab")
    assert again.token, "the group had ended with its last cluster"


def test_what_is_rotated_or_revoked_is_worth_nothing(registry: ClusterRegistry) -> None:
    made = registry.register("alpha", CLUSTER)
    token, secret = registry.rotate_token("alpha"), registry.rotate_secret("alpha")
    assert registry.problem_with_token("alpha", made.token)
    assert registry.problem_with_secret("alpha", made.secret)
    assert registry.problem_with_secret("alpha", secret) == ""
    registry.revoke_token("alpha")
    assert registry.problem_with_token("alpha", token)


def test_subsystems_are_added_replaced_and_removed(
    registry: ClusterRegistry, tmp_path: Path
) -> None:
    wants = read_spec(
        "version: 1\nresources: {a: {type: node, "
        "requires: [{name: software, field: version, min: '4.1'}]}}\ntask: {command: [a]}"
    )

    def fits() -> bool:
        clusters, verified = registry.table()
        return bool(clusters.match(wants, verified).fitting)

    registry.register("alpha", CLUSTER)
    assert not fits()
    registry.add_subsystem("alpha", "software", SOFTWARE)
    assert fits()
    assert blobs(tmp_path) == 2
    old = SOFTWARE.replace(b"4.1.2", b"3.0.0")
    registry.add_subsystem("alpha", "software", old)
    assert not fits()
    assert blobs(tmp_path) == 2, "the old one is gone"
    registry.remove_subsystem("alpha", "software")
    assert blobs(tmp_path) == 1
    with pytest.raises(RegistrationError, match="software"):
        registry.remove_subsystem("alpha", "software")


def test_a_graph_is_replaced_if_its_subsystems_still_belong_to_it(
    registry: ClusterRegistry,
) -> None:
    registry.register("alpha", CLUSTER)
    registry.add_subsystem("alpha", "software", SOFTWARE)
    before = registry.record("alpha")
    other = graph(node("x", "cluster"), node("y"), edges=[("x", "y")])
    with pytest.raises(GraphError, match="software"):
        registry.replace_graph("alpha", other)
    assert registry.record("alpha") == before
    registry.remove_subsystem("alpha", "software")
    assert registry.replace_graph("alpha", other).summary.nodes == 1


def test_graphs_are_blobs_and_records_have_only_digests(
    registry: ClusterRegistry, tmp_path: Path
) -> None:
    first = registry.register("alpha", CLUSTER).record
    second = registry.register("beta", CLUSTER).record
    assert first.graph == second.graph
    assert blobs(tmp_path) == 1, "the same graph is there once"
    assert len(msgspec.json.encode(first)) < 2_000
    registry.delete("alpha")
    assert blobs(tmp_path) == 1
    registry.delete("beta")
    assert blobs(tmp_path) == 0


def test_a_silent_cluster_is_out_until_it_is_heard_of(
    registry: ClusterRegistry, clock: Clock
) -> None:
    made = registry.register("alpha", CLUSTER, silent_after_seconds=600)
    clock.now += 601
    assert "heard" in registry.problem_with_token("alpha", made.token)
    clusters, verified = registry.table()
    assert not clusters.clusters
    assert verified["alpha"] is not None
    registry.set_state("alpha", {"nodes_free": 2})
    assert registry.problem_with_token("alpha", made.token) == ""


@pytest.mark.parametrize(
    "name", ["", "50%", "a b", "../x", "'; DROP TABLE clusters; --", "-a", "a" * 64, "ä", "a\0"]
)
def test_names_that_are_no_names(registry: ClusterRegistry, name: str) -> None:
    with pytest.raises(RegistrationError):
        registry.register(name, CLUSTER)
    with pytest.raises(RegistrationError):
        registry.record(name)
    assert registry.records() == []


@pytest.mark.parametrize(
    "state",
    [
        {"a b": 1},
        {"job": 1},
        {"a": float("nan")},
        {"a": 1e300},
        {"a": "x" * 500},
        {"a": "\u202e"},
        {"a": [1]},
        {f"k{n}": 1 for n in range(200)},
    ],
)
def test_a_state_is_flat_small_and_finite(
    registry: ClusterRegistry, state: dict[str, object]
) -> None:
    with pytest.raises(RegistrationError):
        registry.register("alpha", CLUSTER, state=state)
    assert registry.records() == []
    registry.register("alpha", CLUSTER, state={"a": 1})
    with pytest.raises(RegistrationError):
        registry.set_state("alpha", state)
    assert registry.record("alpha").state == {"a": 1}
    assert registry.set_state("alpha", {"a": None, "b": "x"}).state == {"b": "x"}


def test_nothing_is_half_registered(registry: ClusterRegistry, tmp_path: Path) -> None:
    for data in (b"{", graph(), b"\x1f\x8bnothing"):
        with pytest.raises(FederationError):
            registry.register("alpha", data)
    assert registry.records() == []
    assert blobs(tmp_path) == 0
    made = registry.register("alpha", CLUSTER)
    with pytest.raises(RegistrationError, match="already"):
        registry.register("alpha", CLUSTER)
    assert registry.problem_with_token("alpha", made.token) == "", "the first one still counts"


def test_of_those_who_register_one_name_at_once_one_succeeds(tmp_path: Path, clock: Clock) -> None:
    results: list[str] = []

    def register(number: int) -> None:
        registry = open_registry(tmp_path, clock)
        try:
            registry.register("alpha", CLUSTER)
            registry.register(f"own-{number}", CLUSTER)
            results.append("first")
        except RegistrationError:
            registry.register(f"own-{number}", CLUSTER)
            results.append("taken")
        finally:
            registry.close()

    threads = [threading.Thread(target=register, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == ["first", "taken", "taken", "taken"]
    registry = open_registry(tmp_path, clock)
    assert len(registry.records()) == 5
    registry.close()
    assert (tmp_path / FILE_NAME).exists()
    assert (tmp_path / BLOBS_NAME).is_dir()
