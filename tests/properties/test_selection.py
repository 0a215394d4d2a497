"""The matching engine against the plain matcher: for every algorithm, strategy and metric the
same workers pass the filter, and the choice is one of the plain matcher's best."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from mycel.bench.matching.brute_force import Record, Rules, choices, has_room, is_able, taken_by
from mycel.bench.matching.matching_bench import Bench
from mycel.core.matching import Pool, SelectionSettings, total_of
from mycel.core.model.prices import Tariff
from mycel.core.model.resources import Capabilities, Free, Gpu, GpuRequirement, Requirements
from mycel.core.model.work import Shape

GB = 10**9
gpus = st.sampled_from([Gpu("T4", 16 * GB), Gpu("A100", 40 * GB), Gpu("A100", 80 * GB)])
capabilities = st.builds(
    Capabilities,
    cpu_cores=st.sampled_from([8.0, 8.0, 64.0, 2.0, 0.5]),
    memory=st.sampled_from([16 * GB, 17 * GB, 64 * GB, 8 * GB, 0]) | st.integers(0, 70 * GB),
    disk=st.sampled_from([100 * GB, 100 * GB, 3]),
    gpus=st.lists(gpus, max_size=3).map(tuple),
    models=st.sampled_from([(), ("llama",), ("llama", "gemma")]),
    drivers=st.sampled_from([("process", "python", "model")] * 4 + [("process",), ()]),
    labels=st.sampled_from([(), (("zone", "a"),), (("zone", "b"), ("rack", "1"))]),
    arch=st.sampled_from(["x86_64", "arm64", ""]),
    os=st.sampled_from(["linux", "darwin"]),
    software=st.sampled_from([(), (("cuda", "12.4"),), (("cuda", "13"), ("python", "3.11.7"))]),
    custom=st.sampled_from(
        [
            (),
            (("licence", 1.0),),
            (("licence", 3.5),),
            (("model:llama", 2.0),),
            (("licence", 2.0), ("model:llama", 1.0)),
        ]
    ),
    sandbox=st.sampled_from(["", "bubblewrap"]),
    network=st.booleans(),
    price=st.sampled_from([0.0, 0.0, 0.005, 0.5, 2.0]).map(Tariff),
)
requirements = st.builds(
    Requirements,
    cpu_cores=st.sampled_from([0.0, 1.0, 0.25, 1.5, 4.0]),
    min_memory=st.sampled_from([0, 0, 0, GB, 8 * GB, 16 * GB, 20_000_000_001]),
    disk=st.sampled_from([0] * 6 + [5, GB]),
    gpus=st.none()
    | st.none()
    | st.builds(
        GpuRequirement,
        count=st.sampled_from([0.25, 0.5, 1.0, 2.0]),
        model=st.sampled_from(["", "", "A100"]),
        memory=st.sampled_from([0, 16 * GB, 50 * GB]),
    ),
    custom=st.sampled_from([()] * 6 + [(("licence", 1.0),)]),
    labels=st.sampled_from([()] * 6 + [(("zone", "a"),), (("zone", "b"),)]),
    arch=st.sampled_from([""] * 6 + ["arm64"]),
    os=st.sampled_from(["", "linux"]),
    software=st.sampled_from([()] * 6 + [(("cuda", ">=12.2,<13"),), (("cuda", "!=13.0"),)]),
)
shapes = st.builds(
    Shape,
    driver=st.sampled_from(["process", "process", "python", "model"]),
    requirements=requirements,
    model=st.just("llama"),
    max_cost=st.sampled_from([None, None, 0.0, 1.0]),
    sandbox=st.sampled_from(["", "", "required"]),
    network=st.sampled_from([False, False, True]),
)
rules = st.builds(
    Rules,
    algorithm=st.sampled_from(["round-robin", "capability-based", "performance-aware", "best"]),
    strategy=st.sampled_from(["least-loaded", "random", "performance"]),
    load_metric=st.sampled_from(["task-count", "cpu-usage", "memory-usage"]),
    prefer_local_workers=st.booleans(),
)
fractions = st.sampled_from([0.0, 0.3, 0.5, 0.99, 1.0])
amounts = st.tuples(fractions, fractions, fractions)


class Twins:
    """The pool and the plain records of the same workers, told the same."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.pool = Pool(
            SelectionSettings(
                algorithm=rules.algorithm,
                strategy=rules.strategy,
                load_metric=rules.load_metric,
                prefer_local_workers=rules.prefer_local_workers,
                max_network_latency_seconds=rules.max_network_latency_seconds,
            )
        )
        self.records: dict[str, Record] = {}
        self.requests = 0
        self.last_turn = -1

    def come(self, key: str, has: Capabilities, linked: bool, local: bool) -> None:
        member = self.pool.put(key, has, linked=linked, local=local)
        before = self.records.get(key)
        record = Record(key, member.slot, has, total_of(has))
        if before is not None:
            record = before
            if has != before.capabilities or not linked:
                record.free = total_of(has)
            if not linked:
                record.running = 0
        record.capabilities, record.linked, record.local = has, linked, local
        self.records[key] = record

    def go(self, key: str) -> None:
        self.pool.remove(key)
        self.records.pop(key, None)

    def report(self, key: str, left: tuple[float, float, float], running: int) -> None:
        record = self.records[key]
        all_of_it = total_of(record.capabilities)
        free = Free(
            cpu_millis=int(all_of_it.cpu_millis * left[0]),
            memory=int(all_of_it.memory * left[1]),
            disk=all_of_it.disk,
            gpu_millis=tuple(int(1000 * left[2]) for _ in all_of_it.gpu_millis),
            custom=tuple((name, float(int(most * left[2]))) for name, most in all_of_it.custom),
        )
        record.free, record.running = free, running
        member = self.pool.get(key)
        assert member is not None
        self.pool.report(member, free, running)

    def stand(self, key: str, available: bool, rtt: float | None, rate: float | None) -> None:
        record, member = self.records[key], self.pool.get(key)
        assert member is not None
        record.available = available
        self.pool.set_available(member, available)
        if rtt is not None:
            record.rtt_seconds = rtt
            self.pool.set_rtt(member, rtt)
        if rate is not None:
            record.success_rate, record.relative_seconds = rate, 0.5 + rate
            self.pool.measure(member, rate, 0.5 + rate)

    def decide(self, shape: Shape, slots: int) -> None:
        """Both choose; what was chosen is asked, so that it counts as load from then on."""
        expected = choices(list(self.records.values()), shape, self.rules, self.last_turn)
        found = next(self.pool.ranked(shape, lambda: 0.4), None)
        if found is None:
            assert not expected
            return
        member, room = found
        assert member.key in expected, (member.key, expected)
        record = self.records[member.key]
        assert room == has_room(record, taken_by(shape))
        self.requests += 1
        self.pool.ask(member, self.requests, shape, slots)
        record.assigned.append((taken_by(shape), slots))
        self.last_turn = member.slot
        self.pool.has_run(member, shape)
        record.has_run.add(shape)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("come"), st.integers(0, 7), capabilities, st.booleans(), st.booleans()),
        st.tuples(st.just("go"), st.integers(0, 7)),
        st.tuples(st.just("report"), st.integers(0, 7), amounts, st.integers(0, 40)),
        st.tuples(
            st.just("stand"),
            st.integers(0, 7),
            st.sampled_from([True, True, True, False]),
            st.sampled_from([None, 0.001, 0.03, 0.09, 0.3]),
            st.sampled_from([None, 0.0, 0.5, 0.9, 0.95, 1.0]),
        ),
        st.tuples(st.just("decide"), shapes, st.integers(1, 3)),
        st.tuples(st.just("decide"), shapes, st.integers(1, 3)),
    ),
    min_size=10,
    max_size=40,
)


@settings(max_examples=300, deadline=None)
@given(rules, st.lists(capabilities, min_size=3, max_size=8), steps)
def test_the_engine_decides_as_the_plain_matcher(
    rules: Rules, first: list[Capabilities], steps: list[tuple[object, ...]]
) -> None:
    twins = Twins(rules)
    for number, has in enumerate(first):
        twins.come(f"w{number}", has, True, False)
    for name, *arguments in steps:
        act: Callable[..., None] = getattr(twins, str(name))
        if name != "decide":
            arguments[0] = f"w{arguments[0]}"
        if name in ("report", "stand") and arguments[0] not in twins.records:
            continue
        act(*arguments)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32))
def test_a_fleet_is_matched_as_by_the_plain_matcher(seed: int) -> None:
    bench = Bench(30, seed)
    bench.fill()
    agree, _ = bench.compare(80)
    assert agree


@given(st.lists(capabilities, max_size=8), shapes)
def test_the_filter_is_the_plain_matchers(workers: list[Capabilities], shape: Shape) -> None:
    pool = Pool()
    for number, has in enumerate(workers):
        pool.put(str(number), has, linked=True)
    able = sum(1 << number for number, has in enumerate(workers) if is_able(has, shape))
    assert pool.eligible(shape) == able


def test_a_worker_without_room_is_no_standard_for_the_others() -> None:
    """It stands in the same bucket as those that have room, and is quicker than all of them: who
    is within 10 % of the quickest is not judged by it."""
    bench = Bench(30, 769)
    bench.fill()
    agree, _ = bench.compare(80)
    assert agree
