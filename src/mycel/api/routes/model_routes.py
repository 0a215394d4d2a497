"""The models that are served, as clients read them."""

from __future__ import annotations

import msgspec

from mycel.api.backend import Backend, ask_for
from mycel.api.http.exchange import Request
from mycel.core.events import ReadWorkers
from mycel.core.model.model_names import shown
from mycel.core.model.resources import ServedModel
from mycel.core.model.work import model_slot
from mycel.core.views import WorkerView


class ServingWorker(msgspec.Struct, frozen=True):
    peer_id: str
    name: str
    state: str
    slots_free: int
    slots_total: int
    trouble: str = ""
    """Why it is not up there."""


class ModelAnswer(msgspec.Struct, frozen=True):
    name: str
    kind: str
    """`chat`, `completion`, `embedding`, `image` or `custom`."""
    workers: list[ServingWorker]
    slots_free: int
    """Requests that would be taken at once."""
    slots_total: int
    memory: int
    """Bytes that it takes of a worker, as declared or derived; 0 if nobody says."""
    gpu_memory: int


class ModelList(msgspec.Struct, frozen=True):
    items: list[ModelAnswer]
    next: str | None


async def list_models(request: Request) -> None:
    """Those that the caller can ask for, as it writes them."""
    request.query()
    backend, caller = request.backend, request.caller
    views: list[WorkerView] = await ask_for(backend, list, ReadWorkers)
    found: dict[str, list[tuple[WorkerView, ServedModel]]] = {}
    for view in views:
        for model in view.capabilities.served:
            found.setdefault(model.name, []).append((view, model))
    names = {full: _name(backend, caller.user, full, found[full]) for full in found}
    items = [_answer(name, found[full]) for full, name in names.items() if name is not None]
    await request.answer(ModelList(sorted(items, key=lambda one: one.name), None))


def _name(
    backend: Backend, user: str, full: str, served: list[tuple[WorkerView, ServedModel]]
) -> str | None:
    """One that is promised nowhere cannot be asked for; its owner is told of it all the same."""
    name = backend.names.as_written(full, user)
    if name is None and not any(model.promised for _, model in served):
        return shown(full)
    return name


def _answer(name: str, served: list[tuple[WorkerView, ServedModel]]) -> ModelAnswer:
    workers = [
        ServingWorker(
            view.peer, view.name, view.state, _free(view, model), model.slots, model.trouble
        )
        for view, model in served
    ]
    return ModelAnswer(
        name=name,
        kind=served[0][1].kind,
        workers=workers,
        slots_free=sum(worker.slots_free for worker in workers),
        slots_total=sum(worker.slots_total for worker in workers),
        memory=max(model.memory for _, model in served),
        gpu_memory=max(model.gpu_memory for _, model in served),
    )


def _free(view: WorkerView, model: ServedModel) -> int:
    custom = () if view.free is None else view.free.custom
    return min(model.slots, max(0, int(dict(custom).get(model_slot(model.name), 0.0))))
