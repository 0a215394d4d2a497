"""`mycel bench matching`: how long a decision takes among 1,000 to 100,000 workers.

    fleet ─ decisions of distinct shapes, with updates of workers between them
          ─ the same shape again and again
          ─ one group of 1,000 tasks of a shape
          ─ the plain matcher on the same question: it has to agree

Updates are reports of load; every twentieth is a worker that changes what it can do, which
makes the engine forget the answers it keeps. All of it from one seed, in one process.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import sys
import time
from random import Random
from typing import Final

import msgspec

from mycel.bench.percentiles import median, percentile
from mycel.console.errors import UsageError
from mycel.console.tables import print_json, print_table
from mycel.core.matching import ALGORITHMS, Member, Pool, SelectionSettings, total_of
from mycel.core.matching import slots_that_fit as fit
from mycel.core.model.work import Shape

from . import fleet
from .brute_force import Record, Rules, choices

SEED: Final = 20_261_116
DECISIONS: Final = 2_000
GROUP: Final = 1_000
GROUPS: Final = 10
CHANGE_EVERY: Final = 20
SIZES: Final = {1_000: 1_000, 10_000: 400, 100_000: 60}
"""Workers, and how many answers are checked: the plain matcher takes its time."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    workers: int
    decision_ms_p50: float
    decision_ms_p99: float
    update_ms_p50: float
    group_of_1000_ms: float
    brute_force_ms_p50: float
    agree: bool
    checked: int
    """Cases in which the engine's choice was compared with the plain matcher's."""
    feasible: float
    """Share of the decisions that found somebody."""
    change_ms_p50: float
    """A worker that changes what it can do."""
    same_shape_ms_p50: float
    """Decisions of one shape, again and again."""
    fill_s: float
    """All workers put into the pool."""


class Bench:
    def __init__(self, workers: int, seed: int) -> None:
        self.random = Random(seed)
        self.workers = workers
        self.pool = Pool()
        self.records: list[Record] = []
        self.updates_ms: list[float] = []
        self.changes_ms: list[float] = []
        self._number = 0

    def fill(self) -> float:
        has = [fleet.capabilities(self.random, number) for number in range(self.workers)]
        began = time.perf_counter()
        for number, one in enumerate(has):
            self.pool.put(f"w{number}", one, linked=number % 4 != 0, local=number % 50 == 1)
        seconds = time.perf_counter() - began
        for number, one in enumerate(has):
            member = self._member(number)
            record = Record(f"w{number}", member.slot, one, total_of(one))
            record.linked, record.local = member.linked, member.local
            self.records.append(record)
            self._report(number)
            self._stand(number)
        self.updates_ms.clear()
        return seconds

    def _member(self, number: int) -> Member:
        member = self.pool.get(f"w{number}")
        assert member is not None
        return member

    def _stand(self, number: int) -> None:
        random, record, member = self.random, self.records[number], self._member(number)
        if random.random() < 0.5:
            record.rtt_seconds = random.choice((0.001, 0.02, 0.08, 0.15))
            self.pool.set_rtt(member, record.rtt_seconds)
        if random.random() < 0.5:
            rate, relative = random.uniform(0.5, 1.0), random.uniform(0.5, 2.0)
            record.success_rate, record.relative_seconds = rate, relative
            self.pool.measure(member, rate, relative)
        if random.random() < 0.05:
            record.available = False
            self.pool.set_available(member, False)

    def update(self) -> None:
        """Two workers report, and now and then one has changed."""
        for _ in range(2):
            self._report(self.random.randrange(self.workers))
        self._number += 1
        if self._number % CHANGE_EVERY == 0:
            self._change(self.random.randrange(self.workers))

    def _report(self, number: int) -> None:
        record, member = self.records[number], self._member(number)
        if not record.linked:
            return
        record.free = fleet.free(self.random, record.capabilities)
        record.running = self.random.randrange(40)
        began = time.perf_counter()
        self.pool.report(member, record.free, record.running)
        self.updates_ms.append((time.perf_counter() - began) * 1000)

    def _change(self, number: int) -> None:
        record = self.records[number]
        has = fleet.capabilities(self.random, number)
        record.capabilities, record.free = has, total_of(has)
        began = time.perf_counter()
        self.pool.put(record.key, has, linked=record.linked, local=record.local)
        self.changes_ms.append((time.perf_counter() - began) * 1000)

    def decide(self, shape: Shape) -> tuple[Member | None, float]:
        began = time.perf_counter()
        found = next(self.pool.ranked(shape, self.random.random), None)
        return None if found is None else found[0], (time.perf_counter() - began) * 1000

    def decisions(self, count: int, shape: Shape | None = None) -> tuple[list[float], float]:
        times, found = [], 0
        for number in range(count):
            member, taken = self.decide(shape or fleet.shape(self.random, self.workers))
            times.append(taken)
            if member is not None:
                found += 1
                self._ask(number, member, shape)
            self.update()
        return times, found / count

    def _ask(self, number: int, member: Member, shape: Shape | None) -> None:
        """What was decided counts as load until it is answered."""
        self.pool.ask(member, number, shape or Shape("process"), 1)
        self.pool.answered(member, number)

    def groups_ms(self) -> float:
        """1,000 tasks of one shape: whom to ask, and for how many each."""
        times: list[float] = []
        while len(times) < GROUPS:
            shape = fleet.shape(self.random, self.workers)
            began = time.perf_counter()
            left = GROUP
            for member, room in self.pool.ranked(shape, self.random.random):
                if not room or left <= 0:
                    break
                left -= fit(shape.requirements, member.capabilities, member.expected, left)
            if left < GROUP:  # somebody had room
                times.append((time.perf_counter() - began) * 1000)
        return median(times)

    def compare(self, cases: int) -> tuple[bool, float]:
        """Each algorithm in turn, for as many cases."""
        agree, times = True, []
        variants = list(itertools.product(ALGORITHMS, ("least-loaded", "performance")))
        for algorithm, strategy in variants:
            settings = SelectionSettings(algorithm=algorithm, strategy=strategy)
            self.pool.apply(settings)
            for _ in range(-(-cases // len(variants))):
                shape = fleet.shape(self.random, self.workers)
                member, _ = self.decide(shape)
                began = time.perf_counter()
                rules = Rules(algorithm, strategy)
                expected = choices(self.records, shape, rules, self.pool.turn - 1)
                times.append((time.perf_counter() - began) * 1000)
                agree &= member.key in expected if member is not None else not expected
                self.update()
        return agree, median(times)


def measure(workers: int, cases: int, decisions: int, seed: int) -> Row:
    bench = Bench(workers, seed)
    fill_s = bench.fill()
    gc.collect()
    gc.freeze()
    bench.decisions(decisions // 10)
    bench.updates_ms.clear()
    times, feasible = bench.decisions(decisions)
    same, _ = bench.decisions(decisions // 4, fleet.shape(Random(3), workers))
    updates = list(bench.updates_ms)
    group_ms = bench.groups_ms()
    agree, brute_ms = bench.compare(cases)
    gc.unfreeze()
    return Row(
        workers=workers,
        decision_ms_p50=_rounded(median(times)),
        decision_ms_p99=_rounded(percentile(times, 99)),
        update_ms_p50=_rounded(median(updates)),
        group_of_1000_ms=_rounded(group_ms),
        brute_force_ms_p50=_rounded(brute_ms),
        agree=agree,
        checked=cases,
        feasible=_rounded(feasible),
        change_ms_p50=_rounded(median(bench.changes_ms)),
        same_shape_ms_p50=_rounded(median(same)),
        fill_s=_rounded(fill_s),
    )


def _rounded(figure: float) -> float:
    return float(f"{figure:.4g}")


def main(given: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="mycel bench matching", description="Measure decisions among many workers."
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--seed", type=int, default=SEED, help=f"of the mix ({SEED})")
    parser.add_argument(
        "--scale",
        type=float,
        default=1.0,
        metavar="F",
        help="so many times as many decisions and checks (1)",
    )
    options = parser.parse_args(given)
    if not 0 < options.scale <= 100:
        raise UsageError("--scale is above 0 and at most 100")
    rows = []
    for workers, cases in SIZES.items():
        print(f"{workers:,} workers", file=sys.stderr, flush=True)
        checks = max(8, round(cases * options.scale))
        decisions = max(40, round(DECISIONS * options.scale))
        rows.append(measure(workers, checks, decisions, options.seed))
    if options.json:
        print_json({"seed": options.seed, "scale": options.scale, "rows": rows})
    else:
        names = Row.__struct_fields__
        print_table(list(names), [[str(getattr(row, name)) for name in names] for row in rows])
    return 0 if all(row.agree for row in rows) else 1
