"""Flows share links max-min fairly, and data delays the start of a task."""

from __future__ import annotations

import pytest

from mycel.sim.data_flows import fair_rates
from mycel.sim.entities import NS_PER_S, SLOT, Capacity, Job
from mycel.sim.policies import policy_named
from mycel.sim.reference_engine import Engine
from mycel.sim.run_records import Settings
from mycel.sim.sim_network import RoutedNetwork
from mycel.topology.leaf_spine import LeafSpine, build


def test_equal_flows_share_a_link_equally() -> None:
    assert fair_rates([[(0, 0)], [(0, 0)]], {(0, 0): 10.0}) == [5.0, 5.0]


def test_what_a_narrow_flow_leaves_goes_to_the_others() -> None:
    """The textbook case: a and b share link 0, b and c link 1."""
    flows = [[(0, 0)], [(0, 0), (1, 0)], [(1, 0)]]
    assert fair_rates(flows, {(0, 0): 10.0, (1, 0): 4.0}) == [8.0, 2.0, 2.0]


def test_directions_do_not_share() -> None:
    assert fair_rates([[(0, 0)], [(0, 1)]], {(0, 0): 10.0, (0, 1): 10.0}) == [10.0, 10.0]


def test_no_link_is_no_limit() -> None:
    assert fair_rates([[]], {}) == [float("inf")]


def test_two_transfers_over_one_link_take_twice_as_long() -> None:
    """Both tasks leave server 0, so its access link is the bottleneck: 1 GB at 8 Gbit/s each."""
    topology = build(
        LeafSpine(spines=1, leaves=3, fabric_bits_per_s=8 * 10**9, fabric_latency_ns=1000)
    )
    job = Job(0, 0, 0, data_bytes=10**9)
    for index in range(2):
        job.add(index, SLOT, NS_PER_S, NS_PER_S)
    engine = Engine(
        [Capacity(0), Capacity(1000), Capacity(1000)],
        [job],
        policy_named("central-fifo"),
        network=RoutedNetwork(topology, 1),
        settings=Settings(),
    )
    engine.run()
    starts_s = [task.start_ns / NS_PER_S for task in job.tasks]
    assert starts_s == [pytest.approx(2.0, abs=1e-3)] * 2
    link = topology.link_between(topology.node("leaf-0"), topology.node("spine-0"))
    assert engine.bits_carried[link, 1] == pytest.approx(1.6e10)
