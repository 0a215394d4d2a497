"""Whoever reaches the API without a token: its memory, its sockets and its time stay its own."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from mycel.api.http.caller_limits import Limits
from mycel.api.http.connections import Connections

from .api_target import Target, target
from .certificates import make_certificate, needs_openssl

PATIENCE_SECONDS = 30.0
MEMORY_BYTES_MAX = 24 << 20
"""What a flood may make the server grow by."""
FLOOD_BYTES = 300 << 20
PIECE = b"x" * (64 << 10)

HEADS: dict[str, tuple[bytes, bytes]] = {
    "one endless field": (b"GET / HTTP/1.1\r\nX: ", PIECE),
    "one endless name": (b"GET / HTTP/1.1\r\n", PIECE),
    "endless fields": (b"GET / HTTP/1.1\r\n", b"a: b\r\n" * 10_000),
    "folded": (b"GET / HTTP/1.1\r\nX: a\r\n", b" b\r\n" * 10_000),
    "request line": (b"GET /", PIECE),
    "method": (b"", b"G" * 65536),
    "empty lines": (b"", b"\r\n" * 30_000),
    "trailers": (
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n",
        b"a: b\r\n" * 10_000,
    ),
    "one trailer": (
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX: ",
        PIECE,
    ),
    "chunk extension": (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;", PIECE),
    "endless chunks": (
        b"POST /api/v1/tasks HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"10000\r\n" + b"x" * 65536 + b"\r\n",
    ),
    "endless body": (
        b"POST /api/v1/tasks HTTP/1.1\r\nContent-Length: 10000000000\r\n\r\n",
        PIECE,
    ),
    "pipelined": (b"", b"GET /healthz HTTP/1.1\r\n\r\n" * 2500),
    "pipelined without a token": (b"", b"POST /api/v1/tasks HTTP/1.1\r\n\r\n" * 2000),
    "behind a request": (b"GET /healthz HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\nX: ", PIECE),
    "upgrade": (
        b"GET /healthz HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        PIECE,
    ),
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module", params=["plain", pytest.param("tls", marks=needs_openssl)])
def victim(request: pytest.FixtureRequest) -> Iterator[tuple[Target, bool]]:
    secure = request.param == "tls"
    pair = request.getfixturevalue("pair") if secure else None
    with target(pair, head_seconds=2.0, stall_seconds=2.0) as made:
        call(made, secure)  # what is loaded once is no growth
        yield made, secure


def connect(port: int, secure: bool) -> socket.socket:
    plain = socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS)
    if not secure:
        return plain
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(plain)


def call(server: Target, secure: bool = False, path: str = "/api/v1/workers") -> int:
    made = connect(server.port, secure)
    made.sendall(f"GET {path} HTTP/1.1\r\n".encode() + server.authorization + b"\r\n")
    status = int(made.recv(4096).split()[1])
    made.close()
    return status


def flood(server: Target, secure: bool, start: bytes, piece: bytes, pause: float = 0.0) -> int:
    """Sends until the server has had enough; how many bytes it was."""
    made = connect(server.port, secure)
    sent = 0
    try:
        made.sendall(start)
        while sent < FLOOD_BYTES:
            made.sendall(piece)
            sent += len(piece)
            if pause:
                time.sleep(pause)
    except OSError:
        pass
    finally:
        made.close()
    return sent


@pytest.mark.parametrize("kind", HEADS)
def test_a_flood_is_cut_off_and_takes_no_memory(victim: tuple[Target, bool], kind: str) -> None:
    server, secure = victim
    before = server.memory
    start, piece = HEADS[kind]
    with ThreadPoolExecutor(8) as threads:
        many = [threads.submit(flood, server, secure, start, piece) for _ in range(8)]
        sent = [one.result() for one in many]
    assert max(sent) < FLOOD_BYTES, "it was taken to its end"
    assert server.memory - before < MEMORY_BYTES_MAX
    assert call(server, secure) == 200


@pytest.mark.parametrize("kind", ["one endless field", "request line", "endless chunks"])
def test_a_slow_flood_is_cut_off_in_time(victim: tuple[Target, bool], kind: str) -> None:
    server, secure = victim
    start, _ = HEADS[kind]
    began = time.monotonic()
    flood(server, secure, start, b"x", pause=0.05)
    assert time.monotonic() - began < 15


def answer(server: Target, raw: bytes) -> tuple[int, bytes]:
    """What it says, to the end of the connection or for as long as it says anything."""
    with connect(server.port, False) as made:
        made.sendall(raw)
        made.settimeout(PATIENCE_SECONDS)
        said = b""
        while b"\r\n\r\n" not in said:
            got = made.recv(65536)
            if not got:
                break
            said += got
    return int(said.split()[1]), said


@pytest.fixture(scope="module")
def server() -> Iterator[Target]:
    with target(head_seconds=2.0, idle_seconds=2.0, stall_seconds=2.0) as made:
        yield made


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ("a: b\r\n" * 100, 200),
        ("a: b\r\n" * 101, 431),
        ("a: " + "x" * 60_000 + "\r\n", 200),
        ("a: " + "x" * 65_536 + "\r\n", 431),
        ("a: " + "x" * 20_000 + "\r\nb: " + "x" * 50_000 + "\r\n", 431),
    ],
)
def test_a_head_has_so_many_fields_and_bytes(server: Target, fields: str, status: int) -> None:
    found, said = answer(server, f"GET /healthz HTTP/1.1\r\n{fields}\r\n".encode())
    assert found == status
    assert status == 200 or b"application/problem+json" in said


def test_a_long_head_behind_a_request_is_refused_too(server: Target) -> None:
    long = b"GET /healthz HTTP/1.1\r\na: " + b"x" * 70_000 + b"\r\n\r\n"
    with connect(server.port, False) as made:
        made.sendall(b"GET /healthz HTTP/1.1\r\n\r\n" + long)
        said = read_all(made)
    assert said.count(b"200 OK") <= 1


def read_all(made: socket.socket) -> bytes:
    said = b""
    try:
        while got := made.recv(65536):
            said += got
    except ConnectionError:
        pass
    return said


def test_a_trailer_is_no_header(server: Target) -> None:
    """Who has no token in the head has none."""
    head = b"POST /api/v1/tasks HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    raw = head + b"2\r\n{}\r\n0\r\n" + server.authorization + b"\r\n"
    assert answer(server, raw)[0] == 401


@pytest.mark.parametrize("path", ["/api/v1/tasks", "/api/v1/jobs", "/v1/chat/completions"])
@pytest.mark.parametrize("how", ["Content-Length: 9000000000", "Transfer-Encoding: chunked"])
def test_a_body_without_a_token_is_not_read(server: Target, path: str, how: str) -> None:
    """The answer is there before the body is, and the connection ends."""
    with connect(server.port, False) as made:
        made.sendall(f"POST {path} HTTP/1.1\r\n{how}\r\n\r\n".encode())
        said = read_all(made)
    assert said.startswith(b"HTTP/1.1 401")
    assert b"connection: close" in said


def ends(made: socket.socket) -> bytes:
    """Waits for the server to end it."""
    made.settimeout(PATIENCE_SECONDS)
    return read_all(made)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"", b"408"),
        (b"GET /heal", b"408"),
        (b"GET /healthz HTTP/1.1\r\n\r\n", b"200"),
        (b"POST /api/v1/tasks HTTP/1.1\r\nTOKEN" + b"Content-Length: 9\r\n\r\n{", b"408"),
    ],
    ids=["silent", "half a head", "idle", "half a body"],
)
def test_who_says_nothing_more_is_disconnected(server: Target, sent: bytes, status: bytes) -> None:
    with connect(server.port, False) as made:
        made.sendall(sent.replace(b"TOKEN", server.authorization))
        assert ends(made)[9:12] == status


def post(server: Target, length: int) -> bytes:
    about = f"Content-Length: {length}\r\n\r\n".encode()
    return b"POST /api/v1/tasks HTTP/1.1\r\n" + server.authorization + about


def test_a_body_that_trickles_is_broken_off(server: Target) -> None:
    head = post(server, 90_000)
    began = time.monotonic()
    flood(server, False, head, b" ", pause=0.05)
    assert time.monotonic() - began < 15


def test_who_does_not_read_its_answer_is_disconnected(server: Target) -> None:
    """Its answers wait in the server's memory, and its requests do not end."""
    with socket.socket() as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        made.settimeout(PATIENCE_SECONDS)
        made.connect(("127.0.0.1", server.port))
        request = b"GET /openapi.json HTTP/1.1\r\n" + server.authorization + b"\r\n"
        ends_at = time.monotonic() + PATIENCE_SECONDS
        with suppress(ConnectionError):
            while time.monotonic() < ends_at:
                made.sendall(request)
                time.sleep(0.01)
            raise AssertionError("it may go on")


def test_strangers_do_not_keep_the_owner_out() -> None:
    with target(connections=64, head_seconds=60.0) as server:
        idle = [connect(server.port, False) for _ in range(500)]
        try:
            assert [call(server) for _ in range(20)] == [200] * 20
            assert server.sockets < 64 + 16
        finally:
            for one in idle:
                one.close()


def test_one_user_does_not_keep_another_out() -> None:
    with target(connections=64) as server:
        idle = [connect(server.port, False) for _ in range(100)]
        try:
            for one in idle:
                one.sendall(b"GET /api/v1/workers HTTP/1.1\r\n" + server.authorization + b"\r\n")
            assert [call(server) for _ in range(20)] == [200] * 20
        finally:
            for one in idle:
                one.close()


@needs_openssl
def test_handshakes_that_do_not_end_are_counted_and_cut_off(pair: tuple[Path, Path]) -> None:
    with target(pair, connections=64, head_seconds=2.0) as server:
        idle = [connect(server.port, False) for _ in range(300)]
        try:
            assert call(server, True) == 200
            assert server.sockets < 64 + 16
            assert ends(idle[-1]) == b""
        finally:
            for one in idle:
                one.close()


def test_streams_are_limited_for_each_user() -> None:
    with target(streams=6, streams_per_user=4) as server:
        open_streams = []
        for _ in range(4):
            made = connect(server.port, False)
            made.sendall(b"GET /api/v1/events HTTP/1.1\r\n" + server.authorization + b"\r\n")
            assert made.recv(4096).startswith(b"HTTP/1.1 200")
            open_streams.append(made)
        events = b"GET /api/v1/events HTTP/1.1\r\n" + server.authorization + b"\r\n"
        status, said = answer(server, events)
        assert status == 429
        assert b"retry-after" in said
        assert b"application/problem+json" in said
        open_streams.pop().close()
        wait_until(lambda: answer(server, events)[0] == 200)
        for one in open_streams:
            one.close()


def test_bodies_together_are_limited() -> None:
    """Three of a megabyte each are being read: a fourth is told to come later."""
    with target(request_bytes=1_000_000, bodies_bytes=3_000_000) as server:
        head = post(server, 900_000)
        slow = []
        for _ in range(2):
            made = connect(server.port, False)
            made.sendall(head + b" " * 800_000)
            slow.append(made)
        found = [ends_or_waits(made) for made in slow]
        for one in slow:
            one.close()
        assert b"429" in found
        assert call(server) == 200


def ends_or_waits(made: socket.socket) -> bytes:
    made.settimeout(1.0)
    try:
        return made.recv(4096)[9:12]
    except TimeoutError:
        return b""


def wait_until(holds: Callable[[], bool]) -> None:
    ends_at = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < ends_at, "it does not come to hold"
        time.sleep(0.02)


class FakeGuest:
    def __init__(self, host: str) -> None:
        self.host = host
        self.user: str | None = None
        self.is_idle = True
        self.is_dropped = False

    def look(self, now: float, idle_seconds: float) -> None: ...

    def drop(self) -> None:
        self.is_dropped = True


@pytest.mark.parametrize(
    "hosts",
    [["192.0.2.7"] * 10, [f"2001:db8::{n}" for n in range(10)], ["::ffff:192.0.2.7"] * 10],
)
def test_one_address_has_its_own_limit(hosts: list[str]) -> None:
    book = Connections(Limits(connections=64, connections_per_address=4))
    others = [FakeGuest("198.51.100.1"), FakeGuest("127.0.0.1")]
    for one in others:
        assert book.admit(one)
    near = [FakeGuest(host) for host in hosts]
    for one in near:
        assert book.admit(one)
    assert [one.is_dropped for one in near] == [True] * 6 + [False] * 4
    assert not any(one.is_dropped for one in others)
    assert len(book) == 6


def test_without_room_who_is_known_and_busy_stays() -> None:
    book = Connections(Limits(connections=4))
    known = [FakeGuest("127.0.0.1") for _ in range(4)]
    for one in known:
        assert book.admit(one)
        book.recognise(one, "alice")
        one.is_idle = False
    assert not book.admit(FakeGuest("127.0.0.1"))
    known[2].is_idle = True
    assert book.admit(FakeGuest("127.0.0.1"))
    assert [one.is_dropped for one in known] == [False, False, True, False]


def asked_again(made: socket.socket) -> bool:
    made.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
    said = b""
    while not said.endswith(b'{"status":"ok"}'):
        said += made.recv(4096)
    return said.startswith(b"HTTP/1.1 200")


def _shown(port: int) -> bytes:
    made = connect(port, True)
    assert isinstance(made, ssl.SSLSocket)
    found = made.getpeercert(binary_form=True)
    made.close()
    assert found is not None
    return found


@needs_openssl
def test_a_new_certificate_is_taken_over_and_a_bad_one_is_not(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path / "used")
    with target((certificate, key)) as server:
        first = _shown(server.port)
        standing = connect(server.port, True)
        assert asked_again(standing)
        new_certificate, new_key = make_certificate(tmp_path / "new")
        new_certificate.replace(certificate)  # without its key: no pair
        assert "goes on with the certificate that it had" in server.heard()
        assert _shown(server.port) == first
        new_key.replace(key)
        assert "new certificate" in server.heard()
        assert _shown(server.port) not in (first, b"")
        assert asked_again(standing)
        standing.close()


@needs_openssl
def test_old_tls_is_refused(pair: tuple[Path, Path]) -> None:
    with target(pair) as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_ciphers("ALL:@SECLEVEL=0")
        with warnings.catch_warnings(action="ignore"):
            context.minimum_version = ssl.TLSVersion.TLSv1
            context.maximum_version = ssl.TLSVersion.TLSv1_1
        plain = socket.create_connection(("127.0.0.1", server.port), PATIENCE_SECONDS)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            context.wrap_socket(plain)
        plain.close()
        made = http.client.HTTPSConnection("127.0.0.1", server.port, context=_unverified())
        made.request("GET", "/healthz")
        assert json.loads(made.getresponse().read()) == {"status": "ok"}
        made.close()


def _unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@needs_openssl
def test_a_long_body_by_tls_in_many_threads(pair: tuple[Path, Path]) -> None:
    """Nothing of it is lost between the handshake and the first request."""
    with target(pair) as server:
        token = server.authorization.decode().split(": ")[1].strip()

        def ask() -> int:
            made = http.client.HTTPSConnection("127.0.0.1", server.port, context=_unverified())
            body = json.dumps({"python": "a:b", "arguments": ["x" * 200_000]})
            made.request("POST", "/api/v1/tasks", body, {"Authorization": token})
            status = made.getresponse().status
            made.close()
            return status

        with ThreadPoolExecutor(4) as threads:
            assert {one.result() for one in [threads.submit(ask) for _ in range(16)]} == {201}
