"""Every policy finishes the work, counts its messages and survives failures."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mycel.sim.entities import NS_PER_MS, NS_PER_S, SLOT, Capacity, Demand, Job, Task
from mycel.sim.errors import PolicyFault, ScenarioError
from mycel.sim.fault_plan import Fault, FaultKind
from mycel.sim.policies import POLICIES, policy_named
from mycel.sim.policy import Policy
from mycel.sim.reference_engine import Engine
from mycel.sim.run_records import Settings
from mycel.sim.sim_network import ConstantNetwork
from mycel.sim.workloads.synthetic import Synthetic, generate


def _run(policy: str, *, faults: Sequence[Fault] = (), seed: int = 5, load: float = 0.8) -> Engine:
    spec = Synthetic(jobs=120, tasks_per_job=4, task_s=0.2, durations="exponential")
    work = generate(spec, load, 80, 6, seed=seed)
    engine = Engine(
        [Capacity(4000)] * 20,
        work.jobs(),
        policy_named(policy),
        network=ConstantNetwork(NS_PER_MS // 2),
        settings=Settings(seed=seed, schedulers=6, detection_ns=50 * NS_PER_MS),
        faults=faults,
    )
    engine.run()
    return engine


def _story(engine: Engine) -> list[tuple[int, int, int]]:
    return [(t.start_ns, t.end_ns, t.server) for job in engine.jobs for t in job.tasks]


@pytest.mark.parametrize("policy", POLICIES)
def test_all_work_ends_and_no_server_is_overfull(policy: str) -> None:
    engine = _run(policy)
    assert engine.unfinished == 0
    for server in engine.servers:
        assert not server.running
        assert server.resources.cores_milli == 4000
    for job in engine.jobs:
        assert all(task.end_ns - task.start_ns == task.duration_ns for task in job.tasks)
        assert all(task.start_ns >= job.arrival_ns for task in job.tasks)
    moments = sorted(
        moment
        for start, end, server in _story(engine)
        if server >= 0
        for moment in ((start, 1, server), (end, -1, server))
    )
    busy = [0] * 20
    for _, change, place in moments:
        busy[place] += change
        assert busy[place] <= 4


@pytest.mark.parametrize("policy", POLICIES)
def test_the_seed_decides_everything(policy: str) -> None:
    assert _story(_run(policy)) == _story(_run(policy))


@pytest.mark.parametrize("policy", sorted(set(POLICIES) - {"ideal"}))
def test_work_survives_servers_that_die_and_return(policy: str) -> None:
    faults = [
        Fault(at_ns=200 * NS_PER_MS * (number + 1), kind=kind, server=server)
        for number, (server, kind) in enumerate(
            [
                (3, FaultKind.FAIL),
                (4, FaultKind.FAIL),
                (3, FaultKind.RETURN),
                (9, FaultKind.FAIL),
                (9, FaultKind.RETURN),  # before its death is detected by a slow scheduler
                (0, FaultKind.FAIL),
            ]
        )
    ]
    engine = _run(policy, faults=faults)
    assert engine.unfinished == 0
    assert engine.counters.losses > 0


def test_nothing_beats_the_ideal_and_central_beats_random() -> None:
    def mean_ns(policy: str) -> float:
        engine = _run(policy, load=0.9)
        return sum(job.end_ns - job.arrival_ns for job in engine.jobs) / len(engine.jobs)

    ideal, central, random = mean_ns("ideal"), mean_ns("central-fifo"), mean_ns("random")
    assert ideal < central < random


def test_sparrow_sends_six_messages_a_task() -> None:
    assert _run("sparrow").counters.messages == 6 * 480


def test_two_replicas_of_a_directory_give_the_same_place_and_one_is_refused() -> None:
    jobs = _jobs([(0, 10), (0, 10)])
    jobs[1].entry = 1
    kind = policy_named("directory")
    engine = Engine(
        [Capacity(1000)] * 2,
        jobs,
        kind,
        kind.options_type(replicas=2),
        network=ConstantNetwork(NS_PER_MS),
        settings=Settings(schedulers=2),
    )
    engine.run()
    assert sorted(job.tasks[0].server for job in jobs) == [0, 1]
    starts_ms = sorted(job.tasks[0].start_ns / NS_PER_MS for job in jobs)
    # Each scheduler is a replica. Sent; refused by the server; sent again.
    assert starts_ms == [1, 3]


def test_what_a_hash_table_says_is_as_old_as_it_was_published() -> None:
    """The first job fills the only server that is published as empty; the second one is refused."""
    jobs = _jobs([(1, 10), (2, 10)])
    kind = policy_named("dht")
    options = kind.options_type(publish_ms=60_000, cache_ms=0)
    engine = Engine([Capacity(1000)] * 2, jobs, kind, options, network=ConstantNetwork(NS_PER_MS))
    engine.run()
    assert sorted(job.tasks[0].server for job in jobs) == [0, 1]
    assert jobs[1].tasks[0].start_ns > jobs[1].arrival_ns + 3 * NS_PER_MS


def test_shortest_first_goes_first() -> None:
    jobs = _jobs([(0, 10), (1, 8), (2, 2)])
    engine = Engine([Capacity(1000)], jobs, policy_named("central-sjf"))
    engine.run()
    assert [job.tasks[0].start_ns // NS_PER_S for job in jobs] == [0, 12, 10]


def test_easy_fills_the_gap_without_delaying_the_first() -> None:
    """Two slots: 0 runs on one for 10 s; 1 needs both; 2 fits before it, 3 does not."""
    jobs = _jobs([(0, 10), (1, 5), (2, 6), (3, 20)], gangs={1: 2})
    engine = Engine([Capacity(1000)] * 2, jobs, policy_named("easy-backfill"))
    engine.run()
    assert [job.tasks[0].start_ns // NS_PER_S for job in jobs] == [0, 10, 2, 15]
    fifo = _jobs([(0, 10), (1, 5), (2, 6), (3, 20)], gangs={1: 2})
    Engine([Capacity(1000)] * 2, fifo, policy_named("central-fifo")).run()
    assert [job.tasks[0].start_ns // NS_PER_S for job in fifo] == [0, 10, 15, 15]


def test_a_gang_starts_at_once() -> None:
    jobs = _jobs([(0, 10), (0, 3), (1, 4)], gangs={2: 2})
    Engine([Capacity(1000)] * 2, jobs, policy_named("central-fifo")).run()
    assert {task.start_ns // NS_PER_S for task in jobs[2].tasks} == {10}


def test_priority_preempts_and_the_victim_runs_again() -> None:
    jobs = _jobs([(0, 10), (2, 3)])
    jobs[1].priority = 5
    kind = policy_named("central-fifo")
    engine = Engine([Capacity(1000)], jobs, kind, kind.options_type(preempt=True))
    engine.run()
    assert jobs[1].tasks[0].start_ns == 2 * NS_PER_S
    assert engine.counters.preemptions == 1
    assert jobs[0].tasks[0].preemptions == 1
    assert jobs[0].end_ns == 15 * NS_PER_S  # from the beginning, after the other


def test_kept_progress_is_not_run_again() -> None:
    jobs = _jobs([(0, 10), (2, 3)])
    jobs[1].priority = 5
    kind = policy_named("gossip")
    engine = Engine(
        [Capacity(1000)],
        jobs,
        kind,
        kind.options_type(preempt=True),
        settings=Settings(keeps_progress=True),
    )
    engine.run()
    assert jobs[0].end_ns == 13 * NS_PER_S


def test_a_policy_that_overfills_a_server_is_stopped() -> None:
    class Greedy(Policy):
        name = "greedy"

        def place(self, job: Job, tasks: Sequence[Task]) -> None:
            for task in tasks:
                self.engine.start(task, 0)

    with pytest.raises(PolicyFault, match=r"'greedy' at 1\.000000 s placed task 1 .* is full"):
        Engine([Capacity(1000)], _jobs([(0, 10), (1, 10)]), Greedy).run()


def test_work_that_can_never_fit_is_refused() -> None:
    job = Job(0, 0, 0, name="large")
    job.add(0, Demand(cores_milli=9000), 1, 1)
    with pytest.raises(ScenarioError, match="job large needs 9 cores for one task"):
        Engine([Capacity(8000)] * 3, [job], policy_named("random"))
    with pytest.raises(ScenarioError, match=r"starts 5 tasks at once.*room for 4"):
        Engine([Capacity(2000)] * 2, _jobs([(0, 1)], gangs={0: 5}), policy_named("central-fifo"))


def test_gangs_go_only_to_policies_that_start_them() -> None:
    with pytest.raises(ScenarioError, match="'sparrow' does not start gangs"):
        Engine([Capacity(1000)] * 9, _jobs([(0, 1)], gangs={0: 5}), policy_named("sparrow"))


def test_servers_that_differ_are_refused_by_policies_that_do_not_look() -> None:
    with pytest.raises(ScenarioError, match="'random' sends tasks to any server"):
        Engine([Capacity(1000), Capacity(2000)], _jobs([(0, 1)]), policy_named("random"))


@pytest.mark.parametrize(
    "policy", ["homes", "best-fit", "packing", "dot-product", "fgd", "dht", "directory"]
)
def test_tasks_of_several_shapes_on_servers_that_differ(policy: str) -> None:
    """Cores, memory and shared GPUs at once, near the capacity."""
    shapes = [
        Demand(1000, 512),
        Demand(3000, 100),
        Demand(500, 0, 1, 300),
        Demand(500, 0, 2),
        Demand(100, 0, 1, 700, frozenset({"B"})),
    ]
    jobs = []
    for number in range(200):
        job = Job(number, number * 3 * NS_PER_MS, number)
        for step in range(3):
            length_ns = (20 + number % 7 * 10) * NS_PER_MS
            job.add(3 * number + step, shapes[(number + step) % 5], length_ns, length_ns)
        jobs.append(job)
    servers = [Capacity(4000, 2048, 2, "A"), Capacity(8000, 4096, 4, "B"), Capacity(4000, 2048)] * 4
    engine = Engine(
        servers,
        jobs,
        policy_named(policy),
        network=ConstantNetwork(NS_PER_MS // 2),
        settings=Settings(schedulers=4),
    )
    engine.run()
    assert engine.unfinished == 0
    assert max(task.start_ns - job.arrival_ns for job in jobs for task in job.tasks) > NS_PER_MS


def test_easy_refuses_what_is_not_slots() -> None:
    job = Job(0, 0, 0)
    job.add(0, Demand(cores_milli=2000), 1, 1)
    with pytest.raises(ScenarioError, match="counts slots"):
        Engine([Capacity(8000)], [job], policy_named("easy-backfill"))


def test_fgd_keeps_whole_gpus_whole() -> None:
    """A half GPU goes beside the other half, so that a whole one is left."""
    half = Demand(gpus=1, gpu_milli=500)
    whole = Demand(gpus=1)
    jobs = []
    for number, demand in enumerate([half, half, whole]):
        job = Job(number, number, 0)
        job.add(number, demand, NS_PER_S, NS_PER_S)
        jobs.append(job)
    engine = Engine(
        [Capacity(9000, 0, 1, "A"), Capacity(9000, 0, 1, "A")], jobs, policy_named("fgd")
    )
    engine.run()
    servers = [job.tasks[0].server for job in jobs]
    assert servers[0] == servers[1] != servers[2]


def test_an_unknown_policy_gets_a_hint() -> None:
    with pytest.raises(ScenarioError, match="did you mean 'sparrow'"):
        policy_named("sparow")


def _jobs(times_s: list[tuple[int, int]], gangs: dict[int, int] | None = None) -> list[Job]:
    """(arrival, duration) of each; a gang has several tasks."""
    made: list[Job] = []
    index = 0
    for number, (arrival, duration) in enumerate(times_s):
        count = (gangs or {}).get(number, 1)
        job = Job(number, arrival * NS_PER_S, 0, is_gang=count > 1)
        for _ in range(count):
            job.add(index, SLOT, duration * NS_PER_S, duration * NS_PER_S)
            index += 1
        made.append(job)
    return made
