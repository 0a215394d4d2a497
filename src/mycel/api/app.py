"""The application: who may come in, and where each request goes."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from mycel.api.http.caller_limits import Crowd, Limits
from mycel.api.http.exchange import (
    BODY,
    CALLER,
    Body,
    Gone,
    Receive,
    Scope,
    Send,
    answer_problem,
    header,
)
from mycel.api.http.http_protocol import CONNECTION, GuardedProtocol
from mycel.api.http.problems import Problem, from_exception, not_found
from mycel.api.routes.blob_routes import BlobRoutes
from mycel.api.routes.openai_routes import OpenAiRoutes

from .authentication import Authenticator, Caller, authorise
from .backend import Backend
from .express import Express
from .hot_routes import Handler, HotRoutes
from .router import methods_of

if TYPE_CHECKING:
    from litestar import Litestar

_log = logging.getLogger("mycel.api")


class Application:
    """An ASGI application for HTTP alone."""

    def __init__(self, backend: Backend, authenticator: Authenticator, limits: Limits) -> None:
        self._backend = backend
        self._crowd = Crowd(limits)
        self._hot = HotRoutes(backend, limits, self._crowd)
        self._authenticator = authenticator
        self.express = Express(backend, self._admit, self._crowd.waits)
        self._openai = OpenAiRoutes(backend, limits, self._crowd)
        self._blobs = BlobRoutes(backend, limits)
        self._cold: asyncio.Task[Litestar] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._guard(self._dispatch, scope, receive, send)

    def guarded(self, handler: Handler) -> Handler:
        """The handler as an application of its own, which answers for its errors."""
        return partial(self._guard, handler)

    async def _guard(self, handler: Handler, scope: Scope, receive: Receive, send: Send) -> None:
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
        finally:
            body: Body | None = scope.get(BODY)
            if body is not None:
                body.release()

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        method, path = scope["method"], scope["path"]
        handler = self._hot.find_open(method, path)
        if handler is None:
            caller = scope[CALLER] = self._admit(scope)
            scope[BODY] = Body(self._crowd.bodies, caller.user)
            handler = (
                self._hot.find(method, path)
                or self._openai.find(method, path)
                or self._blobs.find(method, path)
            )
        if handler is None:
            methods = methods_of(path)
            if not methods:
                raise not_found(f"{path}; /openapi.json lists what there is")
            if method not in methods:
                allowed = ", ".join(methods)
                allow = [(b"allow", allowed.encode())]
                raise Problem(405, f"{path} allows {allowed}, not {method}", headers=allow)
            handler = await self._framework()  # type: ignore[assignment]
            assert handler is not None
        await handler(scope, receive, send)

    def _admit(self, scope: Scope) -> Caller:
        """Who calls, if they may do that."""
        caller = self._authenticator.identify(header(scope, b"authorization"))
        connection: GuardedProtocol | None = scope.get(CONNECTION)
        if connection is not None:
            connection.recognised(caller.user)
        authorise(caller, scope["method"], scope["path"], self._backend.user_of)
        return caller

    async def _framework(self) -> Litestar:
        """Loaded once, in a thread: its import takes a while, and others must not wait."""
        if self._cold is None:
            self._cold = asyncio.create_task(asyncio.to_thread(_load, self._backend))
        return await asyncio.shield(self._cold)


def _load(backend: Backend) -> Litestar:
    from .rare_routes import create

    return create(backend)


def create_app(
    backend: Backend, authenticator: Authenticator, limits: Limits | None = None
) -> Application:
    return Application(backend, authenticator, limits or Limits())
