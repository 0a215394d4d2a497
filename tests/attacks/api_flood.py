"""Thousands of strangers at once, for `make soak`:

    python -m tests.attacks.api_flood [CONNECTIONS]

They connect and say nothing, or half a head, while the owner asks again and again. It ends with
code 1 if the owner is refused, or if the strangers are still there, or have cost more than
they may.
"""

from __future__ import annotations

import resource
import socket
import sys
import time

from .api_target import Target, target
from .test_api_strangers import call

SOCKETS_MAX = 1024
SECONDS_MAX = 20.0
MEMORY_BYTES_MAX = 200 << 20


def main(count: int) -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, count + 512)), hard))
    with target(connections=SOCKETS_MAX, head_seconds=5.0) as server:
        call(server)
        before = server.memory
        strangers = _connect(server, count)
        most = server.sockets
        served = [call(server) for _ in range(100)]
        ends_at = time.monotonic() + SECONDS_MAX
        while server.sockets > SOCKETS_MAX // 100 and time.monotonic() < ends_at:
            time.sleep(0.1)
        left, grown = server.sockets, server.memory - before
        for one in strangers:
            one.close()
    print(
        f"{count} strangers: at most {most} sockets, {left} left, {grown >> 20} MiB, "
        f"{served.count(200)} of {len(served)} calls of the owner served"
    )
    is_good = served == [200] * 100 and most <= SOCKETS_MAX + 32 and left <= SOCKETS_MAX // 100
    return 0 if is_good and grown < MEMORY_BYTES_MAX else 1


def _connect(server: Target, count: int) -> list[socket.socket]:
    strangers = []
    for number in range(count):
        one = socket.create_connection(("127.0.0.1", server.port), 20)
        if number % 2:
            one.sendall(b"GET / HTTP/1.1\r\nX: ")
        strangers.append(one)
    return strangers


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 5000))
