"""Single tasks over many connections, by a process of its own that costs little.

`python -m mycel.bench.quick.http_load` reads one order from its input and prints one outcome.
A client library would take more of the machine than the scheduler that it measures.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from typing import Final, cast
from urllib.parse import urlsplit

import msgspec
import uvloop

from mycel.bench.bench_tasks import expected
from mycel.console.errors import CommandError

CONNECTIONS: Final = 32
WAIT_SECONDS: Final = 30
RUN_SECONDS_MAX: Final = 600.0


class Order(msgspec.Struct, frozen=True):
    api: str
    token: str
    warm_up: int
    count: int
    connections: int = CONNECTIONS


class Outcome(msgspec.Struct, frozen=True):
    seconds: float = 0.0
    count: int = 0
    error: str = ""


def single_http_tasks_per_s(order: Order) -> float:
    """Each answer was checked; one wrong answer ends it."""
    done = subprocess.run(
        [sys.executable, "-m", "mycel.bench.quick.http_load"],
        input=msgspec.json.encode(order),
        stdout=subprocess.PIPE,
        timeout=RUN_SECONDS_MAX,
        check=True,
    )
    outcome = msgspec.json.decode(done.stdout, type=Outcome)
    if outcome.error:
        raise CommandError(f"single tasks over HTTP: {outcome.error}")
    return outcome.count / outcome.seconds


class _Numbers:
    """Hands out the tasks' arguments to all connections."""

    def __init__(self, count: int) -> None:
        self._next = 0
        self._count = count

    def take(self) -> int | None:
        if self._next == self._count:
            return None
        self._next += 1
        return self._next - 1


class _Connection(asyncio.Protocol):
    """One task at a time: the next one leaves when the answer to this one is complete."""

    def __init__(self, head: bytes) -> None:
        self._head = head
        self._received = b""
        self._number = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are not derived

    def start(self, numbers: _Numbers) -> asyncio.Future[None]:
        self._numbers = numbers
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._send()
        return self._done

    def _send(self) -> None:
        number = self._numbers.take()
        if number is None:
            self._done.set_result(None)
            return
        self._number = number
        body = b'{"python":"mycel.bench.bench_tasks:noop","arguments":[%d]}' % number
        self._transport.write(b"%s%d\r\n\r\n%s" % (self._head, len(body), body))

    def data_received(self, data: bytes) -> None:
        received = self._received + data
        end = received.find(b"\r\n\r\n")
        if end < 0 or len(received) < end + 4 + _length(received[:end]):
            self._received = received
            return
        self._received = b""
        value = b'"json":[%d,' % expected(self._number)
        if not received.startswith(b"HTTP/1.1 201") or value not in received:
            text = received[:2000].decode(errors="replace")
            self._fail(f"task {self._number} got a wrong answer: {text}")
            return
        self._send()

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(f"the scheduler closed the connection: {error}")

    def _fail(self, text: str) -> None:
        if not self._done.done():
            self._done.set_exception(ConnectionError(text))


def _length(head: bytes) -> int:
    _, _, rest = head.lower().partition(b"content-length:")
    return int(rest.partition(b"\r\n")[0])


async def _run(order: Order) -> Outcome:
    address = urlsplit(order.api)
    head = (
        f"POST /api/v1/tasks?wait={WAIT_SECONDS} HTTP/1.1\r\nHost: {address.netloc}\r\n"
        f"Authorization: Bearer {order.token}\r\nContent-Type: application/json\r\n"
        f"Content-Length: "
    ).encode("latin-1")
    loop = asyncio.get_running_loop()
    connections = []
    for _ in range(order.connections):
        made = await loop.create_connection(
            lambda: _Connection(head), address.hostname or "127.0.0.1", address.port or 80
        )
        connections.append(made[1])
    seconds = 0.0
    for count in (order.warm_up, order.count):
        numbers = _Numbers(count)
        began = time.perf_counter()
        await asyncio.gather(*(connection.start(numbers) for connection in connections))
        seconds = time.perf_counter() - began
    return Outcome(seconds, order.count)


def main() -> None:
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    try:
        outcome = uvloop.run(_run(order))
    except OSError as error:
        outcome = Outcome(error=str(error))
    sys.stdout.buffer.write(msgspec.json.encode(outcome))


if __name__ == "__main__":
    main()
