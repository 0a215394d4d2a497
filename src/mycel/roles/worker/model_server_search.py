"""Model servers that run on the worker's machine anyway: looked for where they usually listen.

What they have is offered if the owner says so; if not, the log says what was found, and how to
offer it. A server that goes takes its models along.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from mycel.config.settings import Model, Worker
from mycel.core.model.model_names import objection
from mycel.core.model.model_program import Kind
from mycel.core.model.resources import ServedModel
from mycel.drivers.model.http_stream import Endpoint, EndpointFault, request
from mycel.drivers.model.model_driver import ModelSource
from mycel.membership.member import NoteLine

ANSWER_SECONDS_MAX: Final = 2.0
ANSWER_BYTES_MAX: Final = 1 << 20
MODELS_MAX: Final = 100
"""Of one server."""
SLOTS: Final = 4
"""Requests at once to a model that was found: few servers take fewer."""
OURS: Final = "mycel"
"""Who owns the models of a scheduler: to offer those again would be to go in circles."""


class _Listed(msgspec.Struct):
    id: str
    owned_by: str = ""


class _Listing(msgspec.Struct):
    data: list[_Listed]


class Finding:
    """`offer` and `withdraw` are told of models by server and name."""

    def __init__(
        self,
        worker: Worker,
        offer: Callable[[object, ServedModel, ModelSource], None],
        withdraw: Callable[[object], None],
        note: NoteLine,
    ) -> None:
        self._worker = worker
        self._offer = offer
        self._withdraw = withdraw
        self._note = note
        self._found: dict[str, frozenset[str]] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._worker.model_servers:
            self._task = asyncio.create_task(self._search(), name="model servers")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _search(self) -> None:
        while True:
            for server in self._worker.model_servers:
                self._compare(server, await models_at(server) - _known(self._worker, server))
            await asyncio.sleep(self._worker.model_search_interval)

    def _compare(self, server: str, now: frozenset[str]) -> None:
        before = self._found.get(server, frozenset())
        if now == before:
            return
        self._found[server] = now
        offered = self._worker.offer_found_models
        hint = "" if offered else "[worker] offer_found_models = true offers them"
        self._note(
            "models_found", server=server, models=", ".join(sorted(now)), offered=offered, hint=hint
        )
        if not offered:
            return
        for name in before - now:
            self._withdraw((server, name))
        for name in sorted(now - before):
            served = ServedModel(name, kind_of(name), SLOTS)
            self._offer((server, name), served, ModelSource(kind_of(name), Endpoint(server), name))


async def models_at(server: str) -> frozenset[str]:
    """Nothing where nobody listens, or where what listens is no model server."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            async with request(Endpoint(server), "GET", "/models") as response:
                if response.status != 200:
                    return frozenset()
                body = await response.body(ANSWER_BYTES_MAX)
        listed = msgspec.json.decode(body, type=_Listing).data
    except (EndpointFault, TimeoutError, msgspec.MsgspecError, UnicodeDecodeError):
        return frozenset()
    return frozenset(
        one.id for one in listed[:MODELS_MAX] if not objection(one.id) and one.owned_by != OURS
    )


def kind_of(name: str) -> Kind:
    """Servers do not say; the names of models for embeddings do."""
    return "embedding" if "embed" in name.lower() else "chat"


def _known(worker: Worker, server: str) -> frozenset[str]:
    """What the owner has named is offered as they said."""

    def is_there(model: Model) -> bool:
        return model.endpoint.rstrip("/") == server.rstrip("/")

    there = {model.served_as or name for name, model in worker.models.items() if is_there(model)}
    return frozenset(there | set(worker.models))
