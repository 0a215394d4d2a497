"""Publishing and searching over the in-memory DHT, in virtual time."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mycel.core.events import Sighting
from mycel.core.identifiers import BOOT_MAX, PeerId
from mycel.core.matching.index_keys import facets_asked
from mycel.core.model.resources import Capabilities, Requirements
from mycel.core.model.work import Shape
from mycel.discovery.dht_keys import key_of, provided_keys, sampled_keys, shard_of
from mycel.discovery.publisher import RENEW_SECONDS, Publishing
from mycel.discovery.survey import KNOWN_ENOUGH, Survey
from mycel.discovery.worker_record import (
    RECORD_BYTES_MAX,
    UnreadableRecord,
    WorkerRecord,
    decode_record,
    encode_record,
    sighting_of,
)
from mycel.discovery.worker_search import ENOUGH, Searching
from mycel.swarm.interface import SignedRecord
from mycel.swarm.null_listener import IndifferentListener
from mycel.testing.swarm.memory_swarm import Faults, MemoryNetwork, MemorySwarm
from tests.properties.machines import capabilities, shapes
from tests.simulation.time import ProcessClock, VirtualClock

PLAIN = Capabilities(cpu_cores=4.0, memory=8 << 30, drivers=("process",))
ANY = Shape("process")


def labelled(zone: str) -> Capabilities:
    return Capabilities(memory=8 << 30, drivers=("process",), labels=(("zone", zone),))


def in_zone(zone: str) -> Shape:
    return Shape("process", Requirements(labels=(("zone", zone),)))


class Stage(IndifferentListener):
    """A scheduler that searches, among workers that publish; all connected to one hub."""

    def __init__(self, bits: int = 2, faults: Faults | None = None) -> None:
        self.world = VirtualClock()
        self.network = MemoryNetwork(self.world, Random(1), faults)
        self.bits = bits
        self.found: list[Sighting] = []
        self.withdrawn: list[PeerId] = []
        self.notes: list[tuple[str, dict[str, object]]] = []
        self.publishing: dict[str, Publishing] = {}
        self.network.start(PeerId("hub"), IndifferentListener(), ())
        swarm = self.join("scheduler", self)
        self.searching = Searching(
            self.clock(),
            Random(2),
            bits,
            self.found.append,
            self.withdrawn.append,
            self.note,
        )
        self.searching.start(swarm)
        self.pass_seconds(1.0)

    def note(self, event: str, **fields: object) -> None:
        self.notes.append((event, fields))

    def clock(self) -> ProcessClock:
        return ProcessClock(self.world, 0.0)

    def join(self, name: str, listener: IndifferentListener) -> MemorySwarm:
        swarm = self.network.start(PeerId(name), listener, ())
        swarm.dial(self.network.address_of(PeerId("hub")))
        return swarm

    def worker(self, name: str, has: Capabilities, bits: int | None = None, boot: int = 1) -> None:
        swarm = self.join(name, IndifferentListener())
        bits = self.bits if bits is None else bits
        published = Publishing(self.clock(), has, name, "1.0", bits, self.note)
        self.publishing[name] = published
        published.start(swarm, boot)

    def search(self, shape: Shape) -> set[str]:
        self.found.clear()
        self.searching.search(shape)
        self.pass_seconds(10.0)
        return {sighting.peer for sighting in self.found}

    def pass_seconds(self, seconds: float) -> None:
        self.world.run_until(self.world.now() + seconds)

    def providers_found(self, query: int, peers: list[PeerId], finished: bool) -> None:
        self.searching.providers_found(query, peers, finished)

    def record_found(self, query: int, record: SignedRecord | None) -> None:
        self.searching.record_found(query, record)


@pytest.mark.parametrize("bits", [0, 1, 2, 5])
def test_a_search_finds_exactly_those_that_suit(bits: int) -> None:
    stage = Stage(bits)
    for number in range(30):
        stage.worker(f"worker-{number}", labelled("a" if number % 10 == 0 else "b"))
    assert stage.search(in_zone("a")) == {"worker-0", "worker-10", "worker-20"}
    assert stage.search(in_zone("c")) == set()
    assert stage.search(ANY) == {f"worker-{number}" for number in range(30)}


def test_anybody_is_found_whatever_they_run() -> None:
    stage = Stage()
    stage.worker("commands", PLAIN)
    stage.worker("models", Capabilities(drivers=("model",), models=("llama",)))
    survey = Survey(stage.clock(), stage.searching.search_anybody, lambda: 0, 4.0)
    survey.start()
    stage.pass_seconds(0.9)
    assert stage.searching.searches_total == 0
    stage.pass_seconds(30.0)
    assert {sighting.peer for sighting in stage.found} == {"commands", "models"}
    searches = stage.searching.searches_total
    assert 6 <= searches <= 9, "after 1, 3, 7, 11, … seconds"
    survey.stop()
    stage.pass_seconds(30.0)
    assert stage.searching.searches_total == searches


def test_nobody_is_sought_where_enough_are_known() -> None:
    stage = Stage()
    Survey(stage.clock(), stage.searching.search_anybody, lambda: KNOWN_ENOUGH, 4.0).start()
    stage.pass_seconds(30.0)
    assert stage.searching.searches_total == 0


def test_the_whole_requirement_counts_not_the_key_alone() -> None:
    stage = Stage()
    stage.worker("small", Capabilities(memory=(16 << 30) + 1, drivers=("process",)))
    stage.worker("large", Capabilities(memory=31 << 30, drivers=("process",)))
    assert stage.search(Shape("process", Requirements(min_memory=30 << 30))) == {"large"}


def test_what_is_found_says_who_and_since_when() -> None:
    stage = Stage()
    stage.worker("worker", PLAIN, boot=3)
    assert stage.search(ANY) == {"worker"}
    [sighting] = stage.found
    assert (sighting.source, sighting.boot, sighting.name) == ("dht", 3, "worker")
    assert sighting.capabilities == PLAIN
    assert sighting.addresses == (stage.network.address_of(PeerId("worker")),)
    assert 500.0 < sighting.valid_seconds <= 600.0
    assert abs(sighting.published_at - stage.clock().unix()) < 20.0


def test_workers_with_the_policy_before_are_found_while_it_changes() -> None:
    stage = Stage(bits=3)
    stage.worker("older", PLAIN, bits=2)
    stage.worker("newer", PLAIN, bits=3)
    stage.worker("outdated", PLAIN, bits=0)
    assert stage.search(ANY) == {"older", "newer"}


def test_a_record_is_published_again_before_it_ends_with_a_higher_sequence() -> None:
    stage = Stage()
    stage.worker("worker", PLAIN)
    stage.search(ANY)
    [first] = stage.found
    stage.pass_seconds(3 * RENEW_SECONDS)
    assert stage.search(ANY) == {"worker"}
    [later] = stage.found
    assert later.sequence > first.sequence
    assert later.published_at > first.published_at
    assert later.valid_seconds > 300.0


def test_a_later_boot_has_a_higher_sequence_whatever_was_published_before() -> None:
    stage = Stage()
    stage.worker("worker", PLAIN, boot=7)
    for _ in range(20):
        stage.publishing["worker"].changed()
        stage.pass_seconds(5.0)
    stage.search(ANY)
    [before] = stage.found
    stage.network.kill(PeerId("worker"))
    stage.worker("worker", PLAIN, boot=8)
    stage.search(ANY)
    [after] = stage.found
    assert (after.boot, after.sequence > before.sequence) == (8, True)


def test_a_worker_that_stops_in_order_is_withdrawn() -> None:
    stage = Stage()
    stage.worker("worker", PLAIN)
    stage.publishing["worker"].stop()
    assert stage.search(ANY) == set()
    assert stage.withdrawn == [PeerId("worker")]


def test_a_dead_workers_record_ends_by_itself() -> None:
    stage = Stage()
    stage.worker("worker", PLAIN)
    stage.network.kill(PeerId("worker"))
    assert stage.search(ANY) == {"worker"}, "it is a hint, and may be late"
    stage.pass_seconds(600.0)
    assert stage.search(ANY) == set()


def test_a_search_has_an_end_in_a_crowd() -> None:
    stage = Stage()
    for number in range(300):
        stage.worker(f"worker-{number}", PLAIN)
    found = stage.search(ANY)
    assert ENOUGH <= len(found) <= ENOUGH + 16


def test_searches_find_most_in_a_forgetful_dht() -> None:
    stage = Stage(faults=Faults(dht_loss=0.3))
    stage.worker("worker", labelled("a"))
    seen = sum(stage.search(in_zone("a")) == {"worker"} for _ in range(20))
    assert seen >= 10, "and the others are found by the next search"


def test_a_record_that_is_too_long_is_refused_where_it_is_made() -> None:
    labels = tuple((f"label-{number}", "x" * 100) for number in range(200))
    stage = Stage()
    stage.worker("worker", Capabilities(drivers=("process",), labels=labels))
    assert [event for event, _ in stage.notes] == ["cannot_publish"]
    assert stage.search(ANY) == set()


_DEEP = encode_record(WorkerRecord(1, 0.0, "x", PLAIN, ()))
_DEEP = bytes([_DEEP[0] + 1]) + _DEEP[1:] + b"\x91" * 7000 + b"\xc0"


@pytest.mark.parametrize("nonsense", [b"\xc1nonsense", _DEEP], ids=["no msgpack", "deep"])
def test_nonsense_in_a_record_ends_nothing(nonsense: bytes) -> None:
    stage = Stage()
    swarm = stage.join("liar", IndifferentListener())
    for key in provided_keys(PLAIN, PeerId("liar"), 2):
        swarm.provide(key)
    swarm.put_record(nonsense, 1, stage.clock().unix() + 60.0)
    stage.worker("worker", PLAIN)
    assert stage.search(ANY) == {"worker"}
    assert "unreadable_record" in [event for event, _ in stage.notes]


# Keys and records


@given(capabilities, shapes, st.text(min_size=1, max_size=8), st.integers(0, 8))
def test_every_provided_facet_is_among_the_sampled_keys(
    has: Capabilities, shape: Shape, peer: str, bits: int
) -> None:
    provided = set(provided_keys(has, PeerId(peer), bits))
    facet = facets_asked(shape)[0]
    key = key_of(facet, bits, shard_of(PeerId(peer), bits))
    assert key in sampled_keys(facet, bits, Random(0))
    assert len(key) == 34
    assert len(provided) == len(provided_keys(has, PeerId(peer), bits)), "no two facets share one"


@given(capabilities, st.text(max_size=20), st.integers(0, BOOT_MAX))
def test_a_record_survives_the_codec(has: Capabilities, name: str, boot: int) -> None:
    record = WorkerRecord(boot, 12.5, name, has, ("/memory/x",), "1.0")
    assert decode_record(encode_record(record)) == record


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader(payload: bytes) -> None:
    signed = SignedRecord(peer=PeerId("x"), payload=payload, sequence=1, expires_at=100.0)
    try:
        sighting_of(signed, 0.0)
    except UnreadableRecord:
        return


def test_an_expired_record_says_nothing() -> None:
    payload = encode_record(WorkerRecord(1, 0.0, "x", PLAIN, ()))
    signed = SignedRecord(peer=PeerId("x"), payload=payload, sequence=1, expires_at=100.0)
    assert sighting_of(signed, 99.0) is not None
    assert sighting_of(signed, 100.0) is None


def test_a_record_over_the_limit_is_not_read() -> None:
    with pytest.raises(UnreadableRecord):
        decode_record(b"x" * (RECORD_BYTES_MAX + 1))
