"""Homes beyond plain slots: priorities, gangs, GPUs, tasks fetched ahead, dying schedulers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from mycel.sim.entities import NS_PER_MS, NS_PER_S, SLOT, Capacity, Demand, Job
from mycel.sim.errors import ScenarioError
from mycel.sim.fault_plan import Fault, FaultKind
from mycel.sim.policies.homes.homes_options import HomesOptions
from mycel.sim.policies.homes.homes_policy import Homes
from mycel.sim.reference_engine import Engine
from mycel.sim.run_records import Settings
from mycel.sim.sim_network import ConstantNetwork
from mycel.sim.workloads.synthetic import Synthetic, generate

ONE_WAY_NS = NS_PER_MS // 2


def _run(
    jobs: Sequence[Job],
    *,
    servers: Sequence[Capacity],
    schedulers: int = 4,
    faults: Sequence[Fault] = (),
    one_way_ns: int = ONE_WAY_NS,
    **options: Any,
) -> Engine:
    engine = Engine(
        servers,
        jobs,
        Homes,
        HomesOptions(**{"slots_per_home": 8, **options}),
        network=ConstantNetwork(one_way_ns),
        settings=Settings(seed=3, schedulers=schedulers, detection_ns=50 * NS_PER_MS),
        faults=faults,
    )
    engine.run()
    return engine


def _policy(engine: Engine) -> Homes:
    assert isinstance(engine.policy, Homes)
    return engine.policy


def _work(load: float, slots: int, **spec: Any) -> list[Job]:
    given = {"jobs": 300, "tasks_per_job": 4, "task_s": 0.1, **spec}
    return generate(Synthetic(**given), load, slots, 4, seed=5).jobs()


def _mean_s(engine: Engine, jobs: Sequence[Job] | None = None) -> float:
    chosen = engine.jobs if jobs is None else jobs
    return sum(job.end_ns - job.arrival_ns for job in chosen) / len(chosen) / NS_PER_S


FOUR_CORES = [Capacity(4000)] * 16


def test_urgent_tasks_stop_others_and_those_run_again() -> None:
    jobs = _work(1.2, 64)
    for job in jobs[::10]:
        job.priority = 5
    engine = _run(jobs, servers=FOUR_CORES, preempt=True)
    assert engine.unfinished == 0
    assert engine.counters.preemptions > 0
    assert all(not task.preemptions for job in jobs[::10] for task in job.tasks)
    urgent, others = jobs[::10], [job for job in jobs if not job.priority]
    assert _mean_s(engine, urgent) < 0.15 < _mean_s(engine, others)


def test_without_preemption_urgent_tasks_still_go_first() -> None:
    jobs = _work(1.2, 64)
    for job in jobs[::10]:
        job.priority = 5
    engine = _run(jobs, servers=FOUR_CORES)
    assert engine.counters.preemptions == 0
    others = [job for job in jobs if not job.priority]
    assert _mean_s(engine, jobs[::10]) < _mean_s(engine, others)


def test_a_gang_starts_within_moments_on_the_servers_of_several_homes() -> None:
    """Larger than any home, among plain tasks that would fill what is reserved."""
    jobs = _work(0.7, 64)
    gang = Job(len(jobs), 500 * NS_PER_MS, 1, is_gang=True)
    for number in range(40):
        gang.add(10_000 + number, SLOT, 200 * NS_PER_MS, 200 * NS_PER_MS)
    engine = _run([*jobs, gang], servers=FOUR_CORES)
    assert engine.unfinished == 0
    starts = [task.start_ns for task in gang.tasks]
    assert max(starts) - min(starts) <= 20 * NS_PER_MS  # links may be cold
    homes = {_policy(engine).home_by_server[task.server] for task in gang.tasks}
    assert len(homes) > 1


def test_gangs_that_need_each_others_room_start_one_after_the_other() -> None:
    """Each needs three quarters of the cluster, and they arrive at once at different schedulers."""
    gangs = []
    for number in range(6):
        gang = Job(number, NS_PER_MS, number, is_gang=True)
        for index in range(48):
            gang.add(number * 48 + index, SLOT, 100 * NS_PER_MS, 100 * NS_PER_MS)
        gangs.append(gang)
    engine = _run(gangs, servers=FOUR_CORES)
    assert engine.unfinished == 0
    for gang in gangs:
        starts = [task.start_ns for task in gang.tasks]
        assert max(starts) - min(starts) <= 20 * NS_PER_MS
    ends = sorted(gang.end_ns for gang in gangs)
    assert all(later - sooner >= 100 * NS_PER_MS for sooner, later in pairwise(ends))
    books = [ledger.cores_free_milli for ledger in _policy(engine).ledgers]
    assert sum(books) == 64_000 - 48_000  # the last gang's ends were not heard yet


@pytest.mark.parametrize("gpu_offers", [0, 8])
def test_work_with_gpus_goes_where_it_fragments_least(gpu_offers: int) -> None:
    """A half from each of four schedulers: two GPUs if they are put together, or else four."""
    half, whole = Demand(gpus=1, gpu_milli=500), Demand(gpus=1)
    jobs = []
    for number, demand in enumerate([half] * 4 + [whole] * 14):
        job = Job(number, number * 50 * NS_PER_MS, number)
        job.add(number, demand, 10 * NS_PER_S, 10 * NS_PER_S)
        jobs.append(job)
    servers = [Capacity(16_000, 0, 2, "A")] * 8
    engine = _run(jobs, servers=servers, slots_per_home=16, gpu_offers=gpu_offers)
    waits_ns = [job.tasks[0].start_ns - job.arrival_ns for job in jobs]
    assert engine.unfinished == 0
    assert (max(waits_ns) < NS_PER_S) == bool(gpu_offers)


def test_fetching_ahead_keeps_slots_busy_over_long_ways() -> None:
    """At 5 ms one way a slot is empty for 10 of 110 ms, unless the next task is there already."""
    means = []
    for ahead in (False, True):
        jobs = _work(0.93, 64, jobs=800)
        engine = _run(jobs, servers=FOUR_CORES, one_way_ns=5 * NS_PER_MS, fetch_ahead=ahead)
        assert engine.unfinished == 0
        means.append(_mean_s(engine))
    assert means[1] < 0.8 * means[0]


def test_fetching_ahead_is_left_alone_where_the_way_is_short() -> None:
    plain = _run(_work(0.9, 64), servers=FOUR_CORES)
    ahead = _run(_work(0.9, 64), servers=FOUR_CORES, fetch_ahead=True)
    assert _mean_s(plain) == _mean_s(ahead)


def test_fetching_ahead_is_for_one_shape() -> None:
    jobs = _work(0.5, 64)
    jobs[3].tasks[0].demand = Demand(2000)
    with pytest.raises(ScenarioError, match="one shape only"):
        _run(jobs, servers=FOUR_CORES, fetch_ahead=True)


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("returns", [False, True])
def test_when_a_home_dies_its_servers_take_the_next_one(returns: bool, ahead: bool) -> None:
    """Nothing is lost but time. Jobs of the dead scheduler wait for its return."""
    faults = [Fault(at_ns=300 * NS_PER_MS, kind=FaultKind.FAIL, scheduler=1)]
    faults += [Fault(at_ns=400 * NS_PER_MS, kind=FaultKind.FAIL, server=2)]
    if returns:
        faults += [Fault(at_ns=900 * NS_PER_MS, kind=FaultKind.RETURN, scheduler=1)]
    jobs = _work(0.8, 64, jobs=500)
    engine = _run(
        jobs,
        servers=FOUR_CORES,
        faults=faults,
        return_s=1.0,
        fetch_ahead=ahead,
        one_way_ns=5 * NS_PER_MS if ahead else ONE_WAY_NS,
    )
    unfinished = [job for job in jobs if job.end_ns < 0]
    if returns:
        assert not unfinished
        assert 1 in _policy(engine).home_by_server.values()
    else:
        assert all(job.entry % 4 == 1 and job.arrival_ns < 300 * NS_PER_MS for job in unfinished)
        assert 1 not in _policy(engine).home_by_server.values()
    late = [task for job in jobs for task in job.tasks if task.start_ns > 500 * NS_PER_MS]
    assert {task.server for task in late} == set(range(16)) - {2}


def test_room_is_not_lost_when_schedulers_die_again_and_again() -> None:
    """A job long after finds as much room as in the beginning."""
    faults = []
    for round_number in range(8):
        for number in (0, 2):
            at_ns = (100 + 200 * round_number + 30 * number) * NS_PER_MS
            faults.append(Fault(at_ns=at_ns, kind=FaultKind.FAIL, scheduler=number))
            back_ns = at_ns + 120 * NS_PER_MS
            faults.append(Fault(at_ns=back_ns, kind=FaultKind.RETURN, scheduler=number))
    jobs = _work(0.95, 64, jobs=900)
    late = Job(len(jobs), 60 * NS_PER_S, 0)
    late.add(10**6, SLOT, NS_PER_S, NS_PER_S)
    engine = _run([*jobs, late], servers=FOUR_CORES, faults=faults, return_s=0.05)
    assert engine.unfinished == 0
    room = [ledger.cores_free_milli for ledger in _policy(engine).ledgers]
    assert sum(room) == 64_000 - 1000  # only the late task, whose end was not heard yet


def test_gossip_of_sums_is_counted_and_finds_the_home_with_room() -> None:
    """Long tasks: what a home had free a moment ago it still has."""
    means, messages = [], []
    for gossip_ms in (0, 50):
        jobs = _work(0.9, 64, jobs=200, task_s=4.0, tasks_per_job=6)
        engine = _run(jobs, servers=FOUR_CORES, gossip_ms=gossip_ms)
        assert engine.unfinished == 0
        means.append(_mean_s(engine))
        messages.append(engine.counters.messages)
    assert messages[1] > messages[0]
    assert means[1] < 1.05 * means[0]
