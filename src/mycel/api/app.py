"""The application: who may come in, and where each request goes."""

from __future__ import annotations

import asyncio
import hmac
import logging
from functools import partial
from typing import TYPE_CHECKING

from .backend import Backend
from .catalogue import methods_of
from .exchange import Gone, Receive, Scope, Send, answer_problem, header
from .express import Express
from .hot import Handler, HotRoutes, Limits
from .openai import OpenAiRoutes
from .problems import Problem, from_exception, not_found

if TYPE_CHECKING:
    from litestar import Litestar

_log = logging.getLogger("mycel.api")


class Application:
    """An ASGI application for HTTP alone."""

    def __init__(self, backend: Backend, token: str, limits: Limits) -> None:
        assert token, "an empty token would let everybody in"
        self._backend = backend
        self._hot = HotRoutes(backend, limits)
        self.express = Express(backend, self._authenticate)
        self._openai = OpenAiRoutes(backend, limits)
        self._authorization = f"Bearer {token}".encode()
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
                await answer_problem(send, problem)

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        method, path = scope["method"], scope["path"]
        handler = self._hot.find_open(method, path)
        if handler is None:
            self._authenticate(scope)
            handler = self._hot.find(method, path) or self._openai.find(method, path)
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

    def _authenticate(self, scope: Scope) -> None:
        given = header(scope, b"authorization")
        if given is not None:
            if hmac.compare_digest(given, self._authorization):
                return
            scheme, _, token = given.partition(b" ")
            if scheme.lower() == b"bearer" and hmac.compare_digest(
                b"Bearer " + token.strip(), self._authorization
            ):
                return
        detail = "this token is not valid" if given else "send 'Authorization: Bearer TOKEN'"
        detail += "; the token lies in the file 'token' of the swarm's home folder"
        raise Problem(401, detail, headers=[(b"www-authenticate", b'Bearer realm="mycel"')])

    async def _framework(self) -> Litestar:
        """Loaded once, in a thread: its import takes a while, and others must not wait."""
        if self._cold is None:
            self._cold = asyncio.create_task(asyncio.to_thread(_load, self._backend))
        return await asyncio.shield(self._cold)


def _load(backend: Backend) -> Litestar:
    from .cold import create

    return create(backend)


def create_app(backend: Backend, token: str, limits: Limits | None = None) -> Application:
    return Application(backend, token, limits or Limits())
