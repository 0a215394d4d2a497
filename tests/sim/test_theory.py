"""The engine against queueing theory. Seeds are fixed, so these either always pass or never."""

from __future__ import annotations

import numpy
import pytest

from mycel.sim import theory
from mycel.sim.fast.fast_engine import Cluster, run_fast
from mycel.sim.policies import policy_named
from mycel.sim.workloads.synthetic import Synthetic, generate


@pytest.mark.parametrize(
    ("servers", "load", "runs"), [(1, 0.5, 1), (4, 0.7, 1), (10, 0.8, 2), (100, 0.9, 6)]
)
def test_waits_in_mmk_are_those_of_erlang_c(servers: int, load: float, runs: int) -> None:
    """Large systems under load forget slowly, and need more runs for the same precision."""
    means_s, shares = [], []
    for seed in range(1, runs + 1):
        spec = Synthetic(jobs=4_000_000, task_s=1.0, durations="exponential")
        work = generate(spec, load, servers, 1, seed=seed)
        cluster = Cluster(servers=servers, slots=1, one_way_ns=0, seed=seed)
        options = policy_named("central-fifo").options_type()
        result = run_fast(cluster, work, "central-fifo", options)
        waits_s = (result.start_ns - work.arrival_ns) / 1e9
        means_s.append(waits_s.mean())
        shares.append((waits_s > 0).mean())
    assert numpy.mean(means_s) == pytest.approx(theory.mean_wait(servers, load), rel=0.01)
    assert numpy.mean(shares) == pytest.approx(theory.erlang_c(servers, load), rel=0.01)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_power_of_d_is_the_supermarket_model(d: int) -> None:
    load, servers = 0.8, 2000
    spec = Synthetic(jobs=2_000_000, task_s=1.0, durations="exponential")
    work = generate(spec, load, servers, 1, seed=4)
    cluster = Cluster(servers=servers, slots=1, one_way_ns=0, seed=4)
    options = policy_named("power-of-d").options_type(d=d)
    result = run_fast(cluster, work, "power-of-d", options)
    sojourn_s = (result.end_ns - work.arrival_ns)[200_000:] / 1e9
    assert sojourn_s.mean() == pytest.approx(theory.supermarket(load, d), rel=0.01)


def test_push_pull_reaches_ten_thousand_nodes_in_seven_rounds() -> None:
    rounds = [theory.gossip_rounds(10_000, 3, seed) for seed in range(60)]
    assert numpy.mean(rounds) == pytest.approx(6.7, abs=0.5)


def test_the_formulas_themselves() -> None:
    assert theory.erlang_c(1, 0.5) == pytest.approx(0.5)  # M/M/1
    assert theory.mean_wait(1, 0.5) == pytest.approx(1.0)
    assert theory.erlang_c(2, 0.75) == pytest.approx(0.6428571428571429)
    assert theory.supermarket(0.9, 2) == pytest.approx(2.6141, abs=1e-3)
    assert theory.supermarket(0.5, 1) == pytest.approx(2.0)
