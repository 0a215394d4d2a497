"""Picks the kernel for a policy, and gives it its arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy

from mycel.sim.entities import NS_PER_MS
from mycel.sim.errors import ScenarioError
from mycel.sim.generator import Generator
from mycel.sim.policies.homes import UNKNOWN_SHARE, HomesOptions, home_count, home_of, link_count
from mycel.sim.policies.power_of_d import PowerOfDOptions
from mycel.sim.policies.sparrow import SparrowOptions
from mycel.sim.policy import Options
from mycel.sim.workloads.slot_work import SlotWork

from . import homes_kernel
from .central_kernel import run_central
from .event_heap import Heap, Integers, make_heap
from .queue_kernel import run_queues
from .sparrow_kernel import run_sparrow

FAST_POLICIES: Final = frozenset(
    {"ideal", "central-fifo", "random", "power-of-d", "sparrow", "homes"}
)
LINE_LENGTH: Final = 1 << 14
MESSAGE_RECORDS: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class FastResult:
    """By task: when it started and ended, and on which server (-1 for the ideal)."""

    start_ns: Integers
    end_ns: Integers
    server: Integers
    messages: int
    completions: int
    events: int
    forwarded: int = 0
    withdrawals: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Servers with the same number of slots, everything equally far apart."""

    servers: int
    slots: int
    one_way_ns: int
    schedulers: int = 1
    seed: int = 1


def run_fast(cluster: Cluster, work: SlotWork, policy: str, options: Options) -> FastResult:
    if policy not in FAST_POLICIES:
        known = ", ".join(sorted(FAST_POLICIES))
        raise ScenarioError(f"the fast engine has no policy {policy!r}; it has {known}")
    run = _Run(cluster, work)
    if policy == "ideal":
        run.start_ns[:] = numpy.repeat(work.arrival_ns, numpy.diff(work.first_task))
        run.end_ns[:] = run.start_ns + work.duration_ns
    elif policy == "central-fifo":
        run.central()
    elif policy == "random":
        run.queues(0)
    elif isinstance(options, PowerOfDOptions):
        run.queues(options.d)
    elif isinstance(options, SparrowOptions):
        run.sparrow(options.probes)
    else:
        assert isinstance(options, HomesOptions), "the policies above are all that are fast"
        run.homes(options)
    return run.result()


class _Run:
    def __init__(self, cluster: Cluster, work: SlotWork) -> None:
        self.cluster, self.work = cluster, work
        tasks = work.task_count
        self.start_ns = numpy.full(tasks, -1, numpy.int64)
        self.end_ns = numpy.full(tasks, -1, numpy.int64)
        self.server = numpy.full(tasks, -1, numpy.int64)
        self.free = numpy.full(cluster.servers, cluster.slots, numpy.int64)
        self.random = numpy.array([Generator(cluster.seed).state], numpy.uint64)
        self.counters = numpy.zeros(4, numpy.int64)
        self.heap: Heap = make_heap(1)

    def central(self) -> None:
        work, slots = self.work, self.cluster.servers * self.cluster.slots
        self.heap = make_heap(slots + 1)
        run_central(
            self.heap,
            self.free,
            work.arrival_ns,
            work.first_task,
            work.duration_ns,
            self.cluster.one_way_ns,
            self.start_ns,
            self.end_ns,
            self.server,
            self.counters,
        )

    def queues(self, d: int) -> None:
        work = self.work
        # Pages of the heap that no event reaches are never touched, so its bound may be loose.
        self.heap = make_heap(work.task_count + 1)
        run_queues(
            self.heap,
            self.random,
            self.free,
            work.arrival_ns,
            work.first_task,
            work.duration_ns,
            self.cluster.one_way_ns,
            d,
            self.start_ns,
            self.end_ns,
            self.server,
            self.counters,
        )

    def sparrow(self, probes: int) -> None:
        work = self.work
        self.heap = make_heap((probes + 1) * work.task_count + 1)
        run_sparrow(
            self.heap,
            self.random,
            self.free,
            work.arrival_ns,
            work.first_task,
            work.duration_ns,
            self.cluster.one_way_ns,
            probes,
            self.start_ns,
            self.end_ns,
            self.server,
            self.counters,
        )

    def homes(self, options: HomesOptions) -> None:
        cluster, work = self.cluster, self.work
        slots = cluster.servers * cluster.slots
        count = home_count(options, cluster.schedulers, slots)
        if count > homes_kernel.HOMES_MAX:
            raise ScenarioError(
                f"the fast engine has at most {homes_kernel.HOMES_MAX} homes: lower homes_max"
            )
        state = self._homes_state(options, count)
        self.heap = state.heap
        homes_kernel.run_homes(state, work.arrival_ns, work.duration_ns)
        self.start_ns = state.task[:, homes_kernel.START_NS].copy()
        self.end_ns = state.task[:, homes_kernel.END_NS].copy()
        self.server = state.task[:, homes_kernel.SERVER].copy()

    def _homes_state(self, options: HomesOptions, count: int) -> homes_kernel.State:
        cluster, work = self.cluster, self.work
        slots = cluster.servers * cluster.slots
        home_by_server = numpy.array([home_of(i, count) for i in range(cluster.servers)])
        members = numpy.argsort(home_by_server, kind="stable").astype(numpy.int64)
        sizes = numpy.bincount(home_by_server, minlength=count)
        member_first = numpy.concatenate(([0], numpy.cumsum(sizes))).astype(numpy.int64)
        message = numpy.zeros((MESSAGE_RECORDS, homes_kernel.FIELDS), numpy.int64)
        message[:, homes_kernel.KIND] = _chain(MESSAGE_RECORDS)
        place = numpy.zeros((slots, 2), numpy.int64)
        place[:, homes_kernel.PLACE_NEXT] = _chain(slots)
        home = numpy.zeros((count, 6), numpy.int64)
        home[:, homes_kernel.CURSOR] = home[:, homes_kernel.BEGIN] = member_first[:-1]
        home[:, homes_kernel.END_OF] = member_first[1:]
        home[:, homes_kernel.ROOM] = sizes * cluster.slots
        server = numpy.full((cluster.servers, 2), cluster.slots, numpy.int64)
        server[:, homes_kernel.HOME] = home_by_server
        scheduler = numpy.zeros((cluster.schedulers, 9), numpy.int64)
        scheduler[:, [homes_kernel.INBOX_FIRST, homes_kernel.INBOX_LAST]] = -1
        pair = numpy.zeros((cluster.schedulers, count, 3), numpy.int64)
        pair[:, :, homes_kernel.HEARD_NS] = -(10**18)
        job = numpy.zeros((work.job_count + 1, 3), numpy.int64)
        job[:, homes_kernel.FIRST_TASK] = work.first_task
        job[:-1, homes_kernel.ENTRY] = work.entry % cluster.schedulers
        return homes_kernel.State(
            heap=make_heap(slots + MESSAGE_RECORDS + cluster.schedulers + 2),
            random=self.random,
            settings=numpy.array(
                [
                    cluster.one_way_ns,
                    round(options.cold_link_ms * NS_PER_MS),
                    round(options.fresh_ms * NS_PER_MS),
                    slots * homes_kernel.MILLI // count // UNKNOWN_SHARE,
                    options.shares,
                    options.asks,
                    link_count(options, cluster.schedulers, count),
                ],
                numpy.int64,
            ),
            counters=self.counters,
            task=numpy.full((work.task_count, 4), -1, numpy.int64),
            server=server,
            job=job,
            home=home,
            members=members,
            line=numpy.zeros((count, LINE_LENGTH, 2), numpy.int64),
            scheduler=scheduler,
            pair=pair,
            place=place,
            message=message,
            pools=numpy.zeros(2, numpy.int64),
        )

    def result(self) -> FastResult:
        messages, completions, forwarded, withdrawals = (int(one) for one in self.counters)
        return FastResult(
            self.start_ns,
            self.end_ns,
            self.server,
            messages,
            completions,
            int(self.heap.state[2]) + self.work.job_count,
            forwarded,
            withdrawals,
        )


def _chain(size: int) -> Integers:
    """Each record leads to the next, the last to none."""
    chain = numpy.arange(1, size + 1, dtype=numpy.int64)
    chain[-1] = -1
    return chain
