"""The `model` driver: gives tasks to model servers on the worker's own side.

A lane is one request at a time. Nothing of the task runs in the worker: it is data for a
server, which the worker's owner chose. What a stream brings is handed on as it comes.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from mycel.core.identifiers import LaneId
from mycel.core.model.failures import LIMIT, upstream
from mycel.core.model.model_program import Kind
from mycel.drivers.coroutine_lanes import CoroutineDriver
from mycel.drivers.interface import VALUE_BYTES_MAX, DriverListener, Finished, Run

from .http_stream import Endpoint, EndpointFault, Response, request
from .input_files import names_a_file, with_content
from .model_requests import (
    BadAnswer,
    BadInput,
    Call,
    call_of,
    check_event,
    refusal_of,
    value_of,
)

STREAM_BYTES_MAX: Final = 16 << 20
"""Of one task's stream, all together."""
_DATA: Final = b"data:"
_DONE: Final = b"[DONE]"


class ModelSource:
    """Where a model answers. One model may have several: requests go to the least busy."""

    def __init__(self, kind: Kind, endpoint: Endpoint, served_as: str) -> None:
        self.kind: Final = kind
        self.endpoint: Final = endpoint
        self.served_as: Final = served_as
        """The name that its server knows it by."""
        self.running = 0


class ModelDriver(CoroutineDriver):
    def __init__(self, listener: DriverListener) -> None:
        super().__init__(listener)
        self._sources: dict[str, list[ModelSource]] = {}

    @property
    def name(self) -> str:
        return "model"

    def serve(self, sources: dict[str, list[ModelSource]]) -> None:
        """What is served from now on, by name; requests under way go on."""
        self._sources = sources

    async def perform(self, lane: LaneId, run: Run) -> Finished:
        del lane  # all are alike
        try:
            return Finished(run.attempt, "succeeded", value=await self._ask(run))
        except BadInput as error:
            return Finished(run.attempt, "failed", error=str(error), code=error.code)
        except (EndpointFault, BadAnswer) as error:
            return Finished(
                run.attempt, "failed", error=str(error), driver_fault=True, code=error.code
            )

    async def _ask(self, run: Run) -> bytes:
        work = run.work
        sources = self._sources.get(work.model)
        if not sources:
            raise EndpointFault(f"the model {work.model} is not served here any more")
        source = min(sources, key=lambda one: one.running)
        given = run.arguments or work.input
        if names_a_file(given):
            given = await asyncio.to_thread(with_content, source.kind, given, run.folder)
        call = call_of(source.kind, source.served_as, given, work.parameters)
        source.running += 1
        try:
            return await self._answer(run, source, call)
        finally:
            source.running -= 1

    async def _answer(self, run: Run, source: ModelSource, call: Call) -> bytes:
        body = msgspec.json.encode(call.body)
        async with request(source.endpoint, "POST", f"/{call.route}", body) as response:
            if response.status >= 400:
                await self._refused(response)
            if call.streams:
                return await self._stream(run, response)
            return self._checked(source.kind, call, await response.body(STREAM_BYTES_MAX))

    @staticmethod
    async def _refused(response: Response) -> None:
        text = refusal_of(response.status, await response.body(VALUE_BYTES_MAX))
        # 408 and 429 are about the moment, 5xx about the server; the rest about the request.
        if response.status >= 500 or response.status in (408, 429):
            raise EndpointFault(text, upstream(response.status))
        raise BadInput(text, upstream(response.status))

    @staticmethod
    def _checked(kind: Kind, call: Call, answer: bytes) -> bytes:
        value = value_of(kind, call, answer)
        if len(value) > VALUE_BYTES_MAX:
            text = f"the result has {len(value)} bytes; {VALUE_BYTES_MAX} are the limit"
            raise BadInput(text, LIMIT)
        return value

    async def _stream(self, run: Run, response: Response) -> bytes:
        """Hands each event on; the result only says how many there were."""
        count = size = 0
        async for line in response.lines():
            if not line.startswith(_DATA):
                continue
            data = line.removeprefix(_DATA).strip()
            if data == _DONE:
                return msgspec.json.encode({"json": {"streamed": count}})
            if not data:
                continue
            check_event(data)
            count += 1
            size += len(data)
            if size > STREAM_BYTES_MAX:
                raise EndpointFault(f"the model server's stream is over {STREAM_BYTES_MAX} bytes")
            self._listener.streamed(run.attempt, data)
        raise EndpointFault("the model server broke its stream off")
