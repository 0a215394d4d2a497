"""From a job's body to its derived tasks: sweeps, inputs, overrides and stages."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw

from mycel.api.http.problems import unprocessable
from mycel.core.errors import TooLong, Unprocessable
from mycel.core.model.derivation import (
    BATCH_TASKS_MAX,
    JOB_TASKS_MAX,
    Derived,
    Override,
    StagePlan,
    derive,
    input_arguments,
    mentions_input,
    positions_where,
)
from mycel.core.model.jobs import Specification
from mycel.core.model.stages import Stage, find_cycle, wanted
from mycel.core.model.substitution import head_of, references, references_in
from mycel.core.model.sweeps import Sweep

from . import conversion
from .bodies import JobBody, OverrideBody, RequirementsBody, StageBody, TaskBody, TasksBody
from .matrix import Parameters, sweep_of

Wants = set[tuple[str, int | None]]
"""Of which stages a stage wants results, and of which task, if only of one."""
STAGES_MAX: Final = 100
ARGUMENTS_BYTES_MAX: Final = 256 << 20
_STAGE_NAME: Final = re.compile(r"[A-Za-z_][\w-]{0,99}")
_RANGES: Final = re.compile(r"\s*\d{1,9}(?:-\d{1,9})?(?:\s*,\s*\d{1,9}(?:-\d{1,9})?)*\s*")
_encode: Final = msgspec.json.Encoder().encode


def is_simple(body: JobBody) -> bool:
    """One block of tasks that are alike says it all."""
    special = body.stages or body.matrix is not None or body.inputs is not None or body.overrides
    return not special and (body.count is None or body.count <= BATCH_TASKS_MAX)


def derived_from(body: JobBody, bytes_max: int) -> Derived:
    try:
        if body.stages:
            return _staged(body, bytes_max)
        if body.task is None:
            raise unprocessable("a job needs task or stages", "$")
        return derive((), (_Planner(body, body.task, "$", bytes_max).plan(0),))
    except Unprocessable as refusal:
        raise unprocessable(refusal.detail, "$") from refusal
    except TooLong as error:
        raise unprocessable(str(error), "$") from error


def _staged(body: JobBody, bytes_max: int) -> Derived:
    given = (body.task, body.count, body.matrix, body.inputs)
    if any(one is not None for one in given) or body.arguments is not UNSET or body.overrides:
        raise unprocessable("a job with stages has its tasks in them", "$")
    if len(body.stages) > STAGES_MAX:
        raise unprocessable(f"a job has at most {STAGES_MAX} stages", "$.stages")
    needs = _needs(body.stages)
    plans, wants = [], []
    for place, stage in enumerate(body.stages):
        path = f"$.stages[{place}]"
        # An open job's stages are filled by batches, unless they say how many they have.
        plan = _Planner(stage, stage.task, path, bytes_max).plan(1 if body.closed else 0)
        plans.append(plan)
        wants.append(_wants(stage, plan, path))
    names = [stage.name for stage in body.stages]
    if body.closed:  # else more tasks may come
        _check_tasks(wants, dict(zip(names, plans, strict=True)))
    stages = tuple(
        Stage(
            stage.name,
            tuple(needs[place]),
            stage.on_failure,
            any(stage.name in dict(wanted_here) for wanted_here in wants),
            tuple(names.index(name) for name in sorted(dict(wants[place]))),
        )
        for place, stage in enumerate(body.stages)
    )
    return derive(stages, tuple(plans))


def _needs(stages: list[StageBody]) -> list[list[int]]:
    """By places; names that are wrong and cycles are refused."""
    places: dict[str, int] = {}
    for place, stage in enumerate(stages):
        path = f"$.stages[{place}].name"
        if not _STAGE_NAME.fullmatch(stage.name):
            raise unprocessable(
                "a stage's name begins with a letter and has letters, digits, _ and -", path
            )
        if stage.name in places:
            raise unprocessable(f"there are two stages {stage.name!r}", path)
        places[stage.name] = place
    needs: list[list[int]] = []
    for place, stage in enumerate(stages):
        for name in stage.needs:
            if name not in places:
                known = ", ".join(repr(one) for one in places)
                raise unprocessable(
                    f"stage {stage.name!r} needs {name!r}, and there is no such stage; "
                    f"there are {known}",
                    f"$.stages[{place}].needs",
                )
        needs.append([places[name] for name in dict.fromkeys(stage.needs)])
    cycle = find_cycle(needs)
    if cycle is not None:
        circle = " → ".join(stages[place].name for place in cycle)
        raise unprocessable(
            f"the stages need each other in a circle: {circle}", f"$.stages[{cycle[0]}].needs"
        )
    return needs


def _wants(stage: StageBody, plan: StagePlan, path: str) -> Wants:
    sweep = plan.specification.sweep
    specifications = [plan.specification, *(one.specification for one in plan.overrides)]
    texts = plan.arguments if sweep is None else sweep.template
    found = {want for one in specifications for want in wanted(one.work, texts)}
    for name in sorted(dict(found).keys() - set(stage.needs)):
        raise unprocessable(
            f"stage {stage.name!r} uses ${{needs.{name}}} and does not need {name!r}", path
        )
    return found


def _check_tasks(wants: list[Wants], plans: dict[str, StagePlan]) -> None:
    """A task that there is not would leave its `${needs.…}` as it stands."""
    for place, wanted_here in enumerate(wants):
        for name, index in wanted_here:
            count = plans[name].count
            if index is not None and index >= count:
                raise unprocessable(
                    f"${{needs.{name}[{index}]}} is asked for, and stage {name!r} has {count:,} "
                    f"task{'s' if count != 1 else ''}, from 0 on",
                    f"$.stages[{place}]",
                )


def _joined(arguments: Iterable[Any]) -> bytes:
    """A JSON array, as long as a template may make it."""
    parts, size = [], 0
    for one in arguments:
        parts.append(_encode(one))
        size += len(parts[-1])
        if size > ARGUMENTS_BYTES_MAX:
            raise TooLong(
                f"the arguments of all tasks are more than {ARGUMENTS_BYTES_MAX >> 20} MiB"
            )
    return b"[" + b",".join(parts) + b"]"


class _Planner:
    """One stage, or a job that is one by itself."""

    def __init__(self, body: TasksBody, task: TaskBody, path: str, bytes_max: int) -> None:
        self._body = body
        self._task = task
        self._path = path
        self._bytes_max = bytes_max

    def plan(self, default_count: int) -> StagePlan:
        body, path = self._body, self._path
        ways = {
            "count": body.count is not None,
            "arguments": body.arguments is not UNSET,
            "matrix": body.matrix is not None,
            "inputs": body.inputs is not None,
        }
        named = [way for way, there in ways.items() if there]
        if len(named) > 1:
            raise unprocessable(f"give one of {' and '.join(named)}, not both", path)
        if body.matrix is not None:
            return self._of_matrix(body.matrix)
        if body.inputs is not None:
            return self._of_parameters(body.inputs, "inputs")
        return self._plain(default_count)

    # Alike, or with arguments of their own

    def _plain(self, default_count: int) -> StagePlan:
        body, task = self._body, self._task
        if body.count is None and body.arguments is UNSET:
            one = conversion.single_batch(task, f"{self._path}.task")
            batch = one if default_count else conversion.Batch(0, b"")
        elif body.count is not None and body.count > BATCH_TASKS_MAX:
            batch = self._many(body.count)
        else:
            batch = conversion.batch_of(body, task, self._path, self._bytes_max)
        return self._with_overrides(self._specification(task), batch.count, batch.arguments)

    def _many(self, count: int) -> conversion.Batch:
        path = f"{self._path}.count"
        if count > JOB_TASKS_MAX:
            raise unprocessable(f"a job has at most {JOB_TASKS_MAX:,} tasks, not {count:,}", path)
        if self._task.arguments is not UNSET:
            raise unprocessable(
                f"at most {BATCH_TASKS_MAX:,} tasks have their arguments in the task; "
                "for more use matrix or batches",
                path,
            )
        return conversion.Batch(count, b"")

    # Sweeps and inputs

    def _of_matrix(self, matrix: dict[str, Any]) -> StagePlan:
        path = f"{self._path}.matrix"
        sweep, listed = sweep_of(matrix, path)
        if listed is not None:
            return self._of_parameters(listed, "matrix")
        self._task = task = self._for_parameters([axis.name for axis in sweep.axes], "matrix")
        sweep = msgspec.structs.replace(sweep, template=self._template(task))
        sweep.longest()  # no task of it may be too long
        specification = self._specification(task, sweep)
        return self._with_overrides(specification, sweep.count, b"")

    def _of_parameters(self, given: list[Any], way: str) -> StagePlan:
        """One task for each set of parameters, written out."""
        path = f"{self._path}.{way}"
        if not given:
            raise unprocessable("there is nothing in it: a job needs at least one task", path)
        if len(given) > JOB_TASKS_MAX:
            raise unprocessable(f"a job has at most {JOB_TASKS_MAX:,} tasks", path)
        listed = [one if isinstance(one, dict) else {"input": one} for one in given]
        names = dict.fromkeys(name for one in listed for name in one)
        self._task = task = self._for_parameters(list(names), way)
        encoded = self._template(task)
        template = msgspec.json.decode(encoded) if encoded else None
        alone = not mentions_input(task.command or (), task.env.values())
        arguments = _joined(input_arguments(one, template, alone) for one in listed)
        return self._with_overrides(self._specification(task), len(listed), arguments, listed)

    def _template(self, task: TaskBody) -> bytes:
        """JSON, with `${…}`: arguments, or the input of a model."""
        if task.model is not None and task.input is not UNSET:
            return bytes(task.input)
        if task.arguments is not UNSET:
            return conversion.own_arguments(task, f"{self._path}.task")
        return b""

    def _for_parameters(self, names: list[str], way: str) -> TaskBody:
        """The task, fit to take these parameters."""
        task, path = self._task, f"{self._path}.task"
        if task.arguments is not UNSET and task.python is None and task.driver is None:
            raise unprocessable(
                f"with {way}, a command takes its parameters as ${{name}}, not in arguments",
                f"{path}.arguments",
            )
        if task.model is not None and task.input is UNSET and names == ["input"]:
            return msgspec.structs.replace(task, input=Raw(b'"${input}"'))
        known = {*names, "needs"}
        self._check_names(task, known)
        for name, value in task.env.items():
            if task.python is not None and any(
                head_of(path) in known for path in references(value)
            ):
                raise unprocessable(
                    f"{name} differs between tasks, and tasks of python share an interpreter: "
                    "take it as an argument",
                    f"{path}.env",
                )
        return task

    def _check_names(self, task: TaskBody, known: set[str]) -> None:
        """A name that nobody gives may be the shell's, and is left alone; one that is almost that
        of a parameter is a mistake."""
        texts = {"command": task.command or (), "env": list(task.env.values())}
        for field, words in texts.items():
            for path in references_in(words):
                near = None if head_of(path) in known else _near(head_of(path), known)
                if near is not None and head_of(path) not in task.env:
                    raise unprocessable(
                        f"there is no parameter {head_of(path)!r}; did you mean {near!r}? A "
                        f"variable of the shell is ${head_of(path)}, without braces",
                        f"{self._path}.task.{field}",
                    )

    def _specification(self, task: TaskBody, sweep: Sweep | None = None) -> Specification:
        place = f"{self._path}.task"
        found = conversion.specification(task, place)
        return found if sweep is None else msgspec.structs.replace(found, sweep=sweep)

    # Overrides

    def _with_overrides(
        self,
        specification: Specification,
        count: int,
        arguments: bytes,
        listed: list[Parameters] | None = None,
    ) -> StagePlan:
        overrides = []
        for place, body in enumerate(self._body.overrides):
            path = f"{self._path}.overrides[{place}]"
            positions = self._positions(body, specification.sweep, listed, path)
            task = msgspec.structs.replace(self._task, **_overridden(self._task, body))
            changed = conversion.specification(task, path)
            changed = msgspec.structs.replace(
                changed, work=_with(specification, changed), sweep=specification.sweep
            )
            overrides.append(Override(positions, changed))
            if sum(len(one.positions) for one in overrides) > JOB_TASKS_MAX:
                raise unprocessable(f"overrides name at most {JOB_TASKS_MAX:,} tasks", path)
        return StagePlan(specification, count, arguments, tuple(overrides))

    def _positions(
        self, body: OverrideBody, sweep: Sweep | None, listed: list[Parameters] | None, path: str
    ) -> tuple[int, ...]:
        if (body.tasks is None) == (body.where is None):
            raise unprocessable("an override has either tasks or where", path)
        if body.tasks is not None:
            return _numbers(body.tasks, f"{path}.tasks")
        assert body.where is not None
        chosen = {name: _choice(value) for name, value in body.where.items()}
        names = set() if listed is None else {name for one in listed for name in one}
        names |= set() if sweep is None else {axis.name for axis in sweep.axes}
        for name in chosen:
            if name not in names:
                raise unprocessable(f"there is no parameter {name!r}", f"{path}.where")
        if sweep is not None:
            positions = positions_where(sweep, chosen)
        else:
            positions = tuple(
                place
                for place, one in enumerate(listed or ())
                if all(name in one and _encode(one[name]) in chosen[name] for name in chosen)
            )
        if not positions:
            raise unprocessable("no task has these parameters", f"{path}.where")
        return positions


def _near(name: str, known: set[str]) -> str | None:
    """Of one or two letters, any name is near any other."""
    close = get_close_matches(name, known, 1, 0.75) if len(name) > 2 else []
    return close[0] if close else None


def _with(specification: Specification, changed: Specification) -> Any:
    """What a task runs is the same; an override changes around it."""
    return msgspec.structs.replace(
        specification.work,
        env=changed.work.env,
        timeout_seconds=changed.work.timeout_seconds,
        bounds=changed.work.bounds,
    )


def _overridden(task: TaskBody, body: OverrideBody) -> dict[str, Any]:
    changes: dict[str, Any] = {
        name: value
        for name in ("priority", "timeout", "retry")
        if (value := getattr(body, name)) is not None
    }
    if body.env:
        changes["env"] = {**task.env, **body.env}
    if body.labels:
        changes["labels"] = {**task.labels, **body.labels}
    if body.requirements is not None:
        changes["requirements"] = _merged(task.requirements, body.requirements)
    return changes


def _merged(base: RequirementsBody | None, over: RequirementsBody) -> RequirementsBody:
    """What an override does not name stays as it is."""
    if base is None:
        return over
    plain = RequirementsBody()
    changes = {
        name: value
        for name in RequirementsBody.__struct_fields__
        if (value := getattr(over, name)) != getattr(plain, name)
    }
    return msgspec.structs.replace(base, **changes)


def _choice(value: Any) -> set[bytes]:
    return {_encode(one) for one in (value if isinstance(value, list) else [value])}


def _numbers(tasks: list[int] | str, path: str) -> tuple[int, ...]:
    """`[0, 5]`, or `"0-9,15"`."""
    if isinstance(tasks, list):
        return tuple(sorted(set(tasks)))
    if not _RANGES.fullmatch(tasks):
        raise unprocessable('tasks are numbers, or a text such as "0-9,15"', path)
    chosen: set[int] = set()
    for part in tasks.split(","):
        first, _, last = part.strip().partition("-")
        begin, end = int(first), int(last or first)
        if end < begin:
            raise unprocessable(f"{part.strip()!r} runs backwards", path)
        if end >= JOB_TASKS_MAX:
            raise unprocessable(f"a job has at most {JOB_TASKS_MAX:,} tasks", path)
        chosen.update(range(begin, end + 1))
    return tuple(sorted(chosen))
