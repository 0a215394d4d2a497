"""Gossip, local or nearest with room: the leaf-spine document's own policy.

Jobs arrive at servers. A server runs a task if it has room. Else it forwards the task along the
shortest path to the nearest server that it believes to have room. What it believes comes by gossip
with its neighbours in an overlay, so it can be wrong: the receiver then forwards the task again, up
to `hops_max` times, after which the task waits in the queue where it is. A higher priority preempts
a lower one, if that makes room at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Annotated, Final, Literal

import msgspec

from mycel.sim.entities import NS_PER_MS, Demand, Job, Server, Task
from mycel.sim.errors import ScenarioError
from mycel.sim.policy import Options, QueuePolicy
from mycel.sim.reference_engine import Engine
from mycel.sim.sim_network import RoutedNetwork
from mycel.topology.overlays import Overlay, k_regular, leaf_aware, spanning_tree, with_shortcuts

Belief = tuple[int, int, int, int]
"""When it was true; free thousandths of cores, MiB of memory, thousandths of GPUs."""


class GossipOptions(Options, frozen=True, kw_only=True):
    gossip_ms: Annotated[float, msgspec.Meta(gt=0, le=1e9)] = 100.0
    overlay: Literal["random", "tree", "shortcuts", "leaf_aware"] = "random"
    degree: Annotated[int, msgspec.Meta(ge=1, le=64)] = 4
    hops_max: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 4
    preempt: bool = False


class GossipNearest(QueuePolicy):
    name = "gossip"
    options_type = GossipOptions
    jobs_arrive_at = "servers"

    def __init__(self, engine: Engine, options: Options) -> None:
        super().__init__(engine, options)
        assert isinstance(options, GossipOptions), "the engine makes our own options"
        self.options: Final = options
        self.overlay: Final = self._make_overlay()
        self.views: Final[list[dict[int, Belief]]] = [{} for _ in self.servers]
        self.forwards: Final[dict[int, int]] = {}
        self.ages_ns: Final[list[int]] = []
        """How old a belief was, each time one was acted upon."""
        engine.every(round(options.gossip_ms * NS_PER_MS), self._gossip)

    def _make_overlay(self) -> Overlay:
        count, options = len(self.servers), self.options
        random = Random(self.engine.settings.seed)
        if options.overlay == "random":
            if count <= options.degree + 1:
                return tuple(tuple(j for j in range(count) if j != i) for i in range(count))
            return k_regular(count, options.degree + (options.degree * count) % 2, random)
        if not isinstance(self.engine.network, RoutedNetwork):
            raise ScenarioError(f'overlay = "{options.overlay}" needs a [topology]')
        topology = self.engine.network.topology
        if options.overlay == "tree":
            return spanning_tree(topology)
        if options.overlay == "shortcuts":
            return with_shortcuts(topology, 1, random)
        return leaf_aware(topology, max(1, options.degree - 2), random)

    # Gossip

    def _gossip(self) -> None:
        """Every server tells its neighbours what it has and what it has heard."""
        for server in self.servers:
            if not server.is_up:
                continue
            view = self.views[server.index]
            view[server.index] = self._state(server)
            for neighbour in self.overlay[server.index]:
                self.engine.send(
                    server.index, neighbour, self._hear, neighbour, tuple(view.items())
                )

    def _state(self, server: Server) -> Belief:
        free = server.resources
        return self.engine.now, free.cores_milli, free.memory_mib, sum(free.gpus_milli)

    def _hear(self, server: int, news: tuple[tuple[int, Belief], ...]) -> None:
        view = self.views[server]
        for about, belief in news:
            if about != server and (about not in view or view[about][0] < belief[0]):
                view[about] = belief

    # Tasks

    def place(self, job: Job, tasks: Sequence[Task]) -> None:
        here = self.entry(job)
        for task in tasks:
            self.forwards[task.index] = 0
            self._arrive(task, here)

    def _arrive(self, task: Task, here: int) -> None:
        server = self.servers[here]
        if not server.is_up:
            # The job arrives at a dead server: its client tries the next one.
            up = next((s.index for s in self.servers[here:] + self.servers[:here] if s.is_up), None)
            if up is None:
                self.engine.after(self.engine.settings.detection_ns, self._arrive, task, here)
                return
            here, server = up, self.servers[up]
        if server.fits(task.demand) and not self.queues[here]:
            self.engine.start(task, here)
            return
        if self.options.preempt and self._preempt(task, server):
            return
        goal = None
        if self.forwards[task.index] < self.options.hops_max:
            goal = self._nearest(here, task.demand)
        if goal is None and server.resources.capacity.cores_milli < task.demand.cores_milli:
            goal = self._able(here, task.demand)
        if goal is None:
            self.enqueue(task, here)
            return
        self.forwards[task.index] += 1
        self.engine.send(here, goal, self._arrive, task, goal, tasks=[task])

    def _nearest(self, here: int, demand: Demand) -> int | None:
        best: tuple[int, int] | None = None
        view = self.views[here]
        for about, (_, cores, memory, gpus) in view.items():
            if about == here or cores < demand.cores_milli or memory < demand.memory_mib:
                continue
            if gpus < demand.gpus * demand.gpu_milli:
                continue
            distance = self.engine.network.delay_ns(here, about)
            if distance is not None and (best is None or (distance, about) < best):
                best = (distance, about)
        if best is None:
            return None
        heard_ns, cores, memory, gpus = view[best[1]]
        self.ages_ns.append(self.engine.now - heard_ns)
        # What we send there is gone from what we believe, until we hear otherwise.
        view[best[1]] = (
            heard_ns,
            cores - demand.cores_milli,
            memory - demand.memory_mib,
            gpus - demand.gpus * demand.gpu_milli,
        )
        return best[1]

    def _able(self, here: int, demand: Demand) -> int | None:
        """Any server that is large enough at all, for a task too large for this one."""
        for step in range(1, len(self.servers)):
            other = self.servers[(here + step) % len(self.servers)]
            if other.is_up and other.resources.capacity.cores_milli >= demand.cores_milli:
                return other.index
        return None

    def _preempt(self, task: Task, server: Server) -> bool:
        """Stops the youngest task of lower priority whose room is enough."""
        victims = sorted(
            (one for one in server.running.values() if one.job.priority < task.job.priority),
            key=lambda one: (one.job.priority, -one.start_ns, one.index),
        )
        for victim in victims:
            server.resources.give(victim.demand, victim.gpus)
            fits = server.fits(task.demand)
            server.resources.take(victim.demand, victim.gpus)
            if fits:
                self.engine.preempt(victim)
                self.engine.start(task, server.index)
                self._arrive(victim, server.index)
                return True
        return False

    def failed(self, server: Server, lost: Sequence[Task]) -> None:
        for view in self.views:
            view.pop(server.index, None)
        super().failed(server, lost)
