"""When there will be room, and what speaks for a worker, in seconds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mycel.core.matching import has_room, left_after, total_of
from mycel.core.matching.forecast import RunningTask, eta_seconds, seconds_left
from mycel.core.matching.rank_terms import Member
from mycel.core.matching.score import Terms, Weights, terms_of
from mycel.core.model.prices import Tariff
from mycel.core.model.resources import Capabilities, Free, Gpu, GpuRequirement, Requirements

GB = 10**9
MACHINE = Capabilities(
    cpu_cores=4.0,
    memory=16 * GB,
    gpus=(Gpu("A100", 40 * GB), Gpu("T4", 16 * GB)),
    custom=(("licence", 1.0),),
)
ONE_CORE = Requirements(cpu_cores=1.0)


def filled(*needs: Requirements) -> Free:
    free = total_of(MACHINE)
    for need in needs:
        assert has_room(need, MACHINE, free)
        free = left_after(need, MACHINE, free, 1)
    return free


def test_what_fits_now_is_at_once() -> None:
    assert eta_seconds(ONE_CORE, MACHINE, total_of(MACHINE), []) == 0.0


def test_what_never_fits_has_no_eta() -> None:
    assert eta_seconds(Requirements(cpu_cores=5.0), MACHINE, total_of(MACHINE), []) is None


def test_room_comes_when_enough_has_ended() -> None:
    running = [RunningTask(ONE_CORE, seconds) for seconds in (30.0, 10.0, 20.0, 40.0)]
    free = filled(*[ONE_CORE] * 4)
    etas = [eta_seconds(Requirements(cpu_cores=n), MACHINE, free, running) for n in (1, 2, 3, 4)]
    assert etas == [10.0, 20.0, 30.0, 40.0]
    others = filled(*[ONE_CORE] * 4)
    assert eta_seconds(ONE_CORE, MACHINE, others, []) is None, "what others run is not known"


@pytest.mark.parametrize(
    "need",
    [
        Requirements(gpus=GpuRequirement(2.0)),
        Requirements(gpus=GpuRequirement(model="A100")),
        Requirements(custom=(("licence", 1.0),)),
        Requirements(min_memory=12 * GB),
    ],
)
def test_every_resource_is_waited_for(need: Requirements) -> None:
    assert eta_seconds(need, MACHINE, filled(need), [RunningTask(need, 7.0)]) == 7.0


def test_what_is_left_follows_the_usual_and_the_limit() -> None:
    assert seconds_left(None, None, 5.0) is None
    assert seconds_left(None, 60.0, 5.0) == 55.0
    assert seconds_left(20.0, None, 5.0) == 15.0
    assert seconds_left(20.0, None, 100.0) == 10.0, "longer than usual: a tenth longer still"
    assert seconds_left(20.0, 22.0, 21.0) == 1.0
    assert seconds_left(None, 60.0, 61.0) == 0.0


needs = st.sampled_from(
    [
        ONE_CORE,
        Requirements(cpu_cores=2.0, min_memory=4 * GB),
        Requirements(gpus=GpuRequirement(0.5)),
    ]
)


@given(st.lists(st.tuples(needs, st.floats(0.0, 1e4)), max_size=8), needs)
def test_a_forecast_is_an_end_of_something_that_runs(
    wanted: list[tuple[Requirements, float]], need: Requirements
) -> None:
    free, running = total_of(MACHINE), []
    for one, seconds in wanted:
        if has_room(one, MACHINE, free):
            free = left_after(one, MACHINE, free, 1)
            running.append(RunningTask(one, seconds))
    eta = eta_seconds(need, MACHINE, free, running)
    assert eta is not None, "all that is taken runs here"
    assert (
        eta == 0.0
        if has_room(need, MACHINE, free)
        else eta in {one.seconds_left for one in running}
    )


# Scores


def member(**capabilities: object) -> Member:
    has = {"cpu_cores": 4.0, "memory": 8 * GB, "drivers": ("process",), **capabilities}
    found = Member("w", 0, Capabilities(**has))  # type: ignore[arg-type]
    found.linked, found.rtt_seconds = True, 0.001
    return found


def terms(
    worker: Member, need: Requirements = ONE_CORE, seconds: float = 100.0, **more: object
) -> Terms:
    given = {"expected_seconds": seconds, **more}
    return terms_of(worker, need, Weights(), **given)  # type: ignore[arg-type]


def test_nothing_speaks_against_an_idle_near_warm_free_worker_but_its_distance() -> None:
    assert terms(member()) == Terms(round_trips=0.002)


def test_each_term_counts_in_seconds() -> None:
    assert terms(member(), wait_seconds=7.0).wait == 7.0
    half = member()
    half.expected = Free(cpu_millis=2000, memory=8 * GB)
    assert terms(half).contention == pytest.approx(5.0)
    slow, bad, quick = member(), member(), member()
    slow.score, bad.score, quick.score = 0.5, 1e-6, 2.0
    assert [terms(one).history for one in (slow, bad, quick)] == [100.0, 900.0, -50.0]
    assert terms(member(price=Tariff(cpu_core_hour=0.36))).price == pytest.approx(36.0)
    assert terms(member(price=Tariff(floor=0.5))).price == 1800.0
    assert terms(member(), bytes_missing=10**9).transfer == 100.0
    wired = member()
    wired.bandwidth = 1e9
    assert terms(wired, bytes_missing=10**9).transfer == 1.0
    assert terms(member(), start_seconds=0.2).start == 0.2
    unknown = member()
    unknown.linked, unknown.rtt_seconds = False, None
    assert (terms(unknown).start, terms(unknown).round_trips) == (0.2, 0.1)
    with_gpu = member(gpus=(Gpu("T4", 16 * GB),))
    assert terms(with_gpu).fragmentation == pytest.approx(20.0)


def test_six_and_forty_five_milliseconds_are_not_equal() -> None:
    near, far = member(), member()
    near.rtt_seconds, far.rtt_seconds = 0.006, 0.045
    assert terms(near).total < terms(far).total


def test_a_dear_worker_is_worth_waiting_for_another() -> None:
    dear = terms(member(price=Tariff(cpu_core_hour=36_000.0)))
    free = terms(member(), wait_seconds=600.0)
    assert free.total < dear.total


def test_what_is_not_wanted_is_left_out() -> None:
    nothing = Weights(
        price_seconds=0.0, contention=0.0, history=0.0, transfer=0.0, round_trips=0.0,
        start_seconds=0.0, link_seconds=0.0, fragmentation=0.0,
    )  # fmt: skip
    worst = member(price=Tariff(1.0), gpus=(Gpu("T4", 16 * GB),))
    worst.score, worst.linked = 0.1, False
    found = terms_of(worst, ONE_CORE, nothing, expected_seconds=1.0, bytes_missing=10**9)
    assert found.total == 0.0
