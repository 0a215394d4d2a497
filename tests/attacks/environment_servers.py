"""What an author of environments brings along: wheels, source packages, a server for them."""

from __future__ import annotations

import io
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def wheel(name: str, version: str, files: dict[str, bytes]) -> bytes:
    about = f"{name}-{version}.dist-info"
    listed = {
        **files,
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{about}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{file},,\n" for file in (*listed, f"{about}/RECORD"))
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for file, content in listed.items():
            archive.writestr(file, content)
        archive.writestr(f"{about}/RECORD", record)
    return made.getvalue()


def wheel_name(name: str, version: str) -> str:
    return f"{name}-{version}-py3-none-any.whl"


def source_package(name: str, version: str, backend: str) -> bytes:
    """To build it is to run `backend`, which has everything that it needs."""
    project = (
        "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"
        f"[project]\nname = '{name}'\nversion = '{version}'\n"
    )
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for file, text in (("pyproject.toml", project), ("backend.py", backend)):
            entry = tarfile.TarInfo(f"{name}-{version}/{file}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return made.getvalue()


class Shop:
    """What a server has: content by path, or another place to go on to."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.redirects: dict[str, str] = {}
        self.asked: list[str] = []
        self.port = 0

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"


@contextmanager
def served() -> Iterator[Shop]:
    shop = Shop()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            shop.asked.append(self.path)
            content = shop.content.get(self.path)
            if self.path in shop.redirects:
                self.send_response(302)
                self.send_header("Location", shop.redirects[self.path])
                content = b""
            else:
                self.send_response(404 if content is None else 200)
            body = content or b""
            if self.path.endswith("/"):
                self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing: a test says what it has seen."""

        def handle(self) -> None:
            try:
                super().handle()
            except OSError:
                return  # the build was ended while it was served

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    shop.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield shop
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
