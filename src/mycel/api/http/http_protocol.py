"""HTTP/1.1 for callers that nobody knows yet: uvicorn's protocol, with limits on all they send.

    head    64 KiB and 100 fields, the request line and trailers included: 431
    body    refused unread without a token; what is left unread of it ends the connection
    time    for the head, between requests, and for each stretch of a body or an answer
    pipe    a few requests behind the one that is being answered

What has been parsed is counted in the parser's callbacks. What has not is counted in bytes: the
parser keeps a field, or a line, until its end, however long that is.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from .connections import LINGER_SECONDS, PACE_BYTES, Connections
from .problems import MEDIA_TYPE, Problem

HEAD_BYTES_MAX: Final = 64 << 10
FIELDS_MAX: Final = 100
PIPELINED_MAX: Final = 32
"""Requests that wait behind another on the same connection."""
UNREAD_BYTES_MAX: Final = 16 << 20
"""Of a body that nobody wants so much is thrown away before its sender is cut off: who is still
writing when the connection closes may never see the answer."""
CONNECTION: Final = "mycel.connection"
"""Where in the scope the connection is."""
_FIELD_BYTES: Final = 4
"""What a field takes on the wire beside its name and its value."""


class _Refused(Exception):
    """Raised in the parser's callbacks, to stop it."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


class _Door:
    """The transport, as uvicorn's cycles see it: they close it as soon as the answer is written,
    and then whoever is still sending a body would lose that answer."""

    __slots__ = ("_protocol", "_transport", "write")

    def __init__(self, transport: asyncio.Transport, protocol: GuardedProtocol) -> None:
        self._transport = transport
        self._protocol = protocol
        self.write = transport.write

    def close(self) -> None:
        self._protocol.part()

    def is_closing(self) -> bool:
        return self._protocol.has_parted or self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)


class GuardedProtocol(HttpToolsProtocol):
    def __init__(self, *given: Any, book: Connections, **named: Any) -> None:
        super().__init__(*given, **named)
        self._book = book
        self.host = ""
        self.user: str | None = None
        self.has_parted = False
        """The last answer is written; what still comes is thrown away."""
        self._raw: asyncio.Transport
        self._since = book.now
        """When the present stretch began: the head, the body, the silence, the parting."""
        self._is_quiet = False
        """Nothing of the next request has come."""
        self._in_body = False
        self._fields = 0
        self._head_bytes = 0
        self._unparsed_bytes = 0
        self._has_progressed = False
        self._body_bytes = 0
        self._unread_bytes = 0
        self._unsent_bytes = 0
        self._unsent_since = 0.0

    # The transport's calls

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._raw = transport
        self.transport = _Door(transport, self)  # type: ignore[assignment]
        self.host = self.client[0] if self.client else ""
        self._since = self._book.now
        if not self._book.admit(self):
            self.has_parted = True
            transport.write(_last_answer(429, "there is no room for another connection"))
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._book.leave(self)
        self.has_parted = True
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.has_parted:
            self._throw_away(len(data))
            return
        if self._is_quiet:
            self._is_quiet = False
            self._since = self._book.now
        if len(data) <= HEAD_BYTES_MAX:
            self._parse(data)
            return
        for start in range(0, len(data), HEAD_BYTES_MAX):
            if not self.has_parted:
                self._parse(data[start : start + HEAD_BYTES_MAX])

    def _parse(self, data: bytes) -> None:
        self._has_progressed = False
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # We speak nothing else. The request is answered, and what comes behind it is not HTTP.
            self.cycle.keep_alive = False
            self._in_body = True
            return
        except httptools.HttpParserError as error:
            refused = error.__context__
            if isinstance(refused, _Refused):
                self._refuse(refused.status, refused.detail)
            else:
                self._refuse(400, "this is no HTTP request that is understood here")
            return
        if self._has_progressed:
            self._unparsed_bytes = 0
            return
        self._unparsed_bytes += len(data)
        if self._unparsed_bytes > HEAD_BYTES_MAX:
            self._refuse(431, _TOO_LONG)

    # The parser's calls

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._fields = self._head_bytes = 0

    def on_url(self, url: bytes) -> None:
        self.url += url
        self._head_bytes += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields += 1
        self._head_bytes += len(name) + len(value) + _FIELD_BYTES
        if self._head_bytes > HEAD_BYTES_MAX:
            raise _Refused(431, _TOO_LONG)
        if self._fields > FIELDS_MAX:
            raise _Refused(431, f"a request has at most {FIELDS_MAX} header fields")
        if self._in_body:
            return  # a trailer: what was decided by the head stays so
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._head_bytes > HEAD_BYTES_MAX:
            raise _Refused(431, _TOO_LONG)
        if len(self.pipeline) >= PIPELINED_MAX:
            raise _Refused(429, f"more than {PIPELINED_MAX} requests wait on this connection")
        self._has_progressed = self._in_body = True
        self._fields = self._head_bytes = self._body_bytes = 0
        self._since = self._book.now
        self.scope[CONNECTION] = self  # type: ignore[typeddict-unknown-key]
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._has_progressed = True
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._has_progressed = True
        self._in_body = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """As uvicorn's, without its timer: the sweep looks at all connections."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if self.cycle.response_complete and self._in_body:
            self.part()  # nobody reads the rest of its body
            return
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
        else:
            self._is_quiet = True
            self._since = self._book.now

    # For the application

    def recognised(self, user: str) -> None:
        """A request on it has shown a good token of this user."""
        if self.user != user:
            self._book.recognise(self, user)

    def closes_if_unread(self) -> None:
        """Before an answer: it is the last one, if the request's body is not here."""
        if self._in_body and not self.pipeline and self.cycle is not None:
            self.cycle.keep_alive = False

    # How it ends

    @property
    def is_idle(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return self.has_parted or cycle is None or cycle.response_complete

    def part(self) -> None:
        """After the last answer. The sweep ends it for good."""
        if self.has_parted:
            return
        self.has_parted = True
        self._since = self._unsent_since = self._book.now
        self._unsent_bytes = self._raw.get_write_buffer_size()
        if not self._in_body:
            self._raw.close()
            return
        self.flow.resume_reading()
        if self._raw.can_write_eof():
            self._raw.write_eof()

    def shutdown(self) -> None:
        """The server stops: nobody sweeps any more."""
        if self.is_idle and not self._raw.get_write_buffer_size():
            self.drop()
        else:
            super().shutdown()

    def drop(self) -> None:
        self.has_parted = True
        self._raw.abort()

    def look(self, now: float, idle_seconds: float) -> None:
        limits = self._book.limits
        if self.has_parted:
            if self._sends_nothing(now, limits.stall_seconds) or (
                not self._unsent_bytes and now - self._since > LINGER_SECONDS
            ):
                self._raw.abort()
        elif not self.is_idle:
            if self._receives_nothing(now, limits.stall_seconds):
                seconds = f"{limits.stall_seconds:g}"
                self._refuse(408, f"less than {PACE_BYTES} bytes a second came for {seconds} s")
            elif self.flow.write_paused:
                if self._sends_nothing(now, limits.stall_seconds):
                    self.drop()
            else:
                self._unsent_since = now
        elif self._is_quiet:
            if now - self._since > idle_seconds:
                self.part()
        elif now - self._since > limits.head_seconds:
            self._refuse(408, f"the request did not come within {limits.head_seconds:g} s")

    def _receives_nothing(self, now: float, stall_seconds: float) -> bool:
        if not self._in_body or self.flow.read_paused or self.cycle.waiting_for_100_continue:
            self._since = now
            return False
        if self._body_bytes >= PACE_BYTES * stall_seconds:
            self._body_bytes = 0
            self._since = now
        return now - self._since > stall_seconds

    def _sends_nothing(self, now: float, stall_seconds: float) -> bool:
        unsent = self._raw.get_write_buffer_size()
        if not unsent or unsent <= self._unsent_bytes - PACE_BYTES:
            self._unsent_since = now
        self._unsent_bytes = unsent
        return now - self._unsent_since > stall_seconds

    def _throw_away(self, count: int) -> None:
        self._unread_bytes += count
        if self._unread_bytes > UNREAD_BYTES_MAX:
            self._raw.abort()

    def _refuse(self, status: int, detail: str) -> None:
        """Answers, if it is the turn of that, and ends the connection."""
        if self.has_parted:
            return
        if not self.is_idle:
            if self.cycle.response_started or self.pipeline:
                self.drop()
                return
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._raw.write(_last_answer(status, detail))
        self._in_body = True  # whatever else comes is thrown away
        self.part()


def _last_answer(status: int, detail: str) -> bytes:
    body = Problem(status, detail).encode()
    head = b"HTTP/1.1 %d %b\r\ncontent-type: %b\r\ncontent-length: %d\r\n%bconnection: close\r\n"
    retry = b"retry-after: 10\r\n" if status == 429 else b""
    return b"%b\r\n%b" % (
        head % (status, _REASONS[status], MEDIA_TYPE, len(body), retry),
        body,
    )


_TOO_LONG: Final = f"the head of a request has at most {HEAD_BYTES_MAX >> 10} KiB"
_REASONS: Final = {
    400: b"Bad Request",
    408: b"Request Timeout",
    429: b"Too Many Requests",
    431: b"Request Header Fields Too Large",
}
