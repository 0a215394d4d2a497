"""Requests of one client: connections that are kept, answers decoded, waits and pages as often
as it takes."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import msgspec

from . import errors
from .connection import Address, Answer, Connection
from .errors import ConnectionLost, WaitTimedOut

ANSWER_SECONDS: Final = 60.0
WAIT_SECONDS: Final = 30.0
"""One request waits so long at most; longer waits are several."""
IDLE_CONNECTIONS_MAX: Final = 64

_Kind = TypeVar("_Kind")


class Session:
    """Thread-safe: each request takes an idle connection, or opens one."""

    def __init__(self, address: Address, token: str) -> None:
        self.address = address
        self._token = token
        self._idle: list[Connection] = []
        self._decoders: dict[type, Any] = {}

    def digest(self, text: str) -> bytes:
        """Of a text among the texts of whoever has this token."""
        return hashlib.blake2b(
            text.encode(), key=hashlib.sha256(self._token.encode()).digest()
        ).digest()

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def ask(
        self,
        kind: type[_Kind],
        method: str,
        target: str,
        body: bytes | None = None,
        headers: str = "",
        timeout: float = ANSWER_SECONDS,
    ) -> _Kind:
        answer = self.request(method, target, body, headers, timeout)
        decoder = self._decoders.get(kind)
        if decoder is None:
            decoder = self._decoders[kind] = msgspec.json.Decoder(kind)
        decoded: _Kind = decoder.decode(answer.body)
        return decoded

    def ask_again(
        self, kind: type[_Kind], method: str, target: str, body: bytes | None, headers: str = ""
    ) -> _Kind:
        """For requests that change nothing the second time."""
        try:
            return self.ask(kind, method, target, body, headers)
        except ConnectionLost:
            return self.ask(kind, method, target, body, headers)

    def request(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        headers: str = "",
        timeout: float = ANSWER_SECONDS,
    ) -> Answer:
        answer = self.exchange(method, target, body, headers, timeout)
        if answer.status >= 400:
            retry_after = answer.headers.get("retry-after")
            raise errors.from_answer(answer.status, answer.body, retry_after)
        return answer

    def exchange(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        headers: str = "",
        timeout: float = ANSWER_SECONDS,
    ) -> Answer:
        """Whatever the answer is."""
        connection = self._take()
        try:
            answer = connection.exchange(method, target, body, headers, timeout)
        except BaseException:
            connection.close()
            raise
        self._put_back(connection, answer)
        return answer

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """For one exchange that is read to its end; one that fails closes it."""
        connection = self._take()
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)

    def _take(self) -> Connection:
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread was faster
                break
            if not connection.is_stale:
                return connection
            connection.close()
        return Connection(self.address, self._token)

    def _put_back(self, connection: Connection, answer: Answer) -> None:
        closing = answer.headers.get("connection", "").lower() == "close"
        if closing or len(self._idle) >= IDLE_CONNECTIONS_MAX:
            connection.close()
        else:
            self._idle.append(connection)

    def wait(self, kind: type[_Kind], path: str, what: str, timeout: float | None) -> _Kind:
        ends_at = None if timeout is None else time.monotonic() + timeout
        while True:
            seconds = WAIT_SECONDS
            if ends_at is not None:
                seconds = max(0.0, min(seconds, ends_at - time.monotonic()))
            found = self.ask(kind, "GET", f"{path}?wait={seconds:g}")
            if found.is_over:  # type: ignore[attr-defined]
                return found
            if ends_at is not None and time.monotonic() >= ends_at:
                assert timeout is not None
                raise WaitTimedOut(what, timeout)

    def pages(
        self, kind: type[Any], path: str, query: Mapping[str, str | None], limit: int | None
    ) -> Iterator[Any]:
        cursor: str | None = None
        while True:
            asked = {**query, "cursor": cursor}
            if limit is not None:
                asked["limit"] = str(min(limit, 1000))
            text = urlencode({name: value for name, value in asked.items() if value is not None})
            page = self.ask(kind, "GET", f"{path}?{text}" if text else path)
            for item in page.items:
                yield item
                if limit is not None:
                    limit -= 1
                    if limit == 0:
                        return
            cursor = page.next
            if cursor is None:
                return

    def stream(self, target: str, body: bytes | None = None) -> Iterator[bytes]:
        """What a GET answers, or with a body a POST, as it comes."""
        connection = self._take()
        complete = False
        try:
            answer, pieces = connection.stream(target, body)
            if answer.status >= 400:
                raise errors.from_answer(answer.status, answer.body, None)
            yield from pieces
            complete = True
        finally:
            if complete:
                self._put_back(connection, answer)
            else:
                connection.close()
