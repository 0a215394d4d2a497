"""HTTP/1.1 with keep-alive, as little of it as this API needs.

A full HTTP library costs more per exchange than the rest of a task's way: its headers are
parsed as mail, its bodies copied. This one writes a request with one call and reads the
answer into one buffer.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final
from urllib.parse import urlsplit

import msgspec

from .errors import ConnectionLost, NotRunning, NotTrusted, from_answer

if TYPE_CHECKING:
    import ssl

RECEIVE_BYTES: Final = 64 << 10
"""Python makes room for all of it before it reads: above 128 KiB that costs more than the rest."""
HEADER_BYTES_MAX: Final = 64 << 10
CONNECT_SECONDS: Final = 5.0
FIRST_PIECE_SECONDS: Final = 300.0
"""The headers of an answer that streams wait for its first piece, such as a model's first word."""
UPLOAD_BYTES: Final = 1 << 20
TRANSFER_SECONDS: Final = 120.0
"""Without a byte for so long, a transfer is broken off."""


class Answer(msgspec.Struct, frozen=True):
    status: int
    headers: dict[str, str]
    body: bytes


class Address(msgspec.Struct, frozen=True):
    """Where the API is, for example `http://127.0.0.1:8080`."""

    text: str
    host: str
    port: int
    secure: bool
    trust: str = ""
    """The path of the certificates that a secure one is held against; empty: the system's."""
    pinned: bool = False
    """It shows the first certificate of that file, whatever it is called by, or is refused."""

    @classmethod
    def parse(cls, text: str, trust: str = "", *, pinned: bool = False) -> Address:
        parts = urlsplit(text if "//" in text else f"http://{text}")
        secure = parts.scheme == "https"
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
            raise ValueError(f"an address is like http://127.0.0.1:8080, not {text!r}")
        port = parts.port or (443 if secure else 80)
        return cls(text.rstrip("/"), parts.hostname, port, secure, trust, pinned)


class Connection:
    """One connection: one exchange at a time."""

    def __init__(self, address: Address, token: str) -> None:
        self._address = address
        host = f"[{address.host}]" if ":" in address.host else address.host
        self._fixed = (
            f"Host: {host}:{address.port}\r\nAuthorization: Bearer {token}\r\n"
            f"Accept: application/json\r\n"
        ).encode("latin-1")
        self._socket = _connect(address)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._received = b""

    @property
    def is_stale(self) -> bool:
        """The other side has closed it while it was idle."""
        return bool(self._poll.poll(0))

    def close(self) -> None:
        self._socket.close()

    def exchange(
        self, method: str, target: str, body: bytes | None, headers: str, timeout: float | None
    ) -> Answer:
        status, fields = self._start(method, target, body, headers, timeout)
        if method == "HEAD":
            content = b""
        elif fields.get("transfer-encoding") == "chunked":
            content = b"".join(self._chunks())
        else:
            content = self._exactly(int(fields.get("content-length", "0")))
        return Answer(status, fields, content)

    def stream(self, target: str, body: bytes | None = None) -> tuple[Answer, Iterator[bytes]]:
        """The beginning of an answer, and its pieces as they come. Read them all, or close."""
        if body is None:
            status, fields = self._start("GET", target, None, "", CONNECT_SECONDS * 6)
        else:
            status, fields = self._start("POST", target, body, "", FIRST_PIECE_SECONDS)
        if fields.get("transfer-encoding") == "chunked":
            self._socket.settimeout(None)
            return Answer(status, fields, b""), self._chunks()
        content = self._exactly(int(fields.get("content-length", "0")))
        return Answer(status, fields, content), iter((content,))

    def upload(
        self, target: str, file: BinaryIO, offset: int, size: int, sent: Callable[[int], None]
    ) -> Answer:
        """Sends a file from where it stands, of which the other side has `offset` bytes."""
        length = size - offset
        head = f"PUT {target} HTTP/1.1\r\nContent-Length: {length}\r\n".encode() + self._fixed
        if offset:
            head += f"Content-Range: bytes {offset}-{size - 1}/{size}\r\n".encode()
        self._socket.settimeout(TRANSFER_SECONDS)
        try:
            self._socket.sendall(head + b"\r\n")
            while length and (data := file.read(min(length, UPLOAD_BYTES))):
                self._socket.sendall(data)
                length -= len(data)
                sent(len(data))
        except TimeoutError as error:
            raise ConnectionLost(f"{self._address.text} takes no data") from error
        except OSError:
            pass  # as below: a refusal may be on its way
        if length and not self._poll.poll(1000):
            raise ConnectionLost(f"{self._address.text} went away in the middle of an upload")
        status, fields = self._head()
        return Answer(status, fields, self._exactly(int(fields.get("content-length", "0"))))

    def download(self, target: str, offset: int) -> Iterator[bytes]:
        """The rest of a file, piece by piece."""
        headers = f"Range: bytes={offset}-\r\n" if offset else ""
        status, fields = self._start("GET", target, None, headers, TRANSFER_SECONDS)
        left = int(fields.get("content-length", "0"))
        if status >= 400:
            raise from_answer(status, self._exactly(left), fields.get("retry-after"))
        while left:
            data, self._received = self._received[:left], self._received[left:]
            data = data or self._receive()
            if len(data) > left:
                data, self._received = data[:left], data[left:]
            left -= len(data)
            yield data

    def _start(
        self, method: str, target: str, body: bytes | None, headers: str, timeout: float | None
    ) -> tuple[int, dict[str, str]]:
        head = b"%s %s HTTP/1.1\r\n" % (method.encode(), target.encode()) + self._fixed
        if body is not None:
            head += b"Content-Type: application/json\r\nContent-Length: %d\r\n" % len(body)
        elif method == "POST":
            head += b"Content-Length: 0\r\n"
        head += headers.encode("latin-1") + b"\r\n"
        self._socket.settimeout(timeout)
        try:
            self._socket.sendall(head + body if body else head)
        except TimeoutError as error:
            raise ConnectionLost(f"{self._address.text} takes no data") from error
        except OSError:
            pass  # it may have answered already, and closed: a body too large, for example
        return self._head()

    def _head(self) -> tuple[int, dict[str, str]]:
        received = self._received
        while (end := received.find(b"\r\n\r\n")) < 0:
            if len(received) > HEADER_BYTES_MAX:
                raise ConnectionLost(f"{self._address.text} does not speak HTTP")
            received += self._receive()
        self._received = received[end + 4 :]
        first, *lines = received[:end].decode("latin-1").split("\r\n")
        if not first.startswith("HTTP/1."):
            raise ConnectionLost(f"{self._address.text} does not speak HTTP")
        fields = {}
        for line in lines:
            name, _, value = line.partition(":")
            fields[name.lower()] = value.strip()
        status = int(first[9:12])
        return self._head() if status == 100 else (status, fields)

    def _receive(self) -> bytes:
        try:
            data = self._socket.recv(RECEIVE_BYTES)
        except TimeoutError as error:
            raise ConnectionLost(f"{self._address.text} does not answer") from error
        except OSError as error:
            raise ConnectionLost(f"{self._address.text}: {error.strerror or error}") from error
        if not data:
            raise ConnectionLost(f"{self._address.text} closed the connection")
        return data

    def _exactly(self, count: int) -> bytes:
        received = self._received
        if len(received) < count:
            parts, missing = [received], count - len(received)
            while missing > 0:
                data = self._receive()
                parts.append(data)
                missing -= len(data)
            received = b"".join(parts)
        self._received = received[count:]
        return received[:count]

    def _chunks(self) -> Iterator[bytes]:
        while True:
            while (end := self._received.find(b"\r\n")) < 0:
                self._received += self._receive()
            size = int(self._received[:end].partition(b";")[0], 16)
            self._received = self._received[end + 2 :]
            data = self._exactly(size + 2)
            if size == 0:
                return
            yield data[:-2]


def _connect(address: Address) -> socket.socket:
    try:
        connected = socket.create_connection((address.host, address.port), CONNECT_SECONDS)
    except OSError as error:
        raise NotRunning(address.text, error.strerror or str(error)) from error
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if not address.secure:
        return connected
    import ssl  # late: most swarms are reached on this machine

    try:
        context = _pinned(address.trust) if address.pinned else _trusting(address.trust)
        return context.wrap_socket(connected, server_hostname=address.host)
    except (OSError, ValueError) as error:
        connected.close()
        if isinstance(error, ssl.SSLCertVerificationError):
            raise NotTrusted(address.text, error.verify_message) from error
        raise NotRunning(address.text, getattr(error, "strerror", "") or str(error)) from error


@lru_cache(16)
def _trusting(path: str) -> ssl.SSLContext:
    import ssl

    return ssl.create_default_context(cafile=path or None)


def _pinned(path: str) -> ssl.SSLContext:
    """Holds the other side against the first certificate of a file, as it is now."""
    import ssl

    end = "-----END CERTIFICATE-----"
    first = Path(path).read_text(encoding="ascii", errors="replace").partition(end)[0] + end
    context = ssl.create_default_context(cadata=first)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context
