"""The `model` driver: gives tasks to model servers on the worker's own side.

A lane is one request at a time. Nothing of the task runs in the worker: it is data for a
server, which the worker's owner chose. What a stream brings is handed on as it comes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

import msgspec

from mycel.core.identifiers import AttemptId, LaneId

from .http_stream import Endpoint, EndpointFault, Response, request
from .interface import LONG_SECONDS, VALUE_BYTES_MAX, DriverListener, Finished, Run
from .interpreter_records import clock
from .model_calls import BadAnswer, BadInput, Call, Kind, call_of, refusal_of, value_of

STREAM_BYTES_MAX: Final = 16 << 20
"""Of one task's stream, all together."""
_DATA: Final = b"data:"
_DONE: Final = b"[DONE]"
_ERROR: Final = b'{"error"'


class ModelSource:
    """Where a model answers. One model may have several: requests go to the least busy."""

    def __init__(self, kind: Kind, endpoint: Endpoint, served_as: str) -> None:
        self.kind: Final = kind
        self.endpoint: Final = endpoint
        self.served_as: Final = served_as
        """The name that its server knows it by."""
        self.running = 0


class _Lane:
    def __init__(self) -> None:
        self.waiting: deque[Run] = deque()
        self.running: Run | None = None
        self.is_long = False


class ModelDriver:
    def __init__(self, listener: DriverListener) -> None:
        self._listener = listener
        self._sources: dict[str, list[ModelSource]] = {}
        self._loop = asyncio.get_running_loop()
        self._lanes: dict[LaneId, _Lane] = {}
        self._tasks: dict[AttemptId, asyncio.Task[None]] = {}
        self._killed: set[AttemptId] = set()

    @property
    def name(self) -> str:
        return "model"

    def serve(self, sources: dict[str, list[ModelSource]]) -> None:
        """What is served from now on, by name; requests under way go on."""
        self._sources = sources

    def submit(self, lane: LaneId, runs: list[Run]) -> None:
        state = self._lanes.setdefault(lane, _Lane())
        if state.is_long:
            attempts = [run.attempt for run in runs]
            self._loop.call_soon(self._listener.returned, lane, attempts)
            return
        state.waiting.extend(runs)
        if state.running is None:
            self._next(lane, state)

    def withdraw(self, attempts: list[AttemptId]) -> None:
        wanted = set(attempts)
        withdrawn: list[AttemptId] = []
        for state in self._lanes.values():
            withdrawn += [run.attempt for run in state.waiting if run.attempt in wanted]
            state.waiting = deque(run for run in state.waiting if run.attempt not in wanted)
        if withdrawn:
            self._loop.call_soon(self._listener.withdrawn, withdrawn)

    def kill(self, attempts: list[AttemptId]) -> None:
        self.withdraw(attempts)
        for attempt in attempts:
            task = self._tasks.get(attempt)
            if task is not None:
                self._killed.add(attempt)
                task.cancel()

    def close_lane(self, lane: LaneId) -> None:
        self._lanes.pop(lane, None)

    async def close(self) -> None:
        self.withdraw([run.attempt for lane in self._lanes.values() for run in lane.waiting])
        self.kill(list(self._tasks))
        while self._tasks:
            await asyncio.wait(self._tasks.values())

    # One request

    def _next(self, lane: LaneId, state: _Lane) -> None:
        state.running = run = state.waiting.popleft() if state.waiting else None
        state.is_long = False
        if run is not None:
            task = self._loop.create_task(self._run(lane, state, run), name=f"model {run.task_id}")
            self._tasks[run.attempt] = task

    async def _run(self, lane: LaneId, state: _Lane, run: Run) -> None:
        started_at = clock()
        watch = self._loop.call_later(LONG_SECONDS, self._is_long, lane, state, run, started_at)
        try:
            finished = await self._finish(run)
        finally:
            watch.cancel()
            self._tasks.pop(run.attempt, None)
            self._killed.discard(run.attempt)
        whole = msgspec.structs.replace(finished, started_at=started_at, ended_at=clock())
        self._listener.finished([whole])
        self._next(lane, state)

    def _is_long(self, lane: LaneId, state: _Lane, run: Run, started_at: float) -> None:
        state.is_long = True
        back = [one.attempt for one in state.waiting]
        state.waiting.clear()
        self._listener.started([(run.attempt, started_at)])
        if back:
            self._listener.returned(lane, back)

    async def _finish(self, run: Run) -> Finished:
        """Every way in which a request can end."""
        attempt = run.attempt
        try:
            async with asyncio.timeout(run.work.timeout_seconds):
                return Finished(attempt, "succeeded", value=await self._ask(run))
        except TimeoutError:
            seconds = run.work.timeout_seconds
            return Finished(attempt, "timed_out", error=f"it took longer than {seconds:g} s")
        except asyncio.CancelledError:
            if attempt not in self._killed:
                raise
            return Finished(attempt, "cancelled", error="it was cancelled")
        except BadInput as error:
            return Finished(attempt, "failed", error=str(error))
        except (EndpointFault, BadAnswer) as error:
            return Finished(attempt, "failed", error=str(error), driver_fault=True)

    async def _ask(self, run: Run) -> bytes:
        work = run.work
        sources = self._sources.get(work.model)
        if not sources:
            raise EndpointFault(f"the model {work.model} is not served here any more")
        source = min(sources, key=lambda one: one.running)
        given = run.arguments or work.input
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
            raise EndpointFault(text)
        raise BadInput(text)

    @staticmethod
    def _checked(kind: Kind, call: Call, answer: bytes) -> bytes:
        value = value_of(kind, call, answer)
        if len(value) > VALUE_BYTES_MAX:
            raise BadInput(f"the result has {len(value)} bytes; {VALUE_BYTES_MAX} are the limit")
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
            if data.startswith(_ERROR):
                raise EndpointFault(f"the model server failed: {data.decode(errors='replace')}")
            count += 1
            size += len(data)
            if size > STREAM_BYTES_MAX:
                raise EndpointFault(f"the model server's stream is over {STREAM_BYTES_MAX} bytes")
            self._listener.streamed(run.attempt, data)
        raise EndpointFault("the model server broke its stream off")
