"""Blobs on real disks: kept once, verified, resumed, never evicted while in use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mycel.blobs import digests, trees
from mycel.blobs.blob_store import BlobStore
from mycel.blobs.digests import Digest
from mycel.blobs.errors import (
    BadDigest,
    BadTree,
    BlobTooLarge,
    NoRoom,
    NoSuchBlob,
    WrongContent,
)


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs", 1000)


def content(store: BlobStore, digest: Digest) -> bytes:
    with store.reading(digest) as file:
        return file.read()


class TestStore:
    def test_the_same_content_is_kept_once(self, store: BlobStore, tmp_path: Path) -> None:
        first = store.put(b"x" * 100)
        (tmp_path / "file").write_bytes(b"x" * 100)
        assert store.put_file(tmp_path / "file") == first
        assert store.bytes_kept == 100
        assert content(store, first) == b"x" * 100

    def test_it_survives_a_restart(self, store: BlobStore, tmp_path: Path) -> None:
        digest = store.put(b"kept")
        again = BlobStore(tmp_path / "blobs", 1000)
        assert content(again, digest) == b"kept"
        assert again.bytes_kept == 4

    def test_what_is_used_least_recently_goes_first(self, store: BlobStore) -> None:
        first, second = (store.put(bytes([number]) * 400) for number in range(2))
        content(store, first)
        third = store.put(b"z" * 400)
        assert second not in store
        assert first in store
        assert third in store

    def test_nothing_is_a_blob_too(self, store: BlobStore, tmp_path: Path) -> None:
        (tmp_path / "empty").touch()
        assert content(store, store.put_file(tmp_path / "empty")) == b""

    def test_what_is_in_use_is_never_evicted(self, store: BlobStore) -> None:
        digest = store.put(b"a" * 600)
        with store.pinned(digest):
            with pytest.raises(NoRoom):
                store.put(b"b" * 600)
            assert digest in store
        store.put(b"b" * 600)
        assert digest not in store

    def test_one_blob_has_a_limit(self, store: BlobStore) -> None:
        with pytest.raises(BlobTooLarge):
            store.put(b"x" * 1001)
        assert store.bytes_kept == 0

    def test_an_arrival_that_broke_off_goes_on(self, store: BlobStore, tmp_path: Path) -> None:
        data = os.urandom(500)
        digest = digests.of_bytes(data)
        with store.begin(digest, 500) as incoming:
            incoming.write(data[:200])
        again = BlobStore(tmp_path / "blobs", 1000)
        with again.begin(digest, 500) as incoming:
            assert incoming.offset == 200
            incoming.write(data[200:])
            incoming.finish()
        assert content(again, digest) == data
        assert again.bytes_kept == 500

    def test_something_else_is_refused_and_forgotten(self, store: BlobStore) -> None:
        digest = digests.of_bytes(b"right")
        with store.begin(digest, 5) as incoming:
            incoming.write(b"wrong")
            with pytest.raises(WrongContent):
                incoming.finish()
        assert digest not in store
        assert store.bytes_kept == 0
        with store.begin(digest, 5) as incoming:
            assert incoming.offset == 0
            incoming.write(b"right")
            incoming.finish()
        assert digest in store

    def test_more_than_was_said_is_refused_at_once(self, store: BlobStore) -> None:
        with store.begin(digests.of_bytes(b"abc"), 3) as incoming, pytest.raises(WrongContent):
            incoming.write(b"abcd")
        assert store.bytes_kept == 0

    def test_less_than_was_said_is_refused(self, store: BlobStore) -> None:
        with store.begin(digests.of_bytes(b"abc"), 4) as incoming:
            incoming.write(b"abc")
            with pytest.raises(WrongContent):
                incoming.finish()

    def test_two_arrivals_of_one_blob_do_not_mix(self, store: BlobStore) -> None:
        digest = digests.of_bytes(b"abc")
        with store.begin(digest, 3), pytest.raises(NoRoom):
            store.begin(digest, 3)

    def test_parts_make_room_for_wholes(self, store: BlobStore) -> None:
        with store.begin(digests.of_bytes(b"gone"), 900) as incoming:
            incoming.write(b"x" * 900)
        digest = store.put(b"y" * 500)
        assert digest in store
        assert store.bytes_kept == 500

    def test_what_is_not_here_is_said_so(self, store: BlobStore) -> None:
        with pytest.raises(NoSuchBlob):
            store.path(digests.of_bytes(b"never"))

    @pytest.mark.parametrize("text", ["", "blake3:", "sha256:" + "0" * 64, "blake3:" + "G" * 64])
    def test_what_is_no_digest(self, text: str) -> None:
        with pytest.raises(BadDigest):
            digests.parse(text)

    @settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.lists(st.binary(max_size=300), max_size=12))
    def test_the_limit_always_holds(
        self, tmp_path_factory: pytest.TempPathFactory, blobs: list[bytes]
    ) -> None:
        root = tmp_path_factory.mktemp("limited")
        store = BlobStore(root, 500)
        for blob in blobs:
            digest = store.put(blob)
            assert content(store, digest) == blob
            on_disk = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
            assert on_disk == store.bytes_kept <= 500


class TestTrees:
    def test_a_folder_travels(self, tmp_path: Path) -> None:
        store = BlobStore(tmp_path / "blobs", 10_000)
        source = tmp_path / "source"
        (source / "a/b").mkdir(parents=True)
        (source / "empty").mkdir()
        (source / "a/b/data").write_bytes(b"123")
        (source / "run.sh").write_text("#!/bin/sh\n")
        (source / "run.sh").chmod(0o755)
        tree = trees.decode(trees.encode(trees.fold(store, source)))
        target = tmp_path / "target"
        target.mkdir()
        trees.unfold(store, tree, target)
        assert (target / "a/b/data").read_bytes() == b"123"
        assert os.access(target / "run.sh", os.X_OK)
        assert (target / "empty").is_dir()
        assert trees.fold(store, target) == tree

    @pytest.mark.parametrize(
        "path",
        ["../x", "/etc/passwd", "a/../../x", "", "a//b", "./a", "a\0b", "a\\b", "x/" * 70 + "y"],
    )
    def test_hostile_paths_are_refused(self, path: str) -> None:
        tree = trees.Tree([trees.TreeFile(path, digests.of_bytes(b""), 0)])
        with pytest.raises(BadTree):
            trees.decode(trees.encode(tree))

    def test_a_file_is_no_folder(self) -> None:
        empty = digests.of_bytes(b"")
        tree = trees.Tree([trees.TreeFile("a", empty, 0), trees.TreeFile("a/b", empty, 0)])
        with pytest.raises(BadTree):
            trees.check(tree)

    def test_links_do_not_travel(self, tmp_path: Path) -> None:
        store = BlobStore(tmp_path / "blobs", 10_000)
        (tmp_path / "source").mkdir()
        (tmp_path / "source/link").symlink_to("/etc/passwd")
        with pytest.raises(BadTree):
            trees.fold(store, tmp_path / "source")

    @pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"files": [{"path": 1}]}', b"\xff"])
    def test_what_is_no_tree(self, data: bytes) -> None:
        with pytest.raises(BadTree):
            trees.decode(data)
