"""The drivers of models as subjects of the conformance suite: requests to a server, and services.

Where they differ from drivers of programs: a request writes nothing, and what a service writes is
told when it ends, so that there is nothing to tell while they run; and a service is there to stay,
so that its quick tasks fail.
"""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

from mycel.core.model.work import Work
from mycel.drivers.interface import Driver
from mycel.drivers.model.http_stream import Endpoint
from mycel.drivers.model.model_driver import ModelDriver, ModelSource
from mycel.drivers.model.service_driver import ServiceDriver
from mycel.drivers.registry import DriverContext
from mycel.testing.drivers.conformance import Subject

_SERVED = """
import os, signal
def ready(): return lambda given: ["" for _ in given]
def broken(): raise SystemExit("it cannot be loaded")
def crashing(): os.kill(os.getpid(), signal.SIGSEGV)
"""


class Requests(Subject):
    """To a server on the same loop, which does as it is told by the text."""

    name = "model"

    def __init__(self, **_options: Any) -> None:
        self._server: asyncio.Task[None] | None = None

    def create(self, context: DriverContext) -> Driver:
        listening = socket.create_server(("127.0.0.1", 0))
        self._server = asyncio.get_running_loop().create_task(_serve(listening))
        driver = ModelDriver(context.listener)
        endpoint = Endpoint(f"http://127.0.0.1:{listening.getsockname()[1]}/v1")
        driver.serve({"oracle": [ModelSource("chat", endpoint, "oracle")]})
        return driver

    def quick(self) -> Work:
        return self._asked("quick")

    def slow(self) -> Work:
        return self._asked("slow")

    def failing(self) -> Work:
        return self._asked("failing")

    def crashing(self) -> Work:
        return self._asked("crashing")

    @staticmethod
    def _asked(text: str) -> Work:
        return Work("model", model="oracle", input=json.dumps({"text": text}).encode())


async def _serve(listening: socket.socket) -> None:
    server = await asyncio.start_server(_answer, sock=listening, backlog=128)
    async with server:
        await server.serve_forever()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(head.partition("content-length:")[2].split("\r\n")[0])
    body = json.loads(await reader.readexactly(length))
    status, answer = 200, {"choices": [{"message": {"content": "yes"}}]}
    match body["messages"][0]["content"]:
        case "slow":
            await reader.read()  # until whoever asked hangs up
        case "failing":
            status, answer = 400, {"choices": []}
        case "crashing":
            writer.transport.abort()
    said = json.dumps(answer).encode()
    writer.write(b"HTTP/1.1 %d .\r\nContent-Length: %d\r\n\r\n%s" % (status, len(said), said))
    writer.close()


class Services(Subject):
    """Python models in processes of their own."""

    name = "service"
    quick_state = "failed"

    def __init__(self, **_options: Any) -> None:
        self._folder = Path()

    def create(self, context: DriverContext) -> Driver:
        self._folder = context.root.parent / "models"
        self._folder.mkdir(exist_ok=True)
        (self._folder / "served.py").write_text(_SERVED)
        grace, root = context.grace_seconds, context.root / "service"
        return ServiceDriver(context.helper, context.listener, root, grace, context.policy)

    def quick(self) -> Work:
        return self._served("broken")

    def slow(self) -> Work:
        return self._served("ready")

    def failing(self) -> Work:
        return Work("service", parameters=b"what is this?")

    def crashing(self) -> Work:
        return self._served("crashing")

    def _served(self, factory: str) -> Work:
        settings = {"name": "m", "python": f"served:{factory}", "folder": str(self._folder)}
        return Work("service", parameters=json.dumps(settings).encode())
