"""The application: who may come in, and where each request goes."""

from __future__ import annotations

import logging
from functools import partial

from mycel.api.http.caller_limits import Crowd, Limits
from mycel.api.http.exchange import (
    Asgi,
    Gone,
    Receive,
    Request,
    Scope,
    Send,
    answer_problem,
    header,
)
from mycel.api.http.http_protocol import CONNECTION, GuardedProtocol
from mycel.api.http.problems import Problem, from_exception
from mycel.core.rights import SUBMIT

from . import router
from .authentication import ANYBODY, Authenticator, Caller, authorise
from .backend import Backend
from .express import Express

_log = logging.getLogger("mycel.api")


class Application:
    """An ASGI application for HTTP alone."""

    def __init__(self, backend: Backend, authenticator: Authenticator, limits: Limits) -> None:
        self._backend = backend
        self._limits = limits
        self._crowd = Crowd(limits)
        self._authenticator = authenticator
        self.express = Express(backend, self._admit_task, self._crowd.waits)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._guard(self._dispatch, scope, receive, send)

    def guarded(self, handler: Asgi) -> Asgi:
        """The handler as an application of its own, which answers for its errors."""
        return partial(self._guard, handler)

    async def _guard(self, handler: Asgi, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def send_once(message: dict[str, object]) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await handler(scope, receive, send_once)  # type: ignore[arg-type]
        except Gone:
            return
        except Exception as error:  # noqa: BLE001 - the edge: it answers, and reports bugs
            problem = from_exception(error)
            if problem is None:
                _log.exception("%s %s failed", scope["method"], scope["path"])
                problem = Problem(500, "a fault of Mycel's own; its log says more")
            if not started:
                connection: GuardedProtocol | None = scope.get(CONNECTION)
                if connection is not None:
                    connection.closes_if_unread()
                await answer_problem(send, problem)

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        method, path = scope["method"], scope["raw_path"].decode("ascii")
        route, name, caller = router.find_open(method, path), "", ANYBODY
        if route is None:
            caller = self._identify(scope)
            route, name = router.find(method, path)
            authorise(caller, route.right, route.owned, name, self._backend.user_of)
        exchange = scope, receive, send
        request = Request(
            self._backend, self._limits, self._crowd, exchange, caller, name, route.query
        )
        try:
            await route.handler(request)
        finally:
            request.release()

    def _identify(self, scope: Scope) -> Caller:
        caller = self._authenticator.identify(header(scope, b"authorization"))
        connection: GuardedProtocol | None = scope.get(CONNECTION)
        if connection is not None:
            connection.recognised(caller.user)
        return caller

    def _admit_task(self, scope: Scope) -> Caller:
        """Who submits a single task, if they may."""
        caller = self._identify(scope)
        authorise(caller, SUBMIT, "", "", self._backend.user_of)
        return caller


def create_app(
    backend: Backend, authenticator: Authenticator, limits: Limits | None = None
) -> Application:
    return Application(backend, authenticator, limits or Limits())
