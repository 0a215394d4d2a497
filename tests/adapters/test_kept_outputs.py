"""Outputs that stay with their worker: safe for a while, over restarts, up to a limit."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from mycel.blobs.blob_store import BlobStore
from mycel.blobs.errors import NoRoom
from mycel.blobs.kept_outputs import KeptOutputs

DAY = 86_400.0


class World:
    """A worker's cache for a thousand bytes, half of which it promises for a day."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now = 1_000_000.0
        self.start()

    def start(self) -> None:
        self.store = BlobStore(self.root, 1000)
        self.promises = KeptOutputs(self.store, self.root, 500, DAY, wall=lambda: self.now)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "blobs")


def test_what_was_promised_stays_when_room_is_needed(world: World) -> None:
    promised = world.store.put(b"p" * 400)
    world.promises.keep([promised])
    other = world.store.put(b"a" * 500)
    world.store.put(b"b" * 500)
    assert promised in world.store
    assert other not in world.store


def test_and_over_a_restart(world: World) -> None:
    promised = world.store.put(b"p" * 400)
    world.promises.keep([promised])
    world.start()
    world.store.put(b"a" * 500)
    world.store.put(b"b" * 500)
    assert promised in world.store


def test_after_its_time_it_is_a_file_like_any_other(world: World) -> None:
    promised = world.store.put(b"p" * 400)
    world.promises.keep([promised])
    world.now += DAY + 1.0
    world.store.put(b"a" * 500)
    assert promised in world.store, "nobody needs its room"
    world.store.put(b"b" * 500)
    assert promised not in world.store
    world.start()
    assert not any((world.root / "promised").iterdir())


def test_the_limit_counts_each_file_once_and_is_freed_with_time(world: World) -> None:
    first, second = world.store.put(b"p" * 300), world.store.put(b"q" * 300)
    world.promises.keep([first, first])
    world.promises.keep([first])
    with pytest.raises(NoRoom, match=r"at most 500 bytes .*keep_size.* 600"):
        world.promises.keep([second])
    world.now += DAY + 1.0
    world.promises.keep([second])
    world.store.put(b"a" * 600)
    assert first not in world.store
    assert second in world.store


def test_a_promise_made_again_lasts_from_then_on(world: World) -> None:
    promised = world.store.put(b"p" * 300)
    world.promises.keep([promised])
    world.now += DAY / 2
    world.promises.keep([promised])
    world.now += DAY * 0.6
    world.store.put(b"a" * 700)
    world.store.put(b"b" * 700)
    assert promised in world.store


def test_promises_and_evictions_from_many_threads_get_in_nobodys_way(world: World) -> None:
    def work(name: int) -> None:
        for turn in range(20):
            digest = world.store.put(bytes([name, turn]) * 20)
            with world.store.pinned(digest):
                world.promises.keep([digest])
            world.now += DAY

    threads = [threading.Thread(target=work, args=(name,), daemon=True) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)
    assert not any(thread.is_alive() for thread in threads)
