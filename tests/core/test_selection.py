"""Selection, rule by rule: filter, order, tie-break; load includes what was just assigned."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mycel.core.matching import ALGORITHMS, Member, Pool, SelectionSettings, View
from mycel.core.matching.worker_pool import FILES_KEPT_MAX
from mycel.core.model.prices import Tariff
from mycel.core.model.resources import Capabilities, Free, Gpu, GpuRequirement, Requirements, Usage
from mycel.core.model.work import Shape

GB = 10**9
MACHINE = Capabilities(cpu_cores=4.0, memory=8 * GB, drivers=("process",))
TASK = Shape("process", Requirements(cpu_cores=1.0))


def settings(algorithm: str = "capability-based", **others: object) -> SelectionSettings:
    return SelectionSettings(algorithm=algorithm, **others)  # type: ignore[arg-type]


def pool_of(
    names: str, chosen: SelectionSettings | None = None, has: Capabilities = MACHINE
) -> Pool:
    """One worker for each letter."""
    pool = Pool(chosen or settings())
    for name in names:
        pool.put(name, has, linked=True)
    return pool


def member(pool: Pool, name: str) -> Member:
    found = pool.get(name)
    assert found is not None
    return found


def order(pool: Pool, shape: Shape = TASK, chance: float = 0.0) -> str:
    return "".join(one.key for one, _ in pool.ranked(shape, lambda: chance))


def use(pool: Pool, name: str, cores: float, tasks: int = 0, memory: int = 0) -> None:
    """So much of the worker is taken."""
    has = member(pool, name).capabilities
    free = Free(
        cpu_millis=round((has.cpu_cores - cores) * 1000),
        memory=has.memory - memory,
        gpu_millis=(1000,) * len(has.gpus),
    )
    pool.report(member(pool, name), free, tasks)


class TestFilter:
    def test_the_whole_requirement_counts(self) -> None:
        pool = pool_of("a")
        pool.put("b", Capabilities(cpu_cores=8.0, memory=GB, drivers=("process",)), linked=True)
        assert order(pool, Shape("process", Requirements(cpu_cores=1.0, min_memory=2 * GB))) == "a"
        assert order(pool, Shape("process", Requirements(cpu_cores=6.0))) == "b"
        assert order(pool, Shape("process", Requirements(cpu_cores=6.0, min_memory=2 * GB))) == ""

    def test_who_is_not_healthy_is_left_out_and_comes_back(self) -> None:
        pool = pool_of("ab")
        pool.set_available(member(pool, "a"), False)
        assert order(pool) == "b"
        pool.set_available(member(pool, "a"), True)
        assert order(pool) == "ab"

    def test_a_far_worker_is_asked_only_if_no_closer_one_takes_it(self) -> None:
        pool = pool_of("ab", settings(max_network_latency_seconds=0.1))
        pool.set_rtt(member(pool, "b"), 0.3)
        assert order(pool) == "a"
        pool.set_available(member(pool, "a"), False)
        assert order(pool) == "b", "the closer one takes nothing now"
        pool.set_available(member(pool, "a"), True)
        use(pool, "a", cores=4.0)
        assert order(pool) == "a", "it has only no room"
        only = pool.filtered(TASK, refusing=1 << member(pool, "a").slot)
        assert only == 1 << member(pool, "b").slot, "the closer one does not want it"
        pool.remove("a")
        assert order(pool) == "b"

    def test_exactly_the_limit_is_not_far(self) -> None:
        pool = pool_of("ab", settings(max_network_latency_seconds=0.1))
        pool.set_rtt(member(pool, "a"), 0.1)
        assert order(pool) == "ab"

    def test_an_unknown_distance_passes(self) -> None:
        pool = pool_of("ab", settings(max_network_latency_seconds=0.001))
        assert order(pool) == "ab"

    def test_an_offer_above_max_cost_is_not_asked_for(self) -> None:
        pool = pool_of("a")
        dear = Capabilities(cpu_cores=4.0, memory=8 * GB, drivers=("process",), price=Tariff(2.0))
        pool.put("b", dear, linked=True)
        assert order(pool, Shape("process", TASK.requirements, max_cost=1.0)) == "a"
        assert set(order(pool, Shape("process", TASK.requirements, max_cost=2.0))) == {"a", "b"}


class TestOrder:
    def test_round_robin_rotates_over_the_filtered(self) -> None:
        pool = pool_of("abc", settings("round-robin"))
        pool.set_available(member(pool, "b"), False)
        chosen = ""
        for request in range(4):
            one, _ = next(pool.ranked(TASK, lambda: 0.0))
            chosen += one.key
            pool.ask(one, request, TASK, 1)
            pool.answered(one, request)
        assert chosen == "acac"

    @pytest.mark.parametrize(
        ("metric", "expected"),
        [("task-count", "abc"), ("cpu-usage", "bca"), ("memory-usage", "cab")],
    )
    def test_capability_based_takes_the_least_load_by_the_metric(
        self, metric: str, expected: str
    ) -> None:
        pool = pool_of("abc", settings(load_metric=metric))
        use(pool, "a", cores=3.0, tasks=1, memory=4 * GB)
        use(pool, "b", cores=1.0, tasks=2, memory=6 * GB)
        use(pool, "c", cores=2.0, tasks=3, memory=2 * GB)
        assert order(pool) == expected

    def test_performance_aware_takes_the_highest_score(self) -> None:
        pool = pool_of("abc", settings("performance-aware"))
        pool.measure(member(pool, "a"), success_rate=0.9, relative_seconds=2.0)
        pool.measure(member(pool, "b"), success_rate=0.9, relative_seconds=0.5)
        pool.measure(member(pool, "c"), success_rate=0.5, relative_seconds=0.5)
        assert order(pool) == "bca"

    def test_scores_within_a_tenth_are_equal(self) -> None:
        pool = pool_of("abc", settings("performance-aware"))
        use(pool, "a", cores=1.0, tasks=1)
        pool.measure(member(pool, "a"), 1.0, 1.0)
        pool.measure(member(pool, "b"), 0.95, 1.0)
        pool.measure(member(pool, "c"), 0.8, 1.0)
        assert order(pool) == "bac", "b is as good as a and less loaded; c is not as good"

    def test_who_has_no_room_is_looked_at_once(self) -> None:
        pool = pool_of("abcdefgh", settings("performance-aware"))
        for place, name in enumerate("abcdefgh"):
            pool.measure(member(pool, name), 1.0 - place / 20, 1.0)
        looks: list[int] = []

        def counts(slot: int) -> bool:
            looks.append(slot)
            return slot == member(pool, "h").slot

        everybody = (1 << 8) - 1
        view = View(pool, TASK, lambda: 0.0, counts=counts)
        for _ in range(5):
            assert next(view.by_history(everybody))
        others = [slot for slot in looks if slot != member(pool, "h").slot]
        assert len(others) == len(set(others)) == 7

    def test_who_was_not_measured_stands_at_the_mean(self) -> None:
        pool = pool_of("abc", settings("performance-aware"))
        pool.measure(member(pool, "a"), 1.0, 0.5)
        pool.measure(member(pool, "b"), 1.0, 5.0)
        assert order(pool) == "acb"

    def test_those_with_room_come_first(self) -> None:
        pool = pool_of("ab")
        use(pool, "a", cores=4.0)
        use(pool, "b", cores=3.0, tasks=5)
        assert [room for _, room in pool.ranked(TASK, lambda: 0.0)] == [True, False]
        assert order(pool) == "ba"

    def test_best_leaves_gpus_to_those_who_want_them(self) -> None:
        pool = pool_of("a", settings("best"))
        gpu = Gpu("T4", 16 * GB)
        with_gpu = Capabilities(cpu_cores=4.0, memory=8 * GB, gpus=(gpu,), drivers=("process",))
        pool.put("b", with_gpu, linked=True)
        assert order(pool) == "ab"
        assert order(pool, Shape("process", Requirements(gpus=GpuRequirement()))) == "b"

    def test_best_takes_the_smallest_gpu_that_suits(self) -> None:
        pool = Pool(settings("best"))
        for name, memory in (("a", 80), ("b", 24), ("c", 16)):
            gpu = Gpu("X", memory * GB)
            has = Capabilities(cpu_cores=4.0, memory=8 * GB, gpus=(gpu,), drivers=("process",))
            pool.put(name, has, linked=True)
        wanted = GpuRequirement(memory=10 * GB)
        assert order(pool, Shape("process", Requirements(gpus=wanted))) == "cba"

    @pytest.mark.parametrize("worse", ["load", "history", "rtt", "price", "memory", "cold", "call"])
    def test_best_weighs(self, worse: str) -> None:
        """`a` would come first; what speaks against it turns that round."""
        pool = pool_of("ab", settings("best"))
        if worse == "load":
            use(pool, "a", cores=1.0, tasks=1)
        elif worse == "history":
            pool.measure(member(pool, "a"), 0.5, 1.0)
            pool.measure(member(pool, "b"), 1.0, 1.0)
        elif worse == "rtt":
            pool.set_rtt(member(pool, "a"), 0.08)
            pool.set_rtt(member(pool, "b"), 0.001)
        elif worse == "price":
            dear = Capabilities(
                cpu_cores=4.0, memory=8 * GB, drivers=("process",), price=Tariff(0.5)
            )
            pool.put("a", dear, linked=True)
        elif worse == "memory":
            large = Capabilities(cpu_cores=4.0, memory=64 * GB, drivers=("process",))
            pool.put("a", large, linked=True)
        elif worse == "cold":
            pool.has_run(member(pool, "b"), TASK)
        else:
            pool.put("a", MACHINE, linked=False)
        assert order(pool) == "ba"

    def test_load_includes_what_was_just_assigned(self) -> None:
        pool = pool_of("ab")
        pool.ask(member(pool, "a"), 1, TASK, 2)
        assert order(pool) == "ba"
        pool.ask(member(pool, "b"), 2, TASK, 3)
        assert order(pool) == "ab"
        pool.answered(member(pool, "b"), 2)
        assert order(pool) == "ba"

    def test_what_was_just_assigned_takes_room(self) -> None:
        pool = pool_of("a")
        pool.ask(member(pool, "a"), 1, TASK, 4)
        assert [room for _, room in pool.ranked(TASK, lambda: 0.0)] == [False]


class TestTieBreak:
    def test_a_local_one_is_preferred(self) -> None:
        pool = pool_of("ab")
        pool.put("c", MACHINE, linked=True, local=True)
        assert order(pool) == "cab"

    def test_unless_that_is_not_wanted(self) -> None:
        pool = pool_of("ab", settings(prefer_local_workers=False))
        pool.put("c", MACHINE, linked=True, local=True)
        assert order(pool) == "abc"

    def test_only_among_equals(self) -> None:
        pool = pool_of("a")
        pool.put("b", MACHINE, linked=True, local=True)
        use(pool, "b", cores=1.0, tasks=1)
        assert order(pool) == "ab"

    def test_one_with_a_link_before_one_that_has_to_be_called(self) -> None:
        pool = Pool(settings())
        pool.put("a", MACHINE, linked=False)
        pool.put("b", MACHINE, linked=True)
        assert order(pool) == "ba"

    def test_then_the_least_loaded(self) -> None:
        pool = pool_of("ab", settings("performance-aware", strategy="least-loaded"))
        use(pool, "a", cores=1.0, tasks=1)
        assert order(pool) == "ba"

    def test_or_the_best_history(self) -> None:
        pool = pool_of("abc", settings(strategy="performance"))
        pool.measure(member(pool, "a"), 0.5, 1.0)
        pool.measure(member(pool, "b"), 1.0, 1.0)
        pool.measure(member(pool, "c"), 0.7, 1.0)
        assert order(pool) == "bca"

    def test_or_chance(self) -> None:
        pool = pool_of("abcd", settings(strategy="random"))
        firsts = {order(pool, chance=chance)[0] for chance in (0.0, 0.3, 0.6, 0.9)}
        assert firsts == {"a", "b", "c", "d"}


class TestData:
    """Who has a task's files is better, where nothing else speaks against it."""

    @staticmethod
    def near(pool: Pool, *digests: str) -> str:
        having = pool.having(digests)
        return next(pool.ranked(TASK, lambda: 0.0, having_data=having))[0].key

    def test_a_worker_with_the_files_goes_first(self) -> None:
        pool = pool_of("abc", settings("best"))
        pool.has_data(member(pool, "b"), "x")
        assert self.near(pool, "x") == "b"
        assert self.near(pool, "y") == self.near(pool) == "a"

    def test_all_files_are_better_than_some(self) -> None:
        pool = pool_of("abc", settings("best"))
        pool.has_data(member(pool, "b"), "x")
        pool.has_data(member(pool, "c"), "x")
        pool.has_data(member(pool, "c"), "y")
        assert self.near(pool, "x", "y") == "c"
        pool.has_data(member(pool, "a"), "z")
        assert self.near(pool, "y", "z") == "a", "nobody has both: who has any"

    def test_load_weighs_more(self) -> None:
        pool = pool_of("ab", settings("best"))
        pool.has_data(member(pool, "b"), "x")
        use(pool, "b", cores=3.0, tasks=30)
        assert self.near(pool, "x") == "a"

    def test_only_so_many_files_are_remembered(self) -> None:
        pool = pool_of("a", settings("best"))
        for number in range(FILES_KEPT_MAX + 1):
            pool.has_data(member(pool, "a"), str(number))
        assert not pool.having(["0"])
        assert pool.having(["1"])
        assert len(pool.data) == FILES_KEPT_MAX


def test_an_algorithm_of_ones_own_is_a_few_lines() -> None:
    def most_memory(mask: int, view: View) -> Iterator[int]:
        return view.by_key(mask, lambda one: -one.capabilities.memory)

    pool = Pool(settings("most-memory"), {**ALGORITHMS, "most-memory": most_memory})
    for name, memory in (("a", 4), ("b", 64), ("c", 16)):
        has = Capabilities(cpu_cores=4.0, memory=memory * GB, drivers=("process",))
        pool.put(name, has, linked=True)
    assert order(pool) == "bca"


def test_changed_settings_count_at_once() -> None:
    pool = pool_of("ab", settings(load_metric="task-count"))
    use(pool, "a", cores=3.0, tasks=1)
    use(pool, "b", cores=1.0, tasks=2)
    pool.set_rtt(member(pool, "b"), 0.05)
    assert order(pool) == "ab"
    pool.apply(settings(load_metric="cpu-usage"))
    assert order(pool) == "ba"
    pool.apply(settings(max_network_latency_seconds=0.01))
    assert order(pool) == "a"


def test_a_slot_is_used_again_and_nothing_of_the_last_stays() -> None:
    pool = pool_of("ab")
    pool.measure(member(pool, "a"), 0.1, 9.0)
    pool.set_rtt(member(pool, "a"), 5.0)
    pool.has_run(member(pool, "a"), TASK)
    pool.has_data(member(pool, "a"), "x")
    use(pool, "a", cores=4.0, tasks=40)
    pool.remove("a")
    pool.put("c", MACHINE, linked=True)
    assert member(pool, "c").slot == 0
    assert order(pool) == "cb"
    assert pool.mean_history == 0
    assert not any(pool.warm.values())
    assert not pool.having(["x"])


def test_what_a_worker_says_of_gpus_it_does_not_have_counts_for_nothing() -> None:
    pool = Pool(settings())
    has = Capabilities(cpu_cores=4.0, gpus=(Gpu("T4", GB),) * 2, drivers=("process",))
    pool.put("a", has, linked=True)
    pool.report(member(pool, "a"), Free(cpu_millis=4000, gpu_millis=(1000,)), 0)
    two = Shape("process", Requirements(gpus=GpuRequirement(count=2.0)))
    assert [room for _, room in pool.ranked(two, lambda: 0.0)] == [False]
    pool.report(member(pool, "a"), Free(cpu_millis=4000, gpu_millis=(1000,) * 9), 0)
    assert [room for _, room in pool.ranked(two, lambda: 0.0)] == [True]


def test_what_others_use_of_a_machine_counts_as_load() -> None:
    pool = pool_of("ab", settings(load_metric="cpu-usage"))
    use(pool, "b", 1.0)
    assert order(pool) == "ab"
    first = member(pool, "a")
    pool.report(first, first.free, 0, Usage(cpu=15))
    assert order(pool) == "ba"
    pool.report(first, first.free, 0, Usage(memory=15))
    assert order(pool) == "ab"
