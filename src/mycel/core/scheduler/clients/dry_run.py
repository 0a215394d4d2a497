"""What a job would become: its specifications as they would be taken in, and the answer to a
dry run."""

from __future__ import annotations

import msgspec

from mycel.core.events import Submit
from mycel.core.matching import has_room, slots_that_fit, total_of
from mycel.core.matching.rank_terms import Member
from mycel.core.model.jobs import Group, Specification
from mycel.core.model.resources import GpuRequirement, Requirements
from mycel.core.model.work import SERVICE, Shape, reserved
from mycel.core.scheduler.state import State
from mycel.core.scheduler.tasks.usage_profiles import with_profile
from mycel.core.views import PreviewView, ShapeView, StagePreview

from .explanation import Explaining


class Previewing:
    def __init__(self, state: State, explaining: Explaining) -> None:
        self._state = state
        self._explaining = explaining

    def prepared(self, specification: Specification) -> Specification:
        """With what the client left to the scheduler: the time-out and the profile."""
        return self._with_timeout(self._with_profile(specification))

    def _with_profile(self, specification: Specification) -> Specification:
        if specification.requirements_given or specification.work.driver == "model":
            return specification
        seen = self._state.profiles.of(specification.work)
        if seen is None:
            return specification
        asked = specification.requirements
        return msgspec.structs.replace(specification, requirements=with_profile(asked, seen))

    def _with_timeout(self, specification: Specification) -> Specification:
        work, settings = specification.work, self._state.settings
        if work.timeout_seconds is not None or work.driver == SERVICE:
            return specification
        default = settings.model_task_timeout if work.driver == "model" else settings.task_timeout
        if default is None:
            return specification
        work = msgspec.structs.replace(work, timeout_seconds=default)
        return msgspec.structs.replace(specification, work=work)

    # Dry runs

    def preview(self, event: Submit) -> PreviewView:
        counts: dict[Shape, int] = {}
        sources: dict[Shape, str] = {}
        stages_of: dict[Shape, list[str]] = {}
        names = [] if event.derived is None else [one.name for one in event.derived.stages]
        tasks_of_stage = [0] * len(names)
        for specification, stage, count in _tasks_in(event):
            prepared = self.prepared(specification)
            shape = Group.of(prepared, event.user).shape
            counts[shape] = counts.get(shape, 0) + count
            sources[shape] = self._source(specification)
            if names:
                tasks_of_stage[stage] += count
                mentioned = stages_of.setdefault(shape, [])
                if names[stage] not in mentioned:
                    mentioned.append(names[stage])
        stages = [] if event.derived is None else event.derived.stages
        return PreviewView(
            tasks=sum(counts.values()),
            stages=[
                StagePreview(
                    one.name, [names[place] for place in one.needs], one.policy.value, tasks
                )
                for one, tasks in zip(stages, tasks_of_stage, strict=True)
            ],
            shapes=[
                self._shape(shape, count, sources[shape], stages_of.get(shape, []))
                for shape, count in counts.items()
            ],
        )

    def _source(self, specification: Specification) -> str:
        if specification.requirements_given:
            return "given"
        if specification.work.driver == "model":
            return "model"
        return "default" if self._state.profiles.of(specification.work) is None else "seen"

    def _shape(self, shape: Shape, tasks: int, source: str, stages: list[str]) -> ShapeView:
        pool = self._state.pool
        able = pool.eligible(shape)
        members = [member for member in pool if able >> member.slot & 1]
        need = reserved(shape)
        free = [
            member
            for member in members
            if member.available and has_room(need, member.capabilities, member.expected)
        ]
        slots = sum(
            slots_that_fit(need, member.capabilities, total_of(member.capabilities))
            for member in members
        )
        return ShapeView(
            tasks=tasks,
            stages=stages,
            driver=shape.driver,
            model=shape.model,
            image=shape.image,
            requirements=_declared(shape, members) if source == "model" else shape.requirements,
            priority=shape.priority,
            source=source,
            workers_known=len(pool),
            workers_able=len(members),
            workers_free=len(free),
            slots=slots,
            missing=[row for row in self._explaining.obstacles(shape) if not row.temporary],
        )


def _declared(shape: Shape, members: list[Member]) -> Requirements:
    """The most that a worker says the model takes of it. It has been taken already: a task of
    the model reserves one of its slots."""
    served = [
        model for one in members for model in one.capabilities.served if model.name == shape.model
    ]
    gpu_memory = max((model.gpu_memory for model in served), default=0)
    return Requirements(
        min_memory=max((model.memory for model in served), default=0),
        gpus=GpuRequirement(memory=gpu_memory) if gpu_memory else None,
    )


def _tasks_in(event: Submit) -> list[tuple[Specification, int, int]]:
    """Specification, stage and number of tasks of each part."""
    if event.derived is None:
        return [(event.specification, 0, event.count)]
    groups = event.derived.groups
    return [(*groups[part.group], part.count) for part in event.derived.parts]
