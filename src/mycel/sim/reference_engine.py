"""The reference engine: plain Python, every policy, deterministic by seed.

Events are handled in the order of (time, order of scheduling). Arrivals come before other events
of the same nanosecond. The fast engine keeps the same order, so its results are identical.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any, Final

from .data_flows import Transfers, bits_per_ns
from .entities import Capacity, Job, Server, Task
from .errors import PolicyFault
from .fault_plan import Fault, Faults
from .feasibility import check_fit, check_policy
from .generator import Generator
from .policy import Options, Policy
from .run_records import Counters, Sample, Settings
from .sim_network import ConstantNetwork, Network, RoutedNetwork

Event = tuple[int, int, Callable[..., None], tuple[Any, ...]]
MESSAGE_BYTES: Final = 256
"""A message without tasks. Each task in it adds as much."""


class Engine:
    def __init__(
        self,
        capacities: Sequence[Capacity],
        jobs: Sequence[Job],
        policy: type[Policy],
        options: Options | None = None,
        *,
        network: Network | None = None,
        settings: Settings | None = None,
        faults: Sequence[Fault] = (),
    ) -> None:
        self.settings: Final = settings or Settings()
        self.network: Final[Network] = network or ConstantNetwork(0)
        self.schedulers: Final = self.settings.schedulers
        self.servers: Final = [Server(i, capacity) for i, capacity in enumerate(capacities)]
        self.jobs: Final = jobs
        self.random: Final = Generator(self.settings.seed)
        self.counters: Final = Counters()
        self.samples: Final[list[Sample]] = []
        self.marks: Final[list[tuple[int, str]]] = []
        """What the report shows beside the curves: failures and returns, with their times."""
        self.preempted_ns: Final[list[int]] = []
        self.now = 0
        self.unfinished = sum(len(job.tasks) for job in jobs)
        self._arrived = 0
        self._finished = 0
        self._events: list[Event] = []
        self._order = 0
        self._periodic = 0
        self._dead_schedulers: set[int] = set()
        self._detected: set[int] = set()
        self._kept: dict[int, list[tuple[Callable[..., None], tuple[Any, ...]]]] = {}
        """By place of a dead scheduler: what servers will tell it when it is back."""
        self._transfers = self._make_transfers()
        self._transfer_of: dict[int, int] = {}
        self._faults = Faults(self, faults)
        check_fit(self.servers, jobs)
        check_policy(policy, self.servers, jobs)
        self.policy: Final = policy(self, options or policy.options_type())

    # What policies call

    def send(
        self,
        source: int,
        destination: int,
        handler: Callable[..., None],
        *arguments: Any,
        tasks: Sequence[Task] = (),
        is_completion: bool = False,
        is_repeated: bool = False,
        earliest_ns: int = 0,
    ) -> None:
        """Calls the handler at the destination. `tasks` go back to the policy if it is lost.

        While there is no way, a completion, or what is to be repeated, is sent again and again."""
        if is_completion:
            self.counters.completions += 1
        else:
            self.counters.messages += 1
        self.counters.bytes += MESSAGE_BYTES * (1 + len(tasks))
        for task in tasks:
            task.hops += 1
        delay = self.network.delay_ns(source, destination)
        if delay is None and (is_completion or is_repeated):
            self.counters.undelivered += 1
            again = (source, destination, handler, arguments, tasks, is_completion)
            self.after(self.settings.detection_ns, self._resend, *again)
        elif delay is None:
            self._give_up(source, destination, tasks)
        else:
            arrival = max(self.now + delay, earliest_ns)
            if self._faults.is_quiet:
                self._push(arrival, handler, arguments)
            else:
                given = (source, destination, tasks, handler, arguments, is_completion)
                self._push(arrival, self._deliver, given)

    def after(self, delay_ns: int, handler: Callable[..., None], *arguments: Any) -> None:
        self._push(self.now + delay_ns, handler, arguments)

    def every(self, period_ns: int, handler: Callable[[], None]) -> None:
        """A timer that goes on for the whole run, and does not keep it going by itself."""
        self._periodic += 1
        self._push(self.now + period_ns, self._tick, (period_ns, handler))

    def start(self, task: Task, server: int, gpus: tuple[int, ...] | None = None) -> None:
        """Takes the resources, moves the job's data there, and runs the task."""
        place = self.servers[server]
        if task.is_running or task.end_ns >= 0:
            raise self._fault(f"started task {task.index} twice")
        if not place.fits(task.demand):
            state = "has failed" if not place.is_up else "is full"
            raise self._fault(
                f"placed task {task.index} ({task.demand}) on server {server}, which {state}"
            )
        chosen = place.resources.best_gpus(task.demand) if gpus is None else gpus
        if len(chosen) != task.demand.gpus or any(
            place.resources.gpus_milli[gpu] < task.demand.gpu_milli for gpu in chosen
        ):
            raise self._fault(f"placed task {task.index} on GPUs {chosen}, which are full")
        place.resources.take(task.demand, chosen)
        place.running[task.index] = task
        task.server, task.gpus, task.is_running = server, chosen, True
        task.attempt += 1
        task.start_ns = self.now
        if task.job.data_bytes and self._transfers is not None:
            self._fetch(task)
        else:
            self._run(task)

    def start_nowhere(self, task: Task) -> None:
        """Runs the task on resources that nobody else needs: the zero-wait ideal."""
        task.is_running, task.start_ns = True, self.now
        self._push(self.now + task.remaining_ns, self._end, (task, task.attempt))

    def preempt(self, task: Task) -> None:
        """Stops a running task. The policy places it again when it wants."""
        if not task.is_running:
            raise self._fault(f"preempted task {task.index}, which does not run")
        self.counters.preemptions += 1
        self.preempted_ns.append(self.now)
        task.preemptions += 1
        self._stop(task, keeps_progress=self.settings.keeps_progress)

    def is_place_up(self, place: int) -> bool:
        if place < len(self.servers):
            return self.servers[place].is_up
        return place not in self._dead_schedulers

    @property
    def has_faults(self) -> bool:
        return not self._faults.is_quiet

    @property
    def tasks_waiting(self) -> int:
        running = sum(len(server.running) for server in self.servers)
        return self._arrived - self._finished - running

    # The run

    def run(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Until every task has ended, or nothing more can happen. `progress` gets the finished
        and all tasks from time to time; it may raise KeyboardInterrupt, and results so far stay.
        """
        total = self.unfinished
        arrivals = iter(sorted(self.jobs, key=lambda job: (job.arrival_ns, job.index)))
        job = next(arrivals, None)
        if self.settings.sample_ns:
            self._sample()
            self.every(self.settings.sample_ns, self._sample)
        self._faults.schedule()
        events = self._events
        while self.unfinished:
            if job is not None and (not events or job.arrival_ns <= events[0][0]):
                self.now = job.arrival_ns
                self._arrived += len(job.tasks)
                self._arrive(job)
                job = next(arrivals, None)
            elif len(events) > self._periodic or (events and job is not None):
                self.now, _, handler, arguments = heapq.heappop(events)
                handler(*arguments)
            else:
                break
            self.counters.events += 1
            if progress is not None and not self.counters.events % 20_000:
                progress(total - self.unfinished, total)

    def _arrive(self, job: Job) -> None:
        """Clients of a dead scheduler try the others, and come back if all are dead."""
        if self._dead_schedulers and self.policy.jobs_arrive_at == "schedulers":
            for _ in range(self.schedulers):
                if self.is_place_up(self.policy.entry(job)):
                    break
                job.entry += 1
            else:
                self.after(self.settings.detection_ns, self._arrive, job)
                return
        self.policy.place(job, job.tasks)

    def _push(self, time_ns: int, handler: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self._order += 1
        heapq.heappush(self._events, (time_ns, self._order, handler, arguments))

    def _resend(
        self,
        source: int,
        destination: int,
        handler: Callable[..., None],
        arguments: tuple[Any, ...],
        tasks: Sequence[Task],
        is_completion: bool,
    ) -> None:
        self.send(
            source,
            destination,
            handler,
            *arguments,
            tasks=tasks,
            is_completion=is_completion,
            is_repeated=True,
        )

    def _tick(self, period_ns: int, handler: Callable[[], None]) -> None:
        handler()
        self._push(self.now + period_ns, self._tick, (period_ns, handler))

    def _deliver(
        self,
        source: int,
        destination: int,
        tasks: Sequence[Task],
        handler: Callable[..., None],
        arguments: tuple[Any, ...],
        is_completion: bool,
    ) -> None:
        if self.is_place_up(destination):
            handler(*arguments)
        elif is_completion and destination >= len(self.servers):
            self.counters.undelivered += 1
            self._kept.setdefault(destination, []).append((handler, arguments))
        else:
            self._give_up(source, destination, tasks)

    def _give_up(self, source: int, destination: int, tasks: Sequence[Task]) -> None:
        self.counters.undelivered += 1
        self.after(self.settings.detection_ns, self.policy.undelivered, source, destination, tasks)

    def _run(self, task: Task) -> None:
        slowdown = self.servers[task.server].slowdown
        length_ns = task.remaining_ns if slowdown == 1.0 else round(task.remaining_ns * slowdown)
        task.start_ns = self.now
        self._push(self.now + length_ns, self._end, (task, task.attempt))

    def _end(self, task: Task, attempt: int) -> None:
        if not task.is_running or task.attempt != attempt:
            return  # preempted or lost since
        task.is_running = False
        task.end_ns = self.now
        self.unfinished -= 1
        self._finished += 1
        job = task.job
        job.unfinished -= 1
        if not job.unfinished:
            job.end_ns = self.now
        if task.server >= 0:
            server = self.servers[task.server]
            del server.running[task.index]
            server.resources.give(task.demand, task.gpus)
            self.policy.finished(task, server)

    def _stop(self, task: Task, *, keeps_progress: bool) -> None:
        server = self.servers[task.server]
        flow = self._transfer_of.pop(task.index, None)
        if flow is not None:
            assert self._transfers is not None, "it carries the flow"
            self._transfers.cancel(flow)
        elif keeps_progress:
            ran_ns = self.now - task.start_ns
            task.remaining_ns = max(1, task.remaining_ns - int(ran_ns / server.slowdown))
        del server.running[task.index]
        server.resources.give(task.demand, task.gpus)
        task.is_running = False
        task.start_ns = -1

    def lose(self, server: Server) -> list[Task]:
        """For faults: everything that runs there is lost."""
        lost = list(server.running.values())
        for task in lost:
            self.counters.losses += 1
            task.losses += 1
            self._stop(task, keeps_progress=False)
        return lost

    def fail_scheduler(self, number: int) -> None:
        """For faults. Its state is in its journal; what it is told meanwhile is lost, but for the
        ends of tasks, which servers keep."""
        place = self.policy.scheduler(number)
        if place not in self._dead_schedulers:
            self._dead_schedulers.add(place)
            self.after(self.settings.detection_ns, self._detect, number, place)

    def return_scheduler(self, number: int) -> None:
        place = self.policy.scheduler(number)
        if place not in self._dead_schedulers:
            return
        self._detect(number, place)
        self._dead_schedulers.discard(place)
        self._detected.discard(place)
        for handler, arguments in self._kept.pop(place, []):
            handler(*arguments)
        self.policy.scheduler_returned(number)

    def _detect(self, number: int, place: int) -> None:
        if place in self._dead_schedulers and place not in self._detected:
            self._detected.add(place)
            self.policy.scheduler_failed(number)

    # Job data

    def _make_transfers(self) -> Transfers | None:
        if not isinstance(self.network, RoutedNetwork):
            return None
        bandwidth = {
            (number, direction): bits_per_ns(link.bandwidth_bits_per_s)
            for number, link in enumerate(self.network.topology.links)
            for direction in (0, 1)
        }
        return Transfers(bandwidth, lambda: self.now, self.after)

    def _fetch(self, task: Task) -> None:
        assert self._transfers is not None, "only routed networks move data"
        assert isinstance(self.network, RoutedNetwork), "the same"
        network = self.network
        here = network.node_of[self.policy.entry(task.job)]
        directions: list[tuple[int, int]] = []
        if network.delay_ns(self.policy.entry(task.job), task.server) is not None:
            for link, node in network.routes.path(here, network.node_of[task.server], task.index):
                directions.append((link, int(network.topology.links[link].first != here)))
                here = node
        attempt = task.attempt

        def arrived() -> None:
            if task.is_running and task.attempt == attempt:
                self._transfer_of.pop(task.index, None)
                self._run(task)

        self._transfer_of[task.index] = self._transfers.start(
            tuple(directions), task.job.data_bytes, arrived
        )

    @property
    def bits_carried(self) -> dict[tuple[int, int], float]:
        """Of each link and direction, by job data."""
        return {} if self._transfers is None else self._transfers.bits_carried

    # Samples

    def _sample(self) -> None:
        cores = gpus = running = up = stranded = 0
        for server in self.servers:
            resources = server.resources
            cores += resources.capacity.cores_milli - resources.cores_milli
            free = sum(resources.gpus_milli)
            gpus += 1000 * resources.capacity.gpus - free
            running += len(server.running)
            up += server.is_up
            if resources.cores_milli < 1000:
                stranded += free
        self.samples.append(
            Sample(
                self.now,
                cores,
                gpus,
                running,
                self._arrived - self._finished - running,
                up,
                stranded,
                self._switch_bits(),
            )
        )

    def _switch_bits(self) -> dict[str, float]:
        network = self.network
        if self._transfers is None or not isinstance(network, RoutedNetwork):
            return {}
        nodes, links = network.topology.nodes, network.topology.links
        carried = self._transfers.carried_now()
        found = {node.name: 0.0 for node in nodes if not node.is_server}
        for (link, _), bits in carried.items():
            for end in (links[link].first, links[link].second):
                if not nodes[end].is_server:
                    found[nodes[end].name] += bits
        return found

    def _fault(self, words: str) -> PolicyFault:
        return PolicyFault(f"policy {self.policy.name!r} at {self.now / 1e9:.6f} s {words}")
