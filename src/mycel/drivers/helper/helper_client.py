"""The worker's side of its spawn helper, on the worker's event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections import deque
from collections.abc import Callable

import msgspec

from mycel.drivers.python.interpreter_records import RECEIVE_BYTES

from .helper_messages import Configure, FrameReader, ProgramEnded, Report, Request, framed
from .spawn_helper import HelperHandle

_Piece = tuple[bytes, tuple[int, ...]]


class HelperClient:
    """Sends requests, together if they come in one turn of the loop, and hands reports on.

    Everybody in `on_processes` sees every report, and takes its own from it;
    `on_interpreter_ended` belongs to the driver of interpreters. When the helper is lost, which
    is no normal case, everybody in `on_lost` is told, once: whoever assembles the worker should
    end it then, because a helper can only be forked at the start.
    """

    def __init__(self, end: HelperHandle) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = end.socket
        self._socket.setblocking(False)
        self._process_id = end.process_id
        self._requests: list[Request] = []
        self._unsent: deque[_Piece] = deque()
        self._writing = False
        self._frames = FrameReader()
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(Report)
        self._closing = False
        self._gone = asyncio.Event()
        self._all_sent = asyncio.Event()
        self._all_sent.set()
        self.is_configured = False
        self.on_processes: list[Callable[[Report], None]] = []
        self.on_interpreter_ended: Callable[[ProgramEnded], None] | None = None
        self.owners: dict[int, Callable[[ProgramEnded], None]] = {}
        """Of programs that are no interpreters, by number: told instead of the above."""
        self.on_lost: list[Callable[[], None]] = []
        self._loop.add_reader(self._socket, self._readable)

    @property
    def lost(self) -> bool:
        return self._gone.is_set()

    @property
    def process_id(self) -> int:
        return self._process_id

    def configure(self, configuration: Configure) -> None:
        """Once, before the first process: all drivers of commands share it."""
        assert not self.is_configured
        self.is_configured = True
        self.post(configuration)

    def post(self, request: Request) -> None:
        if not self._requests:
            self._loop.call_soon(self.flush)
        self._requests.append(request)

    def post_with_descriptors(self, request: Request, descriptors: tuple[int, ...]) -> None:
        """Sends at once, after what was posted before. The descriptors stay the caller's,
        who may close them: the helper gets copies."""
        self.flush()
        kept = tuple(os.dup(descriptor) for descriptor in descriptors)
        self._send(framed(self._encoder.encode([request])), kept)

    def flush(self) -> None:
        if self._requests:
            requests, self._requests = self._requests, []
            self._send(framed(self._encoder.encode(requests)), ())

    async def close(self) -> None:
        """Ends the helper, and with it every process that it still has."""
        self.flush()
        self._closing = True
        if not self.lost:
            await self._all_sent.wait()
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)
            await self._gone.wait()
        self._socket.close()
        with contextlib.suppress(ChildProcessError):
            await self._loop.run_in_executor(None, os.waitpid, self._process_id, 0)

    def _send(self, data: bytes, descriptors: tuple[int, ...]) -> None:
        self._unsent.append((data, descriptors))
        self._all_sent.clear()
        if not self._writing:
            self._write()

    def _write(self) -> None:
        unsent = self._unsent
        while unsent:
            data, descriptors = unsent[0]
            try:
                if descriptors:
                    sent = socket.send_fds(self._socket, [data], descriptors)
                    for descriptor in descriptors:
                        os.close(descriptor)
                else:
                    sent = self._socket.send(data)
            except BlockingIOError:
                if not self._writing:
                    self._writing = True
                    self._loop.add_writer(self._socket, self._write)
                return
            except OSError:  # the reader will see the end, and tell
                unsent.clear()
                break
            if sent < len(data):
                unsent[0] = (data[sent:], ())
            else:
                unsent.popleft()
        self._all_sent.set()
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._socket)

    def _readable(self) -> None:
        try:
            data = self._socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._end()
            return
        for frame in self._frames.feed(data):
            try:
                report = self._decoder.decode(frame)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                self._socket.shutdown(socket.SHUT_RDWR)  # nobody knows what it has done
                self._end()
                return
            self._hand_on(report)

    def _hand_on(self, report: Report) -> None:
        for callback in self.on_processes:
            callback(report)
        for ended in report.ended:
            told = self.owners.get(ended.interpreter, self.on_interpreter_ended)
            if told is not None:
                told(ended)

    def _end(self) -> None:
        self._loop.remove_reader(self._socket)
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._socket)
        self._unsent.clear()
        self._all_sent.set()
        self._gone.set()
        if not self._closing:
            for callback in self.on_lost:
                callback()
