"""Partitions, dead switches and stragglers on a routed network."""

from __future__ import annotations

import pytest

from mycel.sim.entities import NS_PER_MS, NS_PER_S, SLOT, Capacity, Job
from mycel.sim.fault_plan import Fault, FaultKind
from mycel.sim.policies import policy_named
from mycel.sim.policies.homes.homes_policy import Homes
from mycel.sim.reference_engine import Engine
from mycel.sim.run_records import Settings
from mycel.sim.sim_network import RoutedNetwork
from mycel.sim.workloads.synthetic import Synthetic, generate
from mycel.topology.leaf_spine import LeafSpine, build


def _engine(policy: str, faults: list[Fault], spines: int = 2) -> Engine:
    topology = build(LeafSpine(spines=spines, leaves=3, servers_per_leaf=4))
    work = generate(Synthetic(jobs=150, tasks_per_job=2, task_s=0.1), 0.6, 24, 12, seed=2)
    return Engine(
        [Capacity(2000)] * 12,
        work.jobs(),
        policy_named(policy),
        network=RoutedNetwork(topology, 3, software_ns=NS_PER_MS // 10),
        settings=Settings(seed=2, schedulers=3, detection_ns=20 * NS_PER_MS),
        faults=faults,
    )


POLICIES = ["central-fifo", "random", "power-of-d", "sparrow", "work-stealing", "gossip", "homes"]
POLICIES += ["dht", "directory"]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_leaf_that_is_cut_off_for_a_while_loses_no_work(policy: str) -> None:
    """Its servers live on; their results are told when there is a way again."""
    faults = []
    for spine in ("spine-0", "spine-1"):
        link = ("leaf-1", spine)
        faults.append(Fault(at_ns=200 * NS_PER_MS, kind=FaultKind.FAIL, link=link))
        faults.append(Fault(at_ns=900 * NS_PER_MS, kind=FaultKind.RETURN, link=link))
    engine = _engine(policy, faults)
    engine.run()
    assert engine.unfinished == 0
    assert engine.counters.undelivered > 0
    assert engine.counters.losses == 0
    assert all(len(server.running) == 0 for server in engine.servers)


def test_homes_forget_no_held_place_over_partitions() -> None:
    """Many short cuts under load. A job long after finds as much room as in the beginning."""
    faults = [
        Fault(at_ns=at_ms * NS_PER_MS, kind=kind, link=("leaf-1", "spine-0"))
        for start_ms in range(100, 900, 10)
        for at_ms, kind in ((start_ms, FaultKind.FAIL), (start_ms + 5, FaultKind.RETURN))
    ]
    topology = build(LeafSpine(spines=1, leaves=3, servers_per_leaf=4))
    jobs = generate(Synthetic(jobs=300, tasks_per_job=4, task_s=0.02), 0.95, 24, 6, seed=2).jobs()
    late = Job(len(jobs), 9 * NS_PER_S, 0)
    late.add(4 * len(jobs), SLOT, NS_PER_S, NS_PER_S)
    engine = Engine(
        [Capacity(2000)] * 12,
        [*jobs, late],
        Homes,
        network=RoutedNetwork(topology, 6, software_ns=NS_PER_MS // 10),
        settings=Settings(seed=2, schedulers=6, detection_ns=20 * NS_PER_MS),
        faults=faults,
    )
    engine.run()
    assert engine.unfinished == 0
    assert engine.counters.undelivered > 20
    assert isinstance(engine.policy, Homes)
    room = sum(ledger.cores_free_milli for ledger in engine.policy.ledgers)
    assert room == 24_000 - 1000  # only the late task, whose end was not heard yet


@pytest.mark.parametrize("policy", POLICIES)
def test_one_dead_spine_of_two_costs_nothing(policy: str) -> None:
    fault = Fault(at_ns=200 * NS_PER_MS, kind=FaultKind.FAIL, node="spine-0")
    engine = _engine(policy, [fault])
    engine.run()
    assert engine.unfinished == 0
    assert engine.counters.undelivered == 0


def test_a_straggler_takes_longer() -> None:
    job = Job(0, NS_PER_S, 0)
    job.add(0, SLOT, NS_PER_S, NS_PER_S)
    fault = Fault(at_ns=0, kind=FaultKind.SLOW, server=0, slowdown=3.0)
    Engine([Capacity(1000)], [job], policy_named("central-fifo"), faults=[fault]).run()
    assert job.end_ns == 4 * NS_PER_S
