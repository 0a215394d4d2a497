"""Picks the kernel for a policy, and gives it its arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy

from mycel.sim.entities import NS_PER_MS
from mycel.sim.errors import ScenarioError
from mycel.sim.generator import Generator
from mycel.sim.policies.homes.homes_options import (
    UNKNOWN_SHARE,
    HomesOptions,
    home_count,
    home_of,
    link_count,
)
from mycel.sim.policies.power_of_d import PowerOfDOptions
from mycel.sim.policies.sparrow import SparrowOptions
from mycel.sim.policy import Options
from mycel.sim.workloads.slot_work import SlotWork

from . import homes_records
from .central_kernel import run_central
from .event_heap import POPPED, Heap, Integers, make_heap
from .homes_kernel import run_homes
from .queue_kernel import run_queues
from .slot_run import SlotRun, make_queues
from .sparrow_kernel import run_sparrow

FAST_POLICIES: Final = frozenset(
    {"ideal", "central-fifo", "random", "power-of-d", "sparrow", "homes"}
)


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
        self.random = numpy.array([Generator(cluster.seed).state], numpy.uint64)
        self.counters = numpy.zeros(4, numpy.int64)
        self.heap: Heap = make_heap(1)

    def arrays(self, events_max: int) -> SlotRun:
        """Pages of the heap that no event reaches are never touched, so its bound may be loose."""
        cluster, work = self.cluster, self.work
        self.heap = make_heap(events_max)
        return SlotRun(
            heap=self.heap,
            random=self.random,
            free=numpy.full(cluster.servers, cluster.slots, numpy.int64),
            arrival_ns=work.arrival_ns,
            first_task=work.first_task,
            duration_ns=work.duration_ns,
            start_ns=self.start_ns,
            end_ns=self.end_ns,
            server=self.server,
            counters=self.counters,
        )

    def central(self) -> None:
        slots = self.cluster.servers * self.cluster.slots
        run_central(self.arrays(slots + 1), self.cluster.one_way_ns)

    def queues(self, d: int) -> None:
        tasks = self.work.task_count
        queues = make_queues(self.cluster.servers, tasks)
        drawn = numpy.empty((tasks if d else 0, max(d, 1)), numpy.int64)
        run_queues(self.arrays(tasks + 1), queues, drawn, self.cluster.one_way_ns, d)

    def sparrow(self, probes: int) -> None:
        reservations = probes * self.work.task_count
        queues = make_queues(self.cluster.servers, reservations)
        unbound = self.work.first_task[:-1].copy()
        job_of = numpy.empty(reservations, numpy.int64)
        arrays = self.arrays(reservations + self.work.task_count + 1)
        run_sparrow(arrays, queues, unbound, job_of, self.cluster.one_way_ns, probes)

    def homes(self, options: HomesOptions) -> None:
        cluster, work = self.cluster, self.work
        slots = cluster.servers * cluster.slots
        count = home_count(options, cluster.schedulers, slots)
        if count > homes_records.HOMES_MAX:
            raise ScenarioError(
                f"the fast engine has at most {homes_records.HOMES_MAX} homes: lower homes_max"
            )
        settings = numpy.array(
            [
                cluster.one_way_ns,
                round(options.cold_link_ms * NS_PER_MS),
                round(options.fresh_ms * NS_PER_MS),
                slots * homes_records.MILLI // count // UNKNOWN_SHARE,
                options.shares,
                options.asks,
                link_count(options, cluster.schedulers, count),
            ],
            numpy.int64,
        )
        home_by_server = numpy.array([home_of(i, count) for i in range(cluster.servers)])
        sizes = homes_records.Sizes(count, cluster.schedulers, cluster.slots)
        state = homes_records.make_state(
            sizes, home_by_server, work, settings, self.random, self.counters
        )
        self.heap = state.heap
        run_homes(state, work.arrival_ns, work.duration_ns)
        self.start_ns = state.task[:, homes_records.START_NS].copy()
        self.end_ns = state.task[:, homes_records.END_NS].copy()
        self.server = state.task[:, homes_records.SERVER].copy()

    def result(self) -> FastResult:
        messages, completions, forwarded, withdrawals = (int(one) for one in self.counters)
        return FastResult(
            self.start_ns,
            self.end_ns,
            self.server,
            messages,
            completions,
            int(self.heap.state[POPPED]) + self.work.job_count,
            forwarded,
            withdrawals,
        )
