"""The shortest way through the API: `POST /api/v1/tasks?wait`, without a coroutine.

    request, whole ─▶ `Express.begin` ─▶ Submit             no task, no future, no messages
    answer, in one write ◀─ `TaskIsOver`

A task per request, its waiting for a future and the messages of ASGI cost more than what the
scheduler does for one of thousands of single tasks. So this exchange goes past them. Every
other request is uvicorn's and the application's, and so is this one wherever anything about it
is unusual, wrong or slow: they alone know how to refuse.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from mycel.api.http.caller_limits import Shares
from mycel.api.http.exchange import Asgi, Query, Scope, check_media_type, encode, header
from mycel.api.http.http_protocol import GuardedProtocol
from mycel.api.http.problems import Problem
from mycel.api.submission.named_files import have_files
from mycel.core.events import Submit
from mycel.core.identifiers import RequestId

from .authentication import Caller
from .backend import Backend, Stopping, submitting
from .routes.task_submission import TASKS_PATH, answer_waited, ended_at_once, submit_of

BODY_BYTES_MAX: Final = 64 << 10
"""Longer ones are rare, and better read in pieces."""

_HEAD: Final = (
    b"HTTP/1.1 201 Created\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\nlocation: " + TASKS_PATH.encode() + b"/%b\r\n"
)


class Express:
    """What the application offers the protocol."""

    def __init__(self, backend: Backend, admit: Callable[[Scope], Caller], waits: Shares) -> None:
        self._backend = backend
        self._admit = admit
        self._waits = waits

    def begin(self, scope: Scope, body: bytes) -> Exchange | None:
        """Submits the task. None, and nothing done, where the application had better look."""
        try:
            wait = _wait_seconds(scope["query_string"])
            if not wait or header(scope, b"idempotency-key") is not None:
                return None
            caller = self._admit(scope)
            check_media_type(scope)
            submit = submit_of(self._backend, caller, body, "", wait)
            if have_files(submit, body):
                return None
            return Exchange(self._backend, submit, wait, self._waits)
        except (Problem, Stopping, ValueError, RecursionError):
            return None


class Exchange:
    """A task that somebody waits for. The protocol sets what becomes of its end."""

    def __init__(self, backend: Backend, submit: Submit, wait: float, waits: Shares) -> None:
        self._backend = backend
        self._submit = submit
        self._waits = waits
        waits.take(submit.user)
        self.respond: Callable[[bytes, bytes], None]
        """With the body, and the task's id."""
        self.go_on: Callable[[Asgi], None]
        """Where more has to be read before there is an answer."""
        try:
            self._request: RequestId = backend.put(submitting(submit), self._replied)
        except BaseException:
            waits.give_back(submit.user)
            raise
        self._timer = asyncio.get_running_loop().call_later(wait, self._waited_enough)

    def hang_up(self) -> None:
        """The client is gone; its task is not."""
        self._waits.give_back(self._submit.user)
        self._timer.cancel()
        self._backend.forget(self._request)

    def _replied(self, reply: object) -> None:
        self._waits.give_back(self._submit.user)
        self._timer.cancel()
        try:
            task = ended_at_once(self._submit, reply)
            if task is not None:
                self.respond(encode(task), task.id.encode())
                return
        except Exception as error:  # noqa: BLE001 - this is called by the scheduler's own turn
            reply = error
        self._leave_to_application(reply)

    def _waited_enough(self) -> None:
        self._waits.give_back(self._submit.user)
        self._backend.forget(self._request)
        self._leave_to_application(None)

    def _leave_to_application(self, reply: object) -> None:
        self.go_on(partial(answer_waited, self._backend, self._submit, reply))


@lru_cache(64)
def _wait_seconds(query_string: bytes) -> float:
    return Query({"query_string": query_string}, "wait").wait_seconds()


class ExpressProtocol(GuardedProtocol):
    """The guarded protocol, which asks the application's `express` first."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._held: RequestResponseCycle | None = None
        """A request that may go the short way once all of it is here."""
        self._exchange: Exchange | None = None
        self._parses = False

    def data_received(self, data: bytes) -> None:
        self._parses = True
        super().data_received(data)
        self._parses = False
        if self._held is not None:  # its body takes time: the application knows how long
            held, self._held = self._held, None
            super()._start_asgi_task(held, self.app)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        if (
            self._parses
            and app is self.app
            and cycle.scope["path"] == TASKS_PATH
            and cycle.scope["method"] == "POST"
            and not cycle.waiting_for_100_continue
            and not self.flow.write_paused
        ):
            self._held = cycle
        else:
            super()._start_asgi_task(cycle, app)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        cycle = self._held
        if cycle is not None:
            self._held = None
            if not self._begin(cycle):
                super()._start_asgi_task(cycle, self.app)

    def connection_lost(self, exc: Exception | None) -> None:
        self._held = None
        if self._exchange is not None:
            self._exchange.hang_up()
            self._exchange = None
        super().connection_lost(exc)

    def _begin(self, cycle: RequestResponseCycle) -> bool:
        if len(cycle.body) > BODY_BYTES_MAX:
            return False
        exchange = self.app.express.begin(cycle.scope, bytes(cycle.body))
        if exchange is None:
            return False
        exchange.respond = partial(self._respond, cycle)
        exchange.go_on = partial(self._go_on, cycle)
        self._exchange = exchange
        return True

    def _respond(self, cycle: RequestResponseCycle, body: bytes, task_id: bytes) -> None:
        self._exchange = None
        cycle.response_started = cycle.response_complete = True
        closing = b"" if cycle.keep_alive else b"connection: close\r\n"
        head = _HEAD % (len(body), task_id)
        self.transport.write(b"%b%b\r\n%b" % (head, closing, body))
        if closing:
            self.transport.close()
        self.on_response_complete()

    def _go_on(self, cycle: RequestResponseCycle, handler: Asgi) -> None:
        self._exchange = None
        super()._start_asgi_task(cycle, self.app.guarded(handler))
