"""Models that are kept up by a job: what clients ask for, and what they read."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from mycel.api.backend import ask_for
from mycel.api.http.exchange import Request
from mycel.api.http.problems import unprocessable
from mycel.api.submission.bodies import ServeBody, TaskBody
from mycel.config.sizes import parse_size
from mycel.core.events import ReadServices
from mycel.core.model.model_names import shown
from mycel.core.model.model_program import ServerSettings
from mycel.core.model.resources import Pairs
from mycel.core.model.work import SERVICE, Work
from mycel.core.views import ServiceView

GGUF_SLOTS: Final = 4
_ENTRY: Final = re.compile(r"[^:\s]+:[^:\s]+")


class ServiceAnswer(msgspec.Struct, frozen=True):
    model: str
    job_id: str
    replicas: int
    kind: str
    python: str
    gguf: str


class ServiceList(msgspec.Struct, frozen=True):
    items: list[ServiceAnswer]
    next: str | None


def service_of(body: TaskBody, serve: ServeBody, env: Pairs, path: str) -> Work:
    if (serve.python is None) == (serve.gguf is None):
        raise unprocessable("serve needs exactly one of python and gguf", path)
    if serve.python is not None and not _ENTRY.fullmatch(serve.python):
        raise unprocessable('python is "module:factory"', f"{path}.python")
    asked = body.requirements
    settings = ServerSettings(
        name=serve.name,
        kind=serve.kind,
        python=serve.python or "",
        gguf=serve.gguf or "",
        folder=serve.folder,
        slots=serve.concurrency or (serve.batch if serve.python else GGUF_SLOTS),
        batch=serve.batch,
        context=serve.context,
        threads=serve.threads or max(1, int(asked.cpu_cores if asked and asked.cpu_cores else 1)),
        gpu_layers=serve.gpu_layers,
        memory=parse_size(asked.min_memory) if asked and asked.min_memory else 0,
    )
    parameters = msgspec.json.encode(settings)
    return Work(
        SERVICE, model=serve.name, parameters=parameters, env=env, timeout_seconds=body.timeout
    )


async def list_services(request: Request) -> None:
    request.query()
    backend, caller = request.backend, request.caller
    views: list[ServiceView] = await ask_for(backend, list, ReadServices)
    mine = [
        _answer(view, backend.names.as_written(view.model, caller.user) or shown(view.model))
        for view in views
        if caller.sees(view.user)
    ]
    await request.answer(ServiceList(sorted(mine, key=lambda one: one.model), None))


def _answer(view: ServiceView, name: str) -> ServiceAnswer:
    settings = msgspec.json.decode(view.parameters, type=ServerSettings)
    return ServiceAnswer(
        name, view.job_id, view.replicas, settings.kind, settings.python, settings.gguf
    )
