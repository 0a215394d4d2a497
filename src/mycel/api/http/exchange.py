"""One HTTP exchange in raw ASGI: reading a request, sending an answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

import msgspec

from .caller_limits import Crowd, Limits, Shares
from .problems import MEDIA_TYPE, Headers, Problem, unprocessable

if TYPE_CHECKING:
    from mycel.api.authentication import Caller
    from mycel.api.backend import Backend

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

WAIT_SECONDS_MAX: Final = 60.0
BODY_SECONDS: Final = 30.0
"""A request must be there after so long; one that stops in the middle is not kept."""
DRAIN_BYTES_MAX: Final = 64 << 20
"""Of a body that is too large so much is read and dropped before the answer: who is still
writing when the connection closes may never see it."""

WATCH_AFTER_SECONDS: Final = 0.05

encode: Final = msgspec.json.Encoder().encode

JSON: Final = (b"content-type", b"application/json")
_TRUE: Final = frozenset({"", "1", "true", "yes"})
_FALSE: Final = frozenset({"0", "false", "no"})


class Gone(Exception):
    """The client hung up before its answer was complete."""


class Body:
    """What a request's body takes of its user's share, from when it is read to the answer."""

    __slots__ = ("_bytes", "_shares", "_user")

    def __init__(self, shares: Shares, user: str) -> None:
        self._shares = shares
        self._user = user
        self._bytes = 0

    def grow(self, count: int) -> None:
        """Raises a 429."""
        self._shares.take(self._user, count)
        self._bytes += count

    def release(self) -> None:
        if self._bytes:
            self._shares.give_back(self._user, self._bytes)
            self._bytes = 0


def header(scope: Scope, name: bytes) -> bytes | None:
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value)
    return None


async def read_body(scope: Scope, receive: Receive, limit: int, body: Body | None = None) -> bytes:
    """The whole body; refused when it is longer than `limit`, whatever its header says."""
    declared = header(scope, b"content-length")
    declared_too_long = declared is not None and int(declared) > limit
    if declared_too_long and header(scope, b"expect") is not None:
        raise _too_large(limit)
    try:
        async with asyncio.timeout(BODY_SECONDS):
            if declared_too_long:
                await _drain(receive)
                raise _too_large(limit)
            return await _whole_body(receive, limit, body)
    except TimeoutError:
        detail = f"the body did not arrive within {BODY_SECONDS:g} s"
        raise Problem(408, detail, headers=[(b"connection", b"close")]) from None


async def hang_up(receive: Receive) -> None:
    """Ends when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


class Connected:
    """Within it a client that hangs up ends the waiting, as `Gone`, at once.

    Nobody is watched for the first `WATCH_AFTER_SECONDS`: most answers are there by then, and
    a watcher costs as much as the rest of the exchange.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._waiting: asyncio.Task[Any] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._gone = False

    def __enter__(self) -> None:
        self._waiting = asyncio.current_task()
        loop = asyncio.get_running_loop()
        self._handle = loop.call_later(WATCH_AFTER_SECONDS, self._begin)

    def _begin(self) -> None:
        self._watcher = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        await hang_up(self._receive)
        self._gone = True
        assert self._waiting is not None
        self._waiting.cancel()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._handle.cancel()
        if self._watcher is not None:
            self._watcher.cancel()
        if self._gone and kind is asyncio.CancelledError:
            assert self._waiting is not None
            self._waiting.uncancel()
            raise Gone


async def _whole_body(receive: Receive, limit: int, body: Body | None) -> bytes:
    parts: list[bytes] = []
    size = 0
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        part: bytes = message.get("body", b"")
        more = message.get("more_body", False)
        size += len(part)
        if size > limit:
            await _drain(receive, message)
            raise _too_large(limit)
        parts.append(part)
        if body is not None and (more or len(parts) > 1):  # one that is here at once is small
            body.grow(len(part))
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def _drain(receive: Receive, message: MutableMapping[str, Any] | None = None) -> None:
    dropped = 0
    while dropped < DRAIN_BYTES_MAX and (message is None or message.get("more_body")):
        message = await receive()
        dropped += len(message.get("body", b""))


def _too_large(limit: int) -> Problem:
    detail = f"the body is larger than {limit} bytes; send big jobs in batches"
    return Problem(413, detail, headers=[(b"connection", b"close")])


def check_media_type(scope: Scope) -> None:
    """Bodies are JSON. What curl sends by default passes, since only JSON will parse."""
    declared = header(scope, b"content-type")
    if declared is None:
        return
    kind = declared.partition(b";")[0].strip().lower()
    if kind not in (b"application/json", b"application/x-www-form-urlencoded"):
        raise Problem(415, f"send application/json, not {kind.decode('latin-1')}")


class Query:
    """The parameters behind the `?`; a name that the route does not know is refused."""

    def __init__(self, scope: Scope, *known: str) -> None:
        raw: bytes = scope["query_string"]
        self._values: dict[str, str] = {}
        if raw:
            self._values = dict(parse_qsl(raw.decode("latin-1"), keep_blank_values=True))
            for name in self._values:
                if name not in known:
                    expected = ", ".join(known) if known else "none"
                    raise unprocessable(f"unknown query parameter {name!r}; known: {expected}")

    def text(self, name: str) -> str | None:
        return self._values.get(name) or None

    def flag(self, name: str) -> bool:
        value = self._values.get(name)
        if value is None or value.lower() in _FALSE:
            return False
        if value.lower() in _TRUE:
            return True
        raise unprocessable(f"the query parameter {name!r} is true or false, not {value!r}")

    def integer(self, name: str, default: int, minimum: int, maximum: int) -> int:
        value = self._values.get(name)
        if value is None:
            return default
        if not value.isascii() or not value.isdigit() or len(value) > 18:
            raise unprocessable(f"the query parameter {name!r} is a whole number, not {value!r}")
        if not minimum <= int(value) <= maximum:
            raise unprocessable(f"the query parameter {name!r} is from {minimum} to {maximum}")
        return int(value)

    def seconds(self, name: str) -> float | None:
        """A number of seconds, 0 or more; None if it is not given."""
        value = self._values.get(name)
        if value is None:
            return None
        try:
            seconds = float(value)
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds < float("inf"):
            raise unprocessable(f"{name} is a number of seconds, not {value!r}")
        return seconds

    def wait_seconds(self) -> float:
        """`?wait`; 0 if the client does not want to wait."""
        value = self._values.get("wait")
        if value is None:
            return 0.0
        try:
            seconds = float(value) if value else WAIT_SECONDS_MAX
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds <= WAIT_SECONDS_MAX:
            limit = f"{WAIT_SECONDS_MAX:.0f}"
            raise unprocessable(f"wait is a number of seconds from 0 to {limit}, not {value!r}")
        return seconds


async def answer(
    send: Send, status: int, body: bytes, extra: Headers | None = None, media_type: bytes = b""
) -> None:
    headers: Headers = [
        (b"content-type", media_type) if media_type else JSON,
        (b"content-length", str(len(body)).encode()),
    ]
    if extra:
        headers += extra
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def answer_problem(send: Send, problem: Problem) -> None:
    await answer(send, problem.status, problem.encode(), problem.headers, MEDIA_TYPE)


class Request:
    """One request: what its handler reads, and where the handler's answer goes."""

    __slots__ = (
        "_body",
        "_crowd",
        "_known",
        "backend",
        "caller",
        "limits",
        "name",
        "receive",
        "scope",
        "send",
    )

    def __init__(
        self,
        backend: Backend,
        limits: Limits,
        crowd: Crowd,
        exchange: tuple[Scope, Receive, Send],
        caller: Caller,
        name: str,
        known: tuple[str, ...],
    ) -> None:
        """`name` stands in the path for the route's parameter; `known` are the names of the
        route's query parameters."""
        self.backend = backend
        self.limits = limits
        self.scope, self.receive, self.send = exchange
        self.caller = caller
        self.name = name
        self._crowd = crowd
        self._known = known
        self._body: Body | None = None

    def query(self) -> Query:
        """Refuses parameters that the route does not know."""
        return Query(self.scope, *self._known)

    def header(self, name: bytes) -> bytes | None:
        return header(self.scope, name)

    async def body(self) -> bytes:
        """The whole body, which is JSON by its media type."""
        check_media_type(self.scope)
        body = self._body = Body(self._crowd.bodies, self.caller.user)
        return await read_body(self.scope, self.receive, self.limits.request_bytes, body)

    def release(self) -> None:
        """The body is no longer in memory."""
        if self._body is not None:
            self._body.release()

    def waiting(self, seconds: float) -> AbstractContextManager[None]:
        """Counts it among the caller's requests that wait, if it does."""
        return self._crowd.waits.held(self.caller.user) if seconds else contextlib.nullcontext()

    def lasting(self) -> AbstractContextManager[None]:
        """Counts it among the caller's streams. Whether it lasts, and how slowly it is read, is
        the client's choice."""
        return self._crowd.streams.held(self.caller.user)

    async def answer(
        self, value: msgspec.Struct, status: int = 200, extra: Headers | None = None
    ) -> None:
        await answer(self.send, status, encode(value), extra)


Handler = Callable[[Request], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]
