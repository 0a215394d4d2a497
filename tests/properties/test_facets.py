"""Whoever satisfies a requirement is found by every facet that it asks."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mycel.core.events import Sighting
from mycel.core.identifiers import PeerId
from mycel.core.matching import Pool, obstacle
from mycel.core.matching.index_keys import facets_asked, facets_of
from mycel.core.model.resources import Capabilities, Gpu, GpuRequirement, Requirements
from mycel.core.model.work import Shape
from mycel.core.scheduler.workers.known_workers import KnownWorkers

from .machines import capabilities, shapes


@st.composite
def satisfied(draw: st.DrawFn) -> tuple[Capabilities, Shape]:
    """A machine, and a need that is drawn from what it has."""
    has = draw(capabilities.filter(lambda one: bool(one.drivers)))
    driver = draw(st.sampled_from(has.drivers))
    assume(driver != "model" or has.models)
    gpus = None
    with_gpus: bool = draw(st.booleans())
    if has.gpus and with_gpus:
        gpu = draw(st.sampled_from(has.gpus))
        model = draw(st.sampled_from(["", gpu.model]))
        gpus = GpuRequirement(
            count=draw(st.sampled_from([0.5, 1.0])),
            model=model,
            memory=draw(st.integers(0, gpu.memory)),
        )
    need = Requirements(
        min_memory=draw(st.integers(0, has.memory)),
        gpus=gpus,
        custom=has.custom if draw(st.booleans()) else (),
        labels=has.labels if draw(st.booleans()) else (),
        arch=has.arch if draw(st.booleans()) else "",
        os=has.os if draw(st.booleans()) else "",
        software=has.software if draw(st.booleans()) else (),
    )
    return has, Shape(driver, need, model=has.models[0] if driver == "model" else "")


@given(satisfied())
@settings(max_examples=400)
def test_a_worker_provides_every_facet_that_it_can_be_asked_for(
    pair: tuple[Capabilities, Shape],
) -> None:
    has, shape = pair
    assert obstacle(shape, has) is None
    assert set(facets_asked(shape)) <= set(facets_of(has))


@given(capabilities, shapes)
def test_whoever_lacks_a_facet_lacks_something(has: Capabilities, shape: Shape) -> None:
    if not set(facets_asked(shape)) <= set(facets_of(has)):
        assert obstacle(shape, has) is not None


@given(st.lists(capabilities, max_size=12), shapes)
def test_the_known_workers_that_suit_are_found(machines: list[Capabilities], shape: Shape) -> None:
    known = KnownWorkers(100, Pool())
    for number, has in enumerate(machines):
        known.see(_sighting(f"worker-{number}", has), 0.0)
    found = {one.peer for one in known.suitable(shape, lambda: 0.0)}
    suits = {
        f"worker-{number}" for number, has in enumerate(machines) if obstacle(shape, has) is None
    }
    assert found == suits


def test_the_rarest_is_asked_first() -> None:
    need = Requirements(
        min_memory=16 << 30,
        gpus=GpuRequirement(count=2, model="A100", memory=40 << 30),
        labels=(("zone", "a"),),
        arch="x86_64",
    )
    asked = facets_asked(Shape("process", need))
    assert asked == (
        "gpu=a100",
        "label=zone=a",
        "gpu_memory=2^35",
        "gpus=2^1",
        "memory=2^34",
        "arch=x86_64",
        "driver=process",
    )


def test_thresholds_are_all_that_is_reached() -> None:
    has = Capabilities(memory=5 << 30, gpus=(Gpu("T4", 3 << 30), Gpu("T4", 1 << 30)))
    assert facets_of(has) == (
        *("gpu=t4", "memory=2^30", "memory=2^31", "memory=2^32"),
        *("gpu_memory=2^30", "gpu_memory=2^31", "gpus=2^0", "gpus=2^1"),
    )


def _sighting(peer: str, has: Capabilities) -> Sighting:
    return Sighting(
        peer=PeerId(peer),
        boot=1,
        sequence=1,
        published_at=0.0,
        valid_seconds=60.0,
        source="dht",
        capabilities=has,
        addresses=(),
    )
