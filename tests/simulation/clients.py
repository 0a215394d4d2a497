"""Those who submit to the simulated swarm, and read, wait for and cancel what they submitted."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from mycel.core.effects import Reply
from mycel.core.errors import Refusal, Unprocessable
from mycel.core.events import Append, CancelTask, CloseJob, Event, ReadTask, Submit, WaitTask
from mycel.core.identifiers import JobId, RequestId, ulid
from mycel.core.model.jobs import Specification
from mycel.core.model.resources import Requirements
from mycel.core.model.work import Retry, Work
from mycel.core.views import BatchView, SubmittedView, TaskIsOver

from .graphs import GraphClient, draw_graph
from .history import Seen
from .scheduler_process import SchedulerProcess
from .swarm import Swarm
from .worker_process import MODEL

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


class Clients:
    def __init__(self, swarm: Swarm) -> None:
        self._swarm = swarm
        self._random = swarm.random
        self._history = swarm.history
        self._typical: dict[JobId, Typical] = {}
        self._home: dict[JobId, int] = {}
        """Which scheduler each job is submitted to."""
        self._graph_clients: list[GraphClient] = []
        self._request = 0
        self._expecting: dict[RequestId, Callable[[object], None]] = {}
        self._jobs: list[tuple[JobId, int]] = []

    @property
    def are_done(self) -> bool:
        """They have asked for all that they meant to."""
        return all(client.is_done for client in self._graph_clients)

    def home_of(self, job: JobId) -> SchedulerProcess:
        return self._swarm.schedulers[self._home[job]]

    def behaviour(self, job: JobId, index: int) -> tuple[float, str]:
        """How long a run of this task takes, and how it ends."""
        typical = self._typical[job]
        chance = self._random.random()
        end = "succeed"
        for name, share in typical.ends:
            if chance < share:
                end = name
                break
            chance -= share
        return typical.seconds * self._random.uniform(0.5, 1.5), end

    def padding(self, job: JobId) -> int:
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

    def replied(self, reply: Reply) -> None:
        answered = self._expecting.pop(reply.request, None)
        if answered is not None:
            answered(reply.answer)

    def _submit_graph(self) -> None:
        random = self._random
        job_id = ulid(int(self._swarm.clock.now() * 1000), random.randbytes(10))
        self._home[job_id] = random.randrange(len(self._swarm.schedulers))
        self._typical[job_id] = Typical(
            random.choice((0.001, 0.3)), random.choice(((), UNRELIABLE))
        )
        graph = self._history.graphs[job_id] = draw_graph(random)

        def acknowledged(count: int) -> None:
            self._history.acknowledged[job_id] = count
            if count and random.random() < 0.4:
                self._use(job_id, count)

        client = GraphClient(job_id, graph, random, self._ask, self._swarm.later, acknowledged)
        self._graph_clients.append(client)
        client.go_on()

    def submit(self) -> None:
        random = self._random
        chance = random.random()
        if chance < 0.3:
            self._submit_graph()
            return
        if chance < 0.45:
            self._submit_alike(random.randrange(len(self._swarm.schedulers)), random.randint(3, 12))
            return
        job_id = ulid(int(self._swarm.clock.now() * 1000), random.randbytes(10))
        self._home[job_id] = random.randrange(len(self._swarm.schedulers))
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
            deadline_at=random.choice((None, None, self._swarm.unix() + random.uniform(0.5, 30.0))),
        )
        # Nobody could run two cores on a swarm of single-core workers.
        most = max(worker.capabilities.cpu_cores for worker in self._swarm.workers)
        if specification.requirements.cpu_cores > most:
            specification = msgspec.structs.replace(
                specification, requirements=Requirements(cpu_cores=most)
            )
        in_batches = random.random() < 0.3
        self._try_submit(job_id, specification, 0 if in_batches else count, not in_batches)
        if in_batches:
            self._append(job_id, 0, count)

    def _submit_alike(self, home: int, left: int) -> None:
        """One quick task after the other, for which a lease is held."""
        random = self._random
        job_id = ulid(int(self._swarm.clock.now() * 1000), random.randbytes(10))
        self._home[job_id] = home
        self._typical[job_id] = Typical(0.001, ())
        specification = Specification(_work("python", None), Requirements(cpu_cores=0.5))
        self._try_submit(job_id, specification, 1, close=True)
        if left:
            soon = random.choice((0.01, 0.2, 3.0))
            self._swarm.later(soon, lambda: self._submit_alike(home, left - 1))

    def _try_submit(
        self, job_id: JobId, specification: Specification, count: int, close: bool
    ) -> None:
        """Submits, and submits the same again until it is answered, as a good client does."""
        if job_id in self._history.acknowledged or job_id in self._history.refused:
            return

        def answered(answer: object) -> None:
            if isinstance(answer, Unprocessable) and specification.deadline_at is not None:
                assert self._swarm.unix() >= specification.deadline_at, answer
                self._history.refused.add(job_id)
                return
            assert isinstance(answer, SubmittedView), answer
            self._history.acknowledged.setdefault(job_id, count)
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
        self._swarm.later(
            2.0,
            lambda: self._try_submit(job_id, specification, count, close),
        )

    def _append(self, job_id: JobId, batch: int, count: int) -> None:
        acknowledged = self._history.acknowledged.get(job_id)

        def answered(answer: object) -> None:
            if isinstance(answer, BatchView):
                self._history.acknowledged[job_id] = answer.first + answer.count
                self._use(job_id, answer.count)
                self._close(job_id)

        if acknowledged == 0:
            self._ask(
                job_id,
                lambda request: Append(request, job_id, batch, count, _arguments(count)),
                answered,
            )
        if not acknowledged:
            self._swarm.later(2.0, lambda: self._append(job_id, batch, count))

    def _close(self, job_id: JobId) -> None:
        self._ask(job_id, lambda request: CloseJob(request, job_id), lambda answer: None)

    def _use(self, job_id: JobId, count: int) -> None:
        """Reads, waits for and cancels some of its tasks."""
        random = self._random
        if (job_id, count) in self._jobs:
            return
        self._jobs.append((job_id, count))
        for _ in range(min(count, 4)):
            index = random.randrange(count)
            seconds = random.uniform(0.0, 20.0)
            act = random.choice((self._read, self._wait, self._cancel))
            self._swarm.later(seconds, lambda act=act, index=index: act(job_id, index))  # type: ignore[misc]

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
            self._history.cancelled.add((job, index))
            self._saw(job, index, "")

        self._ask(job, lambda request: CancelTask(request, job, index), answered)

    def _saw(self, job: JobId, index: int, state: str) -> None:
        self._history.seen.append(Seen(self._swarm.clock.now(), job, index, state))


def _work(driver: str, timeout: float | None) -> Work:
    if driver == "model":
        return Work(driver, model=MODEL, timeout_seconds=timeout)
    return Work(driver, command=("true",), timeout_seconds=timeout)


def _arguments(count: int) -> bytes:
    """Each task gets its own index, so that a mix-up shows in what it computes."""
    return msgspec.json.encode([[index] for index in range(count)]) if count else b""
