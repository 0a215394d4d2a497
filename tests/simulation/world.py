"""A whole swarm in virtual time, under faults, from one seed.

For `TROUBLE_SECONDS` clients submit, cancel and read while processes are killed, frozen and cut
off; then everything is mended, and every acknowledged task must come to its end. What went
wrong is judged by `judge`, from the journal and from what the outside saw.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

import msgspec

from mycel.core.effects import Reply
from mycel.core.errors import Refusal, Unprocessable
from mycel.core.events import (
    Append,
    CancelTask,
    CloseJob,
    Event,
    ReadTask,
    Reopen,
    Shut,
    Submit,
    UsageChanged,
    WaitTask,
)
from mycel.core.identifiers import JobId, LeaseId, PeerId, RequestId, ulid
from mycel.core.jobs import Specification
from mycel.core.resources import Requirements, Usage
from mycel.core.views import BatchView, SubmittedView, TaskIsOver
from mycel.core.work import Retry, Work
from mycel.discovery.ways import Ways
from mycel.swarm.memory import Faults, MemoryNetwork

from .graphs import GraphClient, draw_graph
from .history import History, Seen
from .processes import MODEL, GatewayProcess, Process, SchedulerProcess, WorkerProcess
from .time import EPOCH, VirtualClock
from .tokens import Tokens

TROUBLE_SECONDS = 60.0
PEACE_SECONDS = 800.0
"""Enough for six jobs of 60 tasks, one after the other on a single core."""
GONE_SECONDS_MAX = 120.0
"""So long after its death a worker is looked for in the tables."""
WAYS = (Ways(), Ways(gossip=False), Ways(dht=False), Ways(shard_bits=0))


CAUSES = ("owner", "drain")
Ends = tuple[tuple[str, float], ...]
UNRELIABLE: Ends = (("fail", 0.2), ("fault", 0.05), ("crash", 0.05))
POISON: Ends = (("kill", 0.7), ("crash", 0.2))
"""Tasks that take their worker or interpreter along, nearly every time."""


class Typical(msgspec.Struct, frozen=True):
    """How the tasks of a job run."""

    seconds: float
    ends: Ends
    """With their shares; the rest succeeds."""
    padding: int = 0
    """Makes its results longer than a message may bring."""


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """How often each fault is made, per virtual second, and for how long it lasts."""

    kill_scheduler: float = 0.03
    kill_worker: float = 0.05
    lose_workers: float = 0.02
    """Half of them at once, for longer than they may stay in anybody's table."""
    freeze_scheduler: float = 0.02
    freeze_worker: float = 0.05
    freeze_loaded_worker: float = 0.05
    """One that holds attempts which have not started, for longer than a lease."""
    break_link: float = 0.15
    kill_gateway: float = 0.01
    change_usage: float = 0.2
    """Somebody else uses a worker's machine more, or less."""
    shut_worker: float = 0.08
    """By its owner, or by somebody who drains it; some hand back what runs."""
    change_models: float = 0.1
    """A worker gains its model, loses it, or has other slots for it."""
    weaken_token: float = 0.05
    """What the user has ends, is revoked, or allows less than it asks for."""
    down_seconds_max: float = 6.0
    frozen_seconds_max: float = 45.0
    """Longer than an idle worker may be silent before it counts as dead."""


class World:
    def __init__(self, seed: int, trouble: Trouble | None = None, ways: Ways | None = None) -> None:
        self.random = Random(seed)
        self.trouble = trouble or Trouble()
        self.clock = VirtualClock()
        self.history = History()
        random = self.random
        faults = Faults(
            delay_seconds_min=0.0002,
            delay_seconds_max=random.choice((0.001, 0.01, 0.2, 0.8)),
            break_per_frame=random.choice((0.0, 0.0005)),
            stall_per_second=random.choice((0.0, 0.02)),
            stall_seconds_max=3.0,
            gossip_loss=0.4,
            gossip_repeat=0.2,
            dht_loss=random.choice((0.0, 0.3)),
        )
        ways = random.choice(WAYS) if ways is None else ways
        self.network = MemoryNetwork(self.clock, random, faults)
        self.tokens = Tokens(random)
        gateways = (self.network.address_of("gateway"),)  # type: ignore[arg-type]
        self.gateway = GatewayProcess(self.clock, self.network, "gateway", random)
        self.schedulers = [
            SchedulerProcess(
                self.clock,
                self.network,
                f"scheduler-{number}",
                random,
                gateways,
                self.history,
                ways,
                self.tokens,
            )
            for number in range(random.choice((1, 1, 2)))
        ]
        for scheduler in self.schedulers:
            scheduler.on_reply = self._replied
        self.workers = [
            WorkerProcess(
                self.clock,
                self.network,
                f"worker-{number}",
                random,
                gateways,
                self.history,
                float(random.choice((1, 2, 4))),
                random.choice((0.005, 0.5)),
                self._behaviour,
                ways,
            )
            for number in range(random.choice((1, 2, 3)))
        ]
        for worker in self.workers:
            worker.holders_end = self._lease_end
            worker.on_killed = self._kill
            worker.padding = self._padding
        self._typical: dict[JobId, Typical] = {}
        self._home: dict[JobId, int] = {}
        """Which scheduler each job is submitted to."""
        self._graph_clients: list[GraphClient] = []
        self._request = 0
        self._expecting: dict[RequestId, Callable[[object], None]] = {}
        self._jobs: list[tuple[JobId, int]] = []

    @property
    def processes(self) -> list[Process]:
        return [self.gateway, *self.schedulers, *self.workers]

    def _lease_end(self, scheduler: PeerId, worker: PeerId, lease: LeaseId) -> float | None:
        [holder] = [one for one in self.schedulers if one.peer == scheduler]
        return holder.lease_end(worker, lease)

    def home_of(self, job: JobId) -> SchedulerProcess:
        return self.schedulers[self._home[job]]

    def run(self) -> History:
        for process in self.processes:
            process.start()
        begin = self.clock.now()
        for _ in range(self.random.randint(2, 6)):
            when = begin + self.random.uniform(0.0, TROUBLE_SECONDS * 0.8)
            self.clock.call_at(when, self._submit)
        self._make_trouble(begin)
        self.clock.run_until(begin + TROUBLE_SECONDS)
        self._mend()
        self.clock.run_until(self.clock.now() + PEACE_SECONDS, self._is_through)
        return self.history

    # Faults

    def _make_trouble(self, begin: float) -> None:
        trouble = self.trouble
        rates: list[tuple[float, Callable[[], None]]] = [
            (trouble.kill_scheduler, lambda: self._kill(self._any_scheduler())),
            (trouble.kill_worker, lambda: self._kill(self._any_worker())),
            (trouble.lose_workers, self._lose_half),
            (trouble.freeze_scheduler, lambda: self._freeze(self._any_scheduler())),
            (trouble.freeze_worker, lambda: self._freeze(self._any_worker())),
            (trouble.freeze_loaded_worker, self._freeze_loaded),
            (trouble.break_link, self._break),
            (trouble.kill_gateway, lambda: self._kill(self.gateway)),
            (trouble.shut_worker, lambda: self._shut(self._any_worker())),
            (trouble.change_usage, lambda: self._change_usage(self._any_worker())),
            (trouble.change_models, self._change_models),
            (trouble.weaken_token, self._weaken_token),
        ]
        for rate, act in rates:
            when = begin + self.random.expovariate(rate)
            while when < begin + TROUBLE_SECONDS:
                self.clock.call_at(when, act)
                when += self.random.expovariate(rate)

    def _any_scheduler(self) -> SchedulerProcess:
        return self.random.choice(self.schedulers)

    def _any_worker(self) -> WorkerProcess:
        return self.random.choice(self.workers)

    def _kill(self, process: Process) -> None:
        if not process.is_running:
            return
        process.kill()
        down = self.random.uniform(0.0, self.trouble.down_seconds_max)
        self.clock.call_at(self.clock.now() + down, lambda: self._start(process))

    def _lose_half(self) -> None:
        running = [worker for worker in self.workers if worker.is_running]
        count = (len(running) + 1) // 2
        for worker in self.random.sample(running, count):
            worker.kill()
            back_at = self.clock.now() + self.random.uniform(20.0, 40.0)
            self.clock.call_at(back_at, partial(self._start, worker))
            for scheduler in self.schedulers:
                self._expect_gone(worker, scheduler, self.clock.now())

    def _expect_gone(
        self, worker: WorkerProcess, scheduler: SchedulerProcess, lost_at: float
    ) -> None:
        """Within twice the health-check time, until it starts again. A scheduler may hear of it
        only after its death, by a record that outlived it: it has as long from then on."""
        patience = 2 * scheduler.settings.health_check_interval
        boot: int | None = None
        heard_at = lost_at
        left: set[int] = set()

        def look() -> None:
            nonlocal boot, heard_at
            now = self.clock.now()
            if worker.started_at > lost_at or now > lost_at + GONE_SECONDS_MAX:
                return
            if not scheduler.was_awake_since(lost_at):
                boot = None
                left.clear()
            elif (known := scheduler.known_boot(worker.peer)) != boot:
                left.update(() if boot is None else (boot,))
                boot, heard_at = known, now
            if boot is not None and (boot in left or now > heard_at + patience):
                how = "again" if boot in left else "still"
                told = f"{worker.peer} is {how} in {scheduler.peer}'s table"
                self.history.complaints.append(f"{told} {now - lost_at:g} s after its death")
            self.clock.call_at(now + 1.0, look)

        self.clock.call_at(lost_at, look)

    def _start(self, process: Process) -> None:
        if not process.is_running:
            process.start()

    def _freeze_loaded(self, tries: int = 20) -> None:
        loaded = [worker for worker in self.workers if worker.has_unstarted]
        if loaded:
            self._freeze(self.random.choice(loaded), 14.0)
        elif tries:
            soon = self.clock.now() + self.random.uniform(0.05, 0.5)
            self.clock.call_at(soon, lambda: self._freeze_loaded(tries - 1))

    def _freeze(self, process: Process, at_least: float = 0.1) -> None:
        if process.is_running and not process.clock.is_frozen:
            process.freeze()
            frozen = self.random.uniform(at_least, self.trouble.frozen_seconds_max)
            clock = process.clock
            self.clock.call_at(self.clock.now() + frozen, lambda: self._thaw(process, clock))

    def _thaw(self, process: Process, clock: object) -> None:
        if process.clock is clock:  # it may have been killed and started since
            process.thaw()

    def _break(self) -> None:
        self.network.break_connection(self._any_scheduler().peer, self._any_worker().peer)

    def _weaken_token(self) -> None:
        self.tokens.weaken(self._unix())
        for worker in self.workers:
            self._later(5.0, partial(worker.hear_of, self.tokens.revoked))
        self._submit_with_token()
        self._later(15.0, self._renew_token)

    def _renew_token(self) -> None:
        self.tokens.renew()
        self._submit_with_token()

    def _submit_with_token(self) -> None:
        """Whatever the user submits brings its token along."""
        for scheduler in self.schedulers:
            scheduler.credentials.keep(self.tokens.current, self.tokens.rights)

    def _later(self, seconds_max: float, act: Callable[[], None]) -> None:
        self.clock.call_at(self.clock.now() + self.random.uniform(0.0, seconds_max), act)

    def _change_models(self) -> None:
        self._any_worker().serve(self.random.choice((None, 0, 1, 2, 3)))

    def _change_usage(self, worker: WorkerProcess) -> None:
        usage = Usage(self.random.randint(0, 16), self.random.randint(0, 16))
        worker.post(UsageChanged(usage))

    def _shut(self, worker: WorkerProcess) -> None:
        random = self.random
        cause = random.choice(CAUSES)
        worker.post(Shut(cause, f"shut for {cause}", random.choice((None, 0.0, 1.0))))
        shut = random.uniform(0.1, 8.0)
        self.clock.call_at(self.clock.now() + shut, lambda: worker.post(Reopen(cause)))

    def _mend(self) -> None:
        self.network.faults = msgspec.structs.replace(
            self.network.faults, delay_seconds_max=0.01, break_per_frame=0.0, stall_seconds_max=0.0
        )
        self._renew_token()
        for process in self.processes:
            process.thaw()
            self._start(process)
        for worker in self.workers:
            for cause in CAUSES:
                worker.post(Reopen(cause))
        for worker in self.workers:
            worker.serve(2)

    # Clients

    def _unix(self) -> float:
        return self.clock.now() + EPOCH

    def _behaviour(self, job: JobId, index: int) -> tuple[float, str]:
        """How long a run of this task takes, and how it ends."""
        typical = self._typical[job]
        chance = self.random.random()
        end = "succeed"
        for name, share in typical.ends:
            if chance < share:
                end = name
                break
            chance -= share
        return typical.seconds * self.random.uniform(0.5, 1.5), end

    def _padding(self, job: JobId) -> int:
        return self._typical[job].padding

    def _ask(
        self,
        job: JobId,
        make: Callable[[RequestId], Event],
        answered: Callable[[object], None],
    ) -> None:
        """Asks the scheduler that this job is submitted to."""
        self._request += 1
        request = RequestId(self._request)
        self._expecting[request] = answered
        self.home_of(job).post(make(request))

    def _replied(self, reply: Reply) -> None:
        answered = self._expecting.pop(reply.request, None)
        if answered is not None:
            answered(reply.answer)

    def _submit_graph(self) -> None:
        random = self.random
        job_id = ulid(int(self.clock.now() * 1000), random.randbytes(10))
        self._home[job_id] = random.randrange(len(self.schedulers))
        self._typical[job_id] = Typical(
            random.choice((0.001, 0.3)), random.choice(((), UNRELIABLE))
        )
        graph = self.history.graphs[job_id] = draw_graph(random)

        def acknowledged(count: int) -> None:
            self.history.acknowledged[job_id] = count
            if count and random.random() < 0.4:
                self._use(job_id, count)

        def later(seconds: float, act: Callable[[], None]) -> None:
            self.clock.call_at(self.clock.now() + seconds, act)

        client = GraphClient(job_id, graph, random, self._ask, later, acknowledged)
        self._graph_clients.append(client)
        client.go_on()

    def _submit(self) -> None:
        random = self.random
        if random.random() < 0.3:
            self._submit_graph()
            return
        job_id = ulid(int(self.clock.now() * 1000), random.randbytes(10))
        self._home[job_id] = random.randrange(len(self.schedulers))
        count = random.choice((1, 3, 20, 60))
        seconds = random.choice((0.001, 0.03, 0.3, 2.0))
        ends = random.choice(((), (), UNRELIABLE, POISON))
        if ends is POISON:
            count = random.choice((1, 2))
        self._typical[job_id] = Typical(seconds, ends)
        driver = random.choice(("process", "python", "model"))
        timeout = random.choice((None, None, 1.2 * seconds))
        specification = Specification(
            work=_work(driver, timeout),
            retry=Retry(on_error=random.random() < 0.5),
            requirements=Requirements(cpu_cores=float(random.choice((0.5, 1, 1, 2)))),
            priority=random.choice((0, 0, 5)),
            deadline_at=random.choice((None, None, self._unix() + random.uniform(0.5, 30.0))),
        )
        # Nobody could run two cores on a swarm of single-core workers.
        most = max(worker.capabilities.cpu_cores for worker in self.workers)
        if specification.requirements.cpu_cores > most:
            specification = msgspec.structs.replace(
                specification, requirements=Requirements(cpu_cores=most)
            )
        in_batches = random.random() < 0.3
        self._try_submit(job_id, specification, 0 if in_batches else count, not in_batches)
        if in_batches:
            self._append(job_id, 0, count)

    def _try_submit(
        self, job_id: JobId, specification: Specification, count: int, close: bool
    ) -> None:
        """Submits, and submits the same again until it is answered, as a good client does."""
        if job_id in self.history.acknowledged or job_id in self.history.refused:
            return

        def answered(answer: object) -> None:
            if isinstance(answer, Unprocessable) and specification.deadline_at is not None:
                assert self._unix() >= specification.deadline_at, answer
                self.history.refused.add(job_id)
                return
            assert isinstance(answer, SubmittedView), answer
            self.history.acknowledged.setdefault(job_id, count)
            if count:
                self._use(job_id, count)

        def make(request: RequestId) -> Submit:
            return Submit(
                request=request,
                job_id=job_id,
                name="",
                user="owner",
                specification=specification,
                count=count,
                arguments=_arguments(count),
                close=close,
                body_digest=b"same",
            )

        self._ask(job_id, make, answered)
        self.clock.call_at(
            self.clock.now() + 2.0,
            lambda: self._try_submit(job_id, specification, count, close),
        )

    def _append(self, job_id: JobId, batch: int, count: int) -> None:
        acknowledged = self.history.acknowledged.get(job_id)

        def answered(answer: object) -> None:
            if isinstance(answer, BatchView):
                self.history.acknowledged[job_id] = answer.first + answer.count
                self._use(job_id, answer.count)
                self._close(job_id)

        if acknowledged == 0:
            self._ask(
                job_id,
                lambda request: Append(request, job_id, batch, count, _arguments(count)),
                answered,
            )
        if not acknowledged:
            self.clock.call_at(self.clock.now() + 2.0, lambda: self._append(job_id, batch, count))

    def _close(self, job_id: JobId) -> None:
        self._ask(job_id, lambda request: CloseJob(request, job_id), lambda answer: None)

    def _use(self, job_id: JobId, count: int) -> None:
        """Reads, waits for and cancels some of its tasks."""
        random = self.random
        if (job_id, count) in self._jobs:
            return
        self._jobs.append((job_id, count))
        for _ in range(min(count, 4)):
            index = random.randrange(count)
            when = self.clock.now() + random.uniform(0.0, 20.0)
            act = random.choice((self._read, self._wait, self._cancel))
            self.clock.call_at(when, lambda act=act, index=index: act(job_id, index))  # type: ignore[misc]

    def _read(self, job: JobId, index: int) -> None:
        def answered(answer: object) -> None:
            if isinstance(answer, TaskIsOver):
                self._saw(job, index, "")

        self._ask(job, lambda request: ReadTask(request, job, index), answered)

    def _wait(self, job: JobId, index: int) -> None:
        def answered(answer: object) -> None:
            if isinstance(answer, TaskIsOver):
                self._saw(job, index, "" if answer.ended is None else answer.ended.state)

        self._ask(job, lambda request: WaitTask(request, job, index), answered)

    def _cancel(self, job: JobId, index: int) -> None:
        def answered(answer: object) -> None:
            assert not isinstance(answer, Refusal), answer
            self.history.cancelled.add((job, index))
            self._saw(job, index, "")

        self._ask(job, lambda request: CancelTask(request, job, index), answered)

    def _saw(self, job: JobId, index: int, state: str) -> None:
        self.history.seen.append(Seen(self.clock.now(), job, index, state))

    def _is_through(self) -> bool:
        """Everything acknowledged has ended, and nothing waits for an acknowledgement, or to be
        committed or done."""
        if self.history.complaints:
            return True
        if any(not one.is_running or one.clock.is_frozen for one in self.schedulers):
            return False
        if not all(one.node.runtime.is_quiet for one in self.schedulers):
            return False
        if not all(client.is_done for client in self._graph_clients):
            return False
        for job, count in self.history.acknowledged.items():
            row = self.home_of(job).store.job(job)
            if row is None or row.succeeded + row.failed + row.cancelled < count:
                return False
        return all(
            not record.outcomes
            for worker in self.workers
            for record in worker.machine.schedulers.values()
        )


def _work(driver: str, timeout: float | None) -> Work:
    if driver == "model":
        return Work(driver, model=MODEL, timeout_seconds=timeout)
    return Work(driver, command=("true",), timeout_seconds=timeout)


def _arguments(count: int) -> bytes:
    """Each task gets its own index, so that a mix-up shows in what it computes."""
    return msgspec.json.encode([[index] for index in range(count)]) if count else b""
