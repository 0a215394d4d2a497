"""The fast engine gives exactly what the reference engine gives."""

from __future__ import annotations

import numpy
import pytest

from mycel.sim.entities import NS_PER_MS, Capacity
from mycel.sim.errors import ScenarioError
from mycel.sim.fast.event_heap import below
from mycel.sim.fast.fast_engine import Cluster, run_fast
from mycel.sim.generator import Generator
from mycel.sim.policies import policy_named
from mycel.sim.reference_engine import Engine
from mycel.sim.run_records import Settings
from mycel.sim.sim_network import ConstantNetwork
from mycel.sim.workloads.synthetic import Synthetic, generate

SERVERS, SLOTS = 60, 4


@pytest.mark.parametrize("durations", ["constant", "exponential"])
@pytest.mark.parametrize("load", [0.7, 0.97])
@pytest.mark.parametrize("one_way_ns", [0, NS_PER_MS // 2])
@pytest.mark.parametrize(
    ("policy", "schedulers", "settings"),
    [
        ("ideal", 1, {}),
        ("central-fifo", 1, {}),
        ("random", 3, {}),
        ("power-of-d", 3, {"d": 3}),
        ("sparrow", 5, {}),
        ("homes", 1, {}),
        ("homes", 5, {"slots_per_home": 20}),
        ("homes", 40, {"slots_per_home": 20}),
        ("homes", 9, {"slots_per_home": 60, "cold_link_ms": 0, "asks": 4, "shares": 2}),
    ],
)
def test_both_engines_agree_to_the_nanosecond(
    policy: str,
    schedulers: int,
    settings: dict[str, float],
    one_way_ns: int,
    load: float,
    durations: str,
) -> None:
    spec = Synthetic(jobs=150, tasks_per_job=13, task_s=0.1, durations=durations)  # type: ignore[arg-type]
    work = generate(spec, load, SERVERS * SLOTS, schedulers, seed=7)
    kind = policy_named(policy)
    options = kind.options_type(**settings)
    cluster = Cluster(
        servers=SERVERS, slots=SLOTS, one_way_ns=one_way_ns, schedulers=schedulers, seed=3
    )
    fast = run_fast(cluster, work, policy, options)
    engine = Engine(
        [Capacity(SLOTS * 1000)] * SERVERS,
        work.jobs(),
        kind,
        options,
        network=ConstantNetwork(one_way_ns),
        settings=Settings(seed=3, schedulers=schedulers),
    )
    engine.run()
    tasks = [task for job in engine.jobs for task in job.tasks]
    assert engine.unfinished == 0
    assert [task.start_ns for task in tasks] == fast.start_ns.tolist()
    assert [task.end_ns for task in tasks] == fast.end_ns.tolist()
    assert [task.server for task in tasks] == fast.server.tolist()
    assert engine.counters.messages == fast.messages
    if policy != "ideal":
        assert engine.counters.events == fast.events


def test_both_generators_draw_the_same() -> None:
    generator = Generator(12345)
    state = numpy.array([generator.state], numpy.uint64)
    for limit in (1, 2, 3, 1000, 2**31 - 1, 2**40):
        assert [generator.below(limit) for _ in range(50)] == [
            below(state, limit) for _ in range(50)
        ]


def test_a_policy_without_a_kernel_is_refused() -> None:
    spec = Synthetic(jobs=1)
    work = generate(spec, 0.5, 4, 1, seed=1)
    cluster = Cluster(servers=1, slots=4, one_way_ns=0)
    with pytest.raises(ScenarioError, match="fast engine has no policy 'hawk'"):
        run_fast(cluster, work, "hawk", policy_named("random").options_type())


def test_more_homes_than_the_kernel_has_are_refused() -> None:
    work = generate(Synthetic(jobs=1), 0.5, 400, 1, seed=1)
    cluster = Cluster(servers=100, slots=4, one_way_ns=0, schedulers=80)
    options = policy_named("homes").options_type(homes_max=80, slots_per_home=1)
    with pytest.raises(ScenarioError, match="at most 62 homes"):
        run_fast(cluster, work, "homes", options)
