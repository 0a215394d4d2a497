"""Working folders: what is laid out, what is gathered, and what a hostile task or list gets."""

from __future__ import annotations

import json
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mycel.blobs import trees, work_folder
from mycel.blobs.blob_store import BlobStore
from mycel.blobs.digests import Digest
from mycel.blobs.errors import BadDigest, BadTree, TransferStopped
from mycel.blobs.trees import Tree, TreeFile
from mycel.blobs.work_folder import NotShared
from mycel.core.model.task_files import BadFile, Input, checked, files_in, is_below, with_paths


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "store", 1 << 20)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    return made


class TestLayingOut:
    def test_files_and_folders_lie_where_they_are_wanted(
        self, store: BlobStore, folder: Path
    ) -> None:
        one = store.put(b"one")
        tree = store.put(trees.encode(Tree([TreeFile("bin/run", one, 3, True)], ["empty"])))
        tool = Input("tool", one, executable=True)
        inputs = [Input("a/b/c", one), tool, Input("tree", tree, True), Input(".", tree, True)]
        work_folder.lay_out(store, inputs, folder, ())
        assert os.access(folder / "tool", os.X_OK)
        assert not (folder / "a/b/c").stat().st_mode & 0o111
        assert (folder / "a/b/c").read_bytes() == b"one"
        assert os.access(folder / "tree/bin/run", os.X_OK)
        assert (folder / "empty").is_dir()

    def test_what_a_task_changes_nobody_else_sees(self, store: BlobStore, folder: Path) -> None:
        digest = store.put(b"original")
        work_folder.lay_out(store, [Input("a", digest)], folder, ())
        (folder / "a").chmod(0o666)
        with (folder / "a").open("r+b") as file:
            file.write(b"changed!")
        with store.reading(digest) as kept:
            assert kept.read() == b"original"

    def test_two_inputs_for_one_place_are_refused(self, store: BlobStore, folder: Path) -> None:
        one, two = store.put(b"1"), store.put(b"2")
        with pytest.raises(BadTree, match="'a'"):
            work_folder.lay_out(store, [Input("a", one), Input("a", two)], folder, ())

    def test_an_input_in_another_is_refused(self, store: BlobStore, folder: Path) -> None:
        one = store.put(b"1")
        with pytest.raises(BadTree):
            work_folder.lay_out(store, [Input("a", one), Input("a/b", one)], folder, ())

    def test_a_shared_path_needs_the_owners_leave(
        self, store: BlobStore, folder: Path, tmp_path: Path
    ) -> None:
        shared, private = tmp_path / "shared", tmp_path / "private"
        for place in (shared, private):
            place.mkdir()
            (place / "file").write_text(place.name)
        (shared / "sneaky").symlink_to(private)
        inside = [Input("data", shared=str(shared / "file"))]
        work_folder.lay_out(store, inside, folder, (str(shared),))
        assert (folder / "data").read_text() == "shared"
        for path in (private / "file", shared / "sneaky" / "file", shared / ".." / "private"):
            with pytest.raises(NotShared):
                work_folder.lay_out(store, [Input("x", shared=str(path))], folder, (str(shared),))

    def test_nothing_is_written_through_a_shared_path(
        self, store: BlobStore, folder: Path, tmp_path: Path
    ) -> None:
        shared = tmp_path / "shared"
        (shared / "below").mkdir(parents=True)
        links = [Input("d", shared=str(shared)), Input("d/x", shared=str(shared / "below"))]
        with pytest.raises(BadTree):
            work_folder.lay_out(store, links, folder, (str(shared),))
        assert sorted(path.name for path in shared.iterdir()) == ["below"]


class TestHostileLists:
    @pytest.mark.parametrize(
        "path",
        ["/etc/passwd", "../up", "a/../../b", "", ".", "a//b", "a/./b", "a\0b", "a\\b", "x/" * 70],
    )
    def test_a_path_that_leads_elsewhere_is_refused(
        self, store: BlobStore, folder: Path, path: str
    ) -> None:
        digest = store.put(b"x")
        files = [{"path": path, "digest": digest, "size": 1}]
        encoded = json.dumps({"files": files}).encode()
        listed = store.put(encoded)
        with pytest.raises(BadTree):
            work_folder.lay_out(store, [Input("t", listed, True)], folder, ())
        assert not list(folder.glob("t/*"))

    @pytest.mark.parametrize(
        "encoded",
        [
            b"not json",
            b'{"files": 3}',
            b'{"files":[{"path":"a","digest":"blake3:12","size":1}]}',
            b'{"files":[],"folders":["a","a"]}',
            b'{"files":[],"links":[]}',
        ],
    )
    def test_a_list_that_is_none_is_refused(
        self, store: BlobStore, folder: Path, encoded: bytes
    ) -> None:
        listed = store.put(encoded)
        with pytest.raises((BadTree, BadDigest)):
            work_folder.lay_out(store, [Input("t", listed, True)], folder, ())

    def test_a_list_without_end_is_refused(self) -> None:
        files = [TreeFile(str(number), "blake3:" + "0" * 64, 0) for number in range(100_001)]
        with pytest.raises(BadTree, match="100000"):
            trees.check(Tree(files))


def _fits(pattern: tuple[str, ...], name: tuple[str, ...]) -> bool:
    """The plain way, which tries everything."""
    if not pattern:
        return True
    if pattern[0] == "**":
        if len(pattern) == 1:
            return bool(name)
        return any(_fits(pattern[1:], name[start:]) for start in range(len(name) + 1))
    return bool(name) and fnmatchcase(name[0], pattern[0]) and _fits(pattern[1:], name[1:])


class TestGathering:
    def test_patterns_say_what_comes_back(self, store: BlobStore, folder: Path) -> None:
        for name in ("a.txt", "b.png", "deep/er/c.txt", "out/d", "out/e/f", ".hidden.txt"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(name)

        def gathered(*patterns: str) -> list[str]:
            return [
                file.path
                for file in work_folder.gather(
                    store, patterns, folder, work_folder.GatherLimits(1 << 30)
                ).files
            ]

        assert gathered("*.txt") == [".hidden.txt", "a.txt"]
        assert gathered("**/*.txt") == [".hidden.txt", "a.txt", "deep/er/c.txt"]
        assert gathered("out/") == ["out/d", "out/e/f"]
        assert gathered("out/*") == ["out/d", "out/e/f"]
        assert gathered("?.png", "deep/**") == ["b.png", "deep/er/c.txt"]
        assert gathered("[ab].*") == ["a.txt", "b.png"]
        assert len(gathered("**")) == 6

    @given(
        st.lists(st.text("ab*?", min_size=1, max_size=6), min_size=1, max_size=6),
        st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=6),
    )
    @example(["**", "a", "**", "b"], ["a", "a", "b", "c"])
    def test_a_pattern_means_what_it_says(self, pattern: list[str], name: list[str]) -> None:
        found = work_folder.pattern_of("/".join(pattern)).match("/".join(name))
        assert (found is not None) == _fits(tuple(pattern), tuple(name))

    @pytest.mark.parametrize(
        ("pattern", "name"),
        [
            ("*a" * 60 + "b", "a" * 250),
            ("**/" * 60 + "b", "a/" * 60 + "a"),
            ("**/*a*a*a/" * 20, "a/" * 60),
        ],
    )
    def test_no_pattern_takes_long(self, pattern: str, name: str) -> None:
        assert work_folder.pattern_of(pattern).match(name) is None

    def test_a_pattern_that_is_none_is_said(self, store: BlobStore, folder: Path) -> None:
        with pytest.raises(BadTree, match="is no pattern"):
            work_folder.gather(store, ("[z-a]",), folder, work_folder.GatherLimits(1 << 30))

    @pytest.mark.parametrize("name", [b"out/\xff", b"out/a\\b"])
    def test_a_name_that_no_list_can_have_is_said(
        self, store: BlobStore, folder: Path, name: bytes
    ) -> None:
        (folder / "out").mkdir()
        (folder / os.fsdecode(name)).touch()
        with pytest.raises(BadTree, match="a name that cannot travel"):
            work_folder.gather(store, ("out",), folder, work_folder.GatherLimits(1 << 30))

    def test_a_folder_that_becomes_a_link_while_we_look_is_not_followed(
        self, store: BlobStore, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        secret = tmp_path / "secret"
        secret.mkdir()
        (secret / "key").write_text("secret")
        (folder / "out").mkdir()
        scandir = os.scandir

        def and_swap(place: Any) -> Any:
            found = list(scandir(place))
            if (folder / "out").is_dir() and not (folder / "out").is_symlink():
                (folder / "out").rmdir()
                (folder / "out").symlink_to(secret)
            return nullcontext(found)

        monkeypatch.setattr(os, "scandir", and_swap)
        with pytest.raises(BadTree, match="cannot be looked into"):
            work_folder.gather(store, ("**",), folder, work_folder.GatherLimits(1 << 30))
        assert store.bytes_kept == 0

    def test_a_pattern_that_finds_nothing_is_said(self, store: BlobStore, folder: Path) -> None:
        (folder / "a").touch()
        with pytest.raises(BadTree, match=re.escape("'b*'")):
            work_folder.gather(store, ("a", "b*"), folder, work_folder.GatherLimits(1 << 30))

    @pytest.mark.parametrize("kind", ["link", "folder link", "fifo"])
    def test_what_is_no_file_is_not_taken(
        self, store: BlobStore, folder: Path, tmp_path: Path, kind: str
    ) -> None:
        secret = tmp_path / "secret"
        secret.mkdir()
        (secret / "key").write_text("secret")
        if kind == "link":
            (folder / "out").symlink_to(secret / "key")
        elif kind == "folder link":
            (folder / "out").symlink_to(secret)
        else:
            os.mkfifo(folder / "out")
        with pytest.raises(BadTree):
            work_folder.gather(
                store, ("out", "out/key", "**"), folder, work_folder.GatherLimits(1 << 30)
            )
        assert store.bytes_kept == 0

    def test_what_was_gathered_is_pinned_until_it_is_let_go(
        self, store: BlobStore, folder: Path
    ) -> None:
        (folder / "a").write_text("a")
        tree = work_folder.gather(store, ("a",), folder, work_folder.GatherLimits(1 << 30))
        with pytest.raises(Exception, match="in use"):
            store.remove(Digest(tree.files[0].digest))
        work_folder.unpin(store, tree.files)
        store.remove(Digest(tree.files[0].digest))


DIGEST = "blake3:" + "a" * 64
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


class TestArguments:
    def test_files_among_arguments_become_their_paths(self) -> None:
        file = {"$file": DIGEST, "path": "a/b"}
        given = {"x": [1, file], "y": {"$file": DIGEST, "path": "c", "tree": True}}
        assert list(files_in(given)) == [Input("a/b", DIGEST), Input("c", DIGEST, True)]
        assert with_paths(given) == {"x": [1, "a/b"], "y": "c"}

    @pytest.mark.parametrize(
        "file",
        [
            {"$file": 3, "path": "a"},
            {"$file": DIGEST},
            {"$file": DIGEST, "path": "../a"},
            {"$file": "blake3:0", "path": "a"},
            {"$file": DIGEST, "path": "a", "mode": 7},
            {"$file": DIGEST, "path": "."},
        ],
    )
    def test_what_is_no_file_is_refused(self, file: dict[str, object]) -> None:
        with pytest.raises(BadFile):
            list(files_in([file]))

    @given(JSON)
    def test_arguments_without_files_stay_as_they_are(self, value: object) -> None:
        assert with_paths(value) == value

    @given(st.text(alphabet="ab./\\\0", max_size=12))
    def test_a_path_that_passes_stays_below(self, path: str) -> None:
        if is_below(path):
            assert os.path.normpath(f"/root/{path}") == f"/root/{path}"

    def test_an_input_has_one_source(self) -> None:
        for wrong in (Input("a"), Input("a", DIGEST, shared="/x"), Input("a", shared="x")):
            with pytest.raises(BadFile):
                checked(wrong)


class TestWhatIsTooMuch:
    def test_sizes_are_looked_at_before_anything_is_read(
        self, store: BlobStore, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (folder / "a").write_bytes(b"a" * 600)
        (folder / "b").write_bytes(b"b" * 600)
        _sparse(folder / "sparse", 15 << 40)
        monkeypatch.setattr(store, "put_file", lambda *_, **__: pytest.fail("it was read"))
        for patterns in (("sparse",), ("a", "sparse"), ("**",)):
            with pytest.raises(BadTree, match=r"'sparse' has 16.5 TB.*max_blob_size"):
                work_folder.gather(store, patterns, folder, work_folder.GatherLimits(1 << 60))
        with pytest.raises(BadTree, match=r"'b' have 1.2 kB.*max_output_size"):
            work_folder.gather(store, ("a", "b"), folder, work_folder.GatherLimits(1000))

    def test_a_file_that_grows_while_it_is_read_is_not_read_for_ever(
        self, store: BlobStore, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = folder / "log"
        path.write_bytes(b"x" * 100)

        class Growing:
            def update(self, _: bytes) -> None:
                with path.open("ab") as file:
                    file.write(b"more")

        monkeypatch.setattr("mycel.blobs.blob_store.blake3", Growing)
        with pytest.raises(BadTree, match="changed while it was read"):
            work_folder.gather(store, ("log",), folder, work_folder.GatherLimits(1 << 30))
        assert store.bytes_kept == 0

    def test_gathering_stops_when_it_is_told_to(self, tmp_path: Path, folder: Path) -> None:
        store = BlobStore(tmp_path / "roomy", 1 << 50)
        (folder / "a").write_text("small")
        _sparse(folder / "b", 1 << 40)
        gathering = work_folder.GatherLimits(1 << 50)
        with ThreadPoolExecutor(1) as threads:
            future = threads.submit(work_folder.gather, store, ("*",), folder, gathering)
            while len(store.digests()) < 1:
                time.sleep(0.001)
            gathering.stop.set()
            with pytest.raises(TransferStopped):
                future.result(20.0)
        (small,) = store.digests()
        store.remove(small)  # it is not in use


def _sparse(path: Path, size: int) -> None:
    with path.open("wb") as file:
        file.truncate(size)


def test_a_folder_deeper_than_a_path_can_be_is_removed(tmp_path: Path) -> None:
    top = tmp_path / "run"
    top.mkdir()
    place = os.open(top, os.O_RDONLY)
    for depth in range(3000):
        os.mkdir("folder", dir_fd=place)
        inside = os.open("folder", os.O_RDONLY, dir_fd=place)
        os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=inside))
        if depth % 7 == 0:
            os.chmod("folder", 0, dir_fd=place)
        os.close(place)
        place = inside
    os.close(place)
    kept = tmp_path / "kept"
    kept.mkdir()
    (top / "link").symlink_to(kept)
    work_folder.remove(top)
    assert not top.exists()
    assert kept.exists()
