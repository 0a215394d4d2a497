"""Jobs of several stages, submitted at once or batch by batch, and their client."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec

from mycel.core.errors import Conflict
from mycel.core.events import Append, CloseJob, Event, Submit
from mycel.core.identifiers import JobId, RequestId
from mycel.core.model.derivation import StagePlan, derive
from mycel.core.model.jobs import Specification
from mycel.core.model.resources import Requirements
from mycel.core.model.stages import Policy, Stage
from mycel.core.model.work import Work
from mycel.core.views import BatchView, JobView, SubmittedView

AGAIN_SECONDS = 2.0


class Graph(msgspec.Struct, frozen=True):
    """What a client wants done: which stage each of its tasks belongs to."""

    stages: tuple[Stage, ...]
    stage_of: tuple[int, ...]
    """By index."""
    batches: tuple[tuple[int, int], ...]
    """Stage and count of each; nothing if the job comes as a whole."""
    driver: str

    @property
    def count(self) -> int:
        return len(self.stage_of)

    def arguments(self, first: int, count: int) -> bytes:
        """Each task gets its own index, and the results that its stage asks for."""
        items = []
        for index in range(first, first + count):
            stage = self.stages[self.stage_of[index]]
            wanted = [f"${{needs.{self.stages[place].name}}}" for place in stage.wants]
            items.append([index, *wanted])
        return msgspec.json.encode(items)

    def submit(self, request: RequestId, job: JobId) -> Submit:
        specification = Specification(
            work=Work(driver=self.driver, command=("true",)),
            requirements=Requirements(cpu_cores=1.0),
        )
        plans = []
        first = 0
        for place in range(len(self.stages)):
            count = 0 if self.batches else self.stage_of.count(place)
            arguments = self.arguments(first, count) if count else b""
            plans.append(StagePlan(specification, count, arguments))
            first += count
        derived = derive(self.stages, tuple(plans))
        return Submit(
            request=request,
            job_id=job,
            name="",
            user="owner",
            specification=specification,
            count=0,
            arguments=b"",
            close=not self.batches,
            body_digest=b"same",
            derived=derived,
        )


def draw_graph(random: Random) -> Graph:
    size = random.randint(2, 4)
    needs: list[tuple[int, ...]] = []
    wants: list[tuple[int, ...]] = []
    for place in range(size):
        needs.append(tuple(one for one in range(place) if random.random() < 0.6))
        wants.append(tuple(one for one in needs[place] if random.random() < 0.5))
    stages = tuple(
        Stage(
            f"stage-{place}",
            needs[place],
            random.choice(tuple(Policy)),
            any(place in wanted for wanted in wants),
            wants[place],
        )
        for place in range(size)
    )
    counts = [random.choice((1, 2, 6)) for _ in stages]
    if random.random() < 0.5:
        stage_of = [place for place, count in enumerate(counts) for _ in range(count)]
        return Graph(stages, tuple(stage_of), (), random.choice(("process", "python")))
    batches = [(place, count) for place, count in enumerate(counts) for _ in range(2)]
    random.shuffle(batches)
    stage_of = [place for place, count in batches for _ in range(count)]
    return Graph(stages, tuple(stage_of), tuple(batches), random.choice(("process", "python")))


Ask = Callable[[JobId, Callable[[RequestId], Event], Callable[[object], None]], None]


class GraphClient:
    """Opens, appends and closes, and does each again until it is answered; now and then it is
    muddled, and sends a batch twice, too early, or with other content under a number that was
    used."""

    def __init__(
        self,
        job: JobId,
        graph: Graph,
        random: Random,
        ask: Ask,
        later: Callable[[float, Callable[[], None]], None],
        acknowledged: Callable[[int], None],
    ) -> None:
        self.is_done = False
        self._job = job
        self._graph = graph
        self._random = random
        self._ask = ask
        self._later = later
        self._acknowledged = acknowledged
        self._step = -1
        """-1 opens; 0, 1, … append; the last one closes."""

    def go_on(self, step: int | None = None) -> None:
        """Does the next step, or the same again if it is still due."""
        if self.is_done or (step is not None and step != self._step):
            return
        step = self._step
        if step < 0:
            self._ask(self._job, self._opening, self._opened)
        elif step < len(self._graph.batches):
            self._append(step)
        else:
            self._ask(self._job, lambda request: CloseJob(request, self._job), self._closed)
        self._later(AGAIN_SECONDS, lambda: self.go_on(step))

    def _opening(self, request: RequestId) -> Event:
        return self._graph.submit(request, self._job)

    def _opened(self, answer: object) -> None:
        assert isinstance(answer, SubmittedView), answer
        if self._step >= 0:
            return
        self._step = 0
        if self._graph.batches:
            self._acknowledged(0)
            self.go_on()
        else:
            self.is_done = True
            self._acknowledged(self._graph.count)

    def _append(self, batch: int) -> None:
        def answered(answer: object) -> None:
            assert isinstance(answer, BatchView), answer
            if self._step == batch:
                self._step += 1
                self._acknowledged(answer.first + answer.count)
                self.go_on()

        for _ in range(self._random.choice((1, 1, 2))):
            self._ask(self._job, lambda request: self._batch(request, batch), answered)
        if self._random.random() < 0.2:
            self._ask(self._job, lambda request: self._batch(request, batch + 2, batch), _refused)
        if batch and self._random.random() < 0.2:
            self._ask(self._job, lambda request: self._other(request, batch - 1), _refused)

    def _batch(self, request: RequestId, number: int, like: int | None = None) -> Append:
        batches = self._graph.batches
        place, count = batches[number if like is None else like]
        first = sum(one for _, one in batches[:number])
        if like is not None:
            first = 0
        arguments = self._graph.arguments(first, count)
        return Append(request, self._job, number, count, arguments, self._graph.stages[place].name)

    def _other(self, request: RequestId, number: int) -> Append:
        return Append(request, self._job, number, 1, b'[["another"]]')

    def _closed(self, answer: object) -> None:
        assert isinstance(answer, JobView), answer
        self.is_done = True


def _refused(answer: object) -> None:
    assert isinstance(answer, Conflict), f"a muddled batch was taken: {answer}"
