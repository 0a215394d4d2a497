"""Whatever a user submits, and whatever comes of it: it is refused with a reason or it runs.
Neither ends the scheduler, and what is kept of it does not when the scheduler starts again.

The whole way but the sockets: the API's reading of a body, the roles of a scheduler and a worker
with the frames between them, and the journal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mycel.api.authentication import Caller
from mycel.api.http.problems import Problem
from mycel.api.routes import job_routes
from mycel.api.submission.model_owners import ModelNames
from mycel.core.errors import Refusal
from mycel.core.events import Event, ExplainTask
from mycel.core.identifiers import AttemptId, JobId, RequestId
from mycel.core.model.work import Run
from mycel.core.rights import Rights
from mycel.drivers.interface import Finished
from tests.document.scene import Scene
from tests.simulation.worker_process import WorkerProcess

REQUEST_BYTES_MAX = 10_000_000
SECONDS = 20.0


def obliging(end: Finished) -> type[WorkerProcess]:
    """A worker that runs all that it is sent, which always ends like this."""

    class Obliging(WorkerProcess):
        def _handed(self, run: Run, index: int) -> list[list[Any]]:
            return []

        def _outcome(self, run: Run) -> Finished:
            return msgspec.structs.replace(end, attempt=run.attempt)

    return Obliging


class Front:
    """What the API's reading of jobs needs of a scheduler."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.names = ModelNames(lambda name: False, tuple)

    async def ask(self, make: Callable[[RequestId], Event]) -> object:
        answer = self._scene.ask(make)
        if isinstance(answer, Refusal):
            raise answer
        return answer

    def keep_credential(self, token: bytes, rights: Rights) -> None: ...


# What somebody might send, by mistake or not: mostly what is taken, since the rest is soon told.


def _mostly(
    good: st.SearchStrategy[Any], odd: st.SearchStrategy[Any] | None = None
) -> st.SearchStrategy[Any]:
    return st.integers(0, 99).flatmap(
        lambda chance: good if chance else _anything if odd is None else odd
    )


def _some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Any of these fields."""
    return st.fixed_dictionaries({}, optional={k: _mostly(v) for k, v in fields.items()})


def _joined(*parts: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.tuples(*parts).map(lambda found: {k: v for one in found for k, v in one.items()})


_texts = st.one_of(
    st.sampled_from(
        [
            "",
            " ",
            "²",
            "a",
            "${",
            "${a}",
            "${a[0]}",
            "${a.b}${b}",
            "${needs.a}",
            "${needs.a[0]}",
            "${needs.a[0].a} ${needs.b}",
            "${needs.a[99999]}",
            "${needs.a.²}",
            "${index}",
            "${input}",
            "$${a}",
            "{input}",
            "${a}" * 3000,
            "long " * 30_000,
        ]
    ),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8),
)
_words = _mostly(st.sampled_from(["a", "b", "c", "b-1", "a" * 90]), st.text(min_size=1))
_amounts = st.sampled_from([1e-12, 0.1, 0.5, 1, 2, 1e9])
_sizes = st.sampled_from([1, 1 << 20, 1 << 62, "1KB", "1.5GB"])
_anything = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.sampled_from([0, -1, 1e-12, 1e308, 1 << 62, 1 << 63, 10**30]),
        _texts,
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=8,
)
_deep = st.integers(1, 120).map(lambda levels: msgspec.json.decode(b"[" * levels + b"]" * levels))
_values = _mostly(_anything, _deep)
_pairs = st.dictionaries(_words, _texts.map(lambda text: text[:200]), max_size=2)

_requirements = _some(
    cpu_cores=_amounts,
    min_memory=_sizes,
    disk=_sizes,
    gpu_required=st.booleans(),
    gpus=_some(count=_amounts, model=_words, memory=_sizes),
    custom=st.dictionaries(_words, _amounts, max_size=2),
    labels=_pairs,
    arch=_words,
    os=_words,
    software=st.dictionaries(_words, st.sampled_from([">=1,<2", "3"]), max_size=2),
)
_retry = _some(max_attempts=st.integers(1, 1000), on_error=st.booleans())
_of_tasks: dict[str, st.SearchStrategy[Any]] = {
    "requirements": _requirements,
    "priority": st.integers(-1_000_000, 1_000_000),
    "env": st.dictionaries(_words, _texts, max_size=2),
    "timeout": _amounts,
    "retry": _retry,
    "labels": _pairs,
}
_more = _some(
    name=_words,
    deadline=st.one_of(_amounts, st.just("2030-01-31T12:00:00Z")),
    max_cost=_amounts,
    outputs=st.lists(_words, max_size=2),
    **_of_tasks,
)
_commands = st.lists(_texts, max_size=3).map(lambda rest: ["a", *rest])
_functions = st.sampled_from(["a:b", "math:hypot"])
_environment = _some(environment=st.one_of(st.just("a==1"), st.just("long " * 30_000)))
_arguments = st.one_of(st.lists(_values, max_size=3), st.dictionaries(_words, _values, max_size=2))
_inputs = st.one_of(
    _texts,
    st.fixed_dictionaries({"text": _texts}),
    st.fixed_dictionaries({"json": _values}),
)
_work = st.one_of(
    _joined(st.fixed_dictionaries({"command": _commands}), _environment),
    _joined(
        st.fixed_dictionaries({"python": _functions}, optional={"arguments": _arguments}),
        _environment,
    ),
    st.fixed_dictionaries(
        {"model": _words, "input": _inputs},
        optional={"parameters": st.dictionaries(_words, _values, max_size=2)},
    ),
    st.fixed_dictionaries({"driver": _words}, optional={"command": _commands}),
)
_override = _joined(
    st.one_of(
        st.fixed_dictionaries({"tasks": st.sampled_from(["0", "0-1,3", "2-1", [0], [5]])}),
        st.fixed_dictionaries({"where": st.dictionaries(_words, _values, max_size=1)}),
    ),
    _some(**_of_tasks),
)
_overrides = _some(overrides=st.lists(_override, max_size=1))
_alike = st.one_of(
    st.fixed_dictionaries({"count": st.integers(1, 5)}),
    st.fixed_dictionaries(
        {
            "matrix": st.dictionaries(
                _words, st.lists(_values, min_size=1, max_size=3), min_size=1, max_size=3
            )
        }
    ),
    st.fixed_dictionaries({"inputs": st.lists(_values, min_size=1, max_size=3)}),
)
_tasks = st.one_of(
    _joined(_alike, st.fixed_dictionaries({"task": _joined(_work, _more)}), _overrides),
    _joined(
        st.fixed_dictionaries(
            {
                "arguments": st.lists(_arguments, min_size=1, max_size=4),
                "task": _joined(st.fixed_dictionaries({"python": _functions}), _more),
            }
        ),
        _overrides,
    ),
)
_stage = _joined(_tasks, _some(on_failure=st.sampled_from(["fail", "continue", "ignore"])))


def _in_a_row(stages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each needs those before it, and may ask for what they bring."""
    return [
        stage | {"name": name, "needs": list("abcd"[:place])}
        for place, (name, stage) in enumerate(zip("abcd", stages, strict=False))
    ]


_jobs = _mostly(
    st.one_of(
        _joined(_tasks, _some(name=_words)),
        st.fixed_dictionaries(
            {"stages": st.lists(_stage, min_size=1, max_size=4).map(_in_a_row)},
        ),
    )
)
_results = st.one_of(
    _values.map(lambda value: _encoded(value)),
    st.sampled_from([b"", b"a", b"\xff", b'"\\ud800"', b"1" * 5000, b"[" * 5000]),
)
_ends = st.builds(
    lambda state, value, error: Finished(
        AttemptId(0), state, value=value if state == "succeeded" else b"", error=error
    ),
    st.sampled_from(["succeeded", "succeeded", "failed"]),
    _results,
    _texts,
)


def _encoded(value: object) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (msgspec.MsgspecError, UnicodeEncodeError, OverflowError):
        return b"{}"


def _submit(front: Front, caller: Caller, body: bytes) -> JobId | None:
    """None if it is refused, which is always by one of these."""
    try:
        view = asyncio.run(job_routes.submit(front, caller, body, "", REQUEST_BYTES_MAX))  # type: ignore[arg-type]
    except (Problem, Refusal, msgspec.DecodeError):
        return None
    return view.job.job_id


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(bodies=st.lists(_jobs, min_size=1, max_size=3), end=_ends)
def test_no_job_ends_the_scheduler(bodies: list[object], end: Finished) -> None:
    with TemporaryDirectory() as folder:
        scene = Scene(Path(folder), worker=obliging(end))
        for worker in scene.workers:
            worker.behaviour = lambda job, index: (0.01, "succeed")
        caller = Caller(scene.scheduler.tokens.rights, scene.scheduler.tokens.current)
        front = Front(scene)
        taken = [_submit(front, caller, _encoded(body)) for body in bodies]
        scene.run(SECONDS)
        scene.scheduler.kill()
        scene.scheduler.start()
        scene.run(SECONDS)
        for job in taken:
            if job is not None:
                scene.ask(lambda request, job=job: ExplainTask(request, job, 0))
        assert not scene.history.complaints
