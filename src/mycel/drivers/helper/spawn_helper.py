"""The spawn helper: a small process that starts all others.

It is forked first of all, before the worker has threads, loops or locks, so that it stays
small and single-threaded; forking a process with network threads is neither safe nor cheap.
It starts processes with posix_spawn (vfork-like), watches them in one epoll loop, and tells
the worker of their ends in batches:

    worker ──requests──▶ helper ──posix_spawn──▶ tasks, each in a process group of its own
           ◀──reports───        └─posix_spawn──▶ interpreters

When the worker ends, however it ends, the helper reads the end of its socket, kills every
group and ends too. `helper_client` is the worker's side.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import signal
import socket
import sys
import traceback
from collections import deque
from pathlib import Path
from typing import Final

import msgspec

from mycel.drivers.python.interpreter_records import RECEIVE_BYTES, clock
from mycel.drivers.sandbox.launch import Launcher
from mycel.drivers.sandbox.run_confinement import SandboxPlan

from .attempt_folders import AttemptFolders
from .children import IGNORED_SIGNALS, Child, EventLoop, adopt_orphans, kill_strays, spawn
from .helper_lanes import Lanes
from .helper_messages import (
    INTERPRETER_MEMORY,
    INTERPRETER_SOCKET,
    CloseLane,
    Configure,
    FrameReader,
    Kill,
    ProgramEnded,
    Report,
    Request,
    RunProcesses,
    StartProgram,
    StopProgram,
    Withdraw,
    framed,
)

REPORT_SECONDS: Final = 0.020
"""Ends are reported together, but none waits longer than this, and none if its lane is empty.
Half of what waits in a lane: the rest keeps it busy while the report is on its way."""
REPORT_ENDS_MAX: Final = 256
UNSENT_BYTES_MAX: Final = 64 << 20
"""Above this nothing new is started until the worker has read."""
DESCRIPTORS_MAX: Final = 64
INTERPRETER_OUTPUT_BYTES: Final = 64 << 10
STRAY_SECONDS: Final = 1.0
REMOVAL_SECONDS: Final = 2.0
"""So long the end waits for folders that are being removed; what is left, the next start finds."""


class HelperHandle(msgspec.Struct, frozen=True):
    """The worker's end of its helper, before there is an event loop."""

    socket: socket.socket
    process_id: int


def start_helper() -> HelperHandle:
    """Forks the helper. To be called before the process has threads, loops or locks."""
    ours, theirs = socket.socketpair()
    sys.stdout.flush()
    sys.stderr.flush()
    process_id = os.fork()
    if process_id:
        theirs.close()
        return HelperHandle(ours, process_id)
    status = 1
    try:
        _become_helper(theirs.fileno())
        SpawnHelper(theirs).run()
        status = 0
    except BaseException:  # noqa: BLE001 - the edge that owns this process: say why, then go
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _become_helper(socket_descriptor: int) -> None:
    os.setsid()
    for number in range(1, signal.NSIG):
        with contextlib.suppress(OSError, ValueError):  # SIGKILL, SIGSTOP and libc's own
            signal.signal(number, signal.SIG_DFL)
    for number in (*IGNORED_SIGNALS, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.closerange(3, socket_descriptor)
    os.closerange(socket_descriptor + 1, os.sysconf("SC_OPEN_MAX"))
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.close(nothing)
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text("mycel-helper")
    adopt_orphans()
    gc.freeze()


class SpawnHelper:
    """Requests in, processes watched, reports out."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._watch = EventLoop()
        self._watch.register(connection.fileno(), self._socket_ready)
        self._frames = FrameReader()
        self._decoder = msgspec.msgpack.Decoder(list[Request])
        self._encoder = msgspec.msgpack.Encoder()
        self._descriptors: deque[int] = deque()
        self._folders = AttemptFolders()
        self._launcher = Launcher(SandboxPlan())
        self._lanes: Lanes | None = None
        self._interpreters: dict[int, Child] = {}
        self._report: Report | None = None
        self._report_at = 0.0
        self._unsent = bytearray()
        self._ended = False
        self._strays_at: float | None = None

    def run(self) -> None:
        while not self._ended:
            self._watch.turn()
            report = self._report
            if report is not None and (
                clock() >= self._report_at or len(report.finished) >= REPORT_ENDS_MAX
            ):
                self._send_report(report)
            if not self._interpreters and (self._lanes is None or self._lanes.idle):
                self._tidy()
        self._kill_all()

    def _open_report(self) -> Report:
        report = self._report
        if report is None:
            report = self._report = Report([], [], [], [], [], [])
            self._report_at = clock() + REPORT_SECONDS
            self._watch.call_at(self._report_at, _nothing)
        return report

    def _urgent_report(self) -> Report:
        report = self._open_report()
        self._report_at = 0.0
        return report

    def _send_report(self, report: Report) -> None:
        self._report = None
        if self._strays_at is None and (report.finished or report.ended):
            self._strays_at = clock() + STRAY_SECONDS
            self._watch.call_at(self._strays_at, _nothing)
        had_unsent = bool(self._unsent)
        self._unsent += framed(self._encoder.encode(report))
        if not had_unsent:
            self._send()

    def _send(self) -> None:
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._ended = True
            return
        del self._unsent[:sent]
        self._watch.want_write(self._socket.fileno(), bool(self._unsent))
        if self._lanes is not None and self._may_start():
            self._watch.call_later(self._lanes.go_on)

    def _may_start(self) -> bool:
        return len(self._unsent) < UNSENT_BYTES_MAX

    def _socket_ready(self) -> None:
        if self._unsent:
            self._send()
        try:
            data, descriptors, _, _ = socket.recv_fds(self._socket, RECEIVE_BYTES, DESCRIPTORS_MAX)
        except BlockingIOError:
            return
        except OSError:
            data, descriptors = b"", []
        if not data:
            self._ended = True
            return
        for descriptor in descriptors:
            # Above the numbers that interpreters expect, so that none overwrites another.
            self._descriptors.append(fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10))
            os.close(descriptor)
        for frame in self._frames.feed(data):
            for request in self._decoder.decode(frame):
                self._handle(request)

    def _handle(self, request: Request) -> None:
        lanes = self._lanes
        match request:
            case SandboxPlan():
                self._launcher = Launcher(request)
            case Configure():
                self._lanes = Lanes(
                    self._watch,
                    self._folders,
                    self._launcher,
                    request,
                    self._open_report,
                    self._urgent_report,
                    self._may_start,
                )
            case RunProcesses():
                assert lanes is not None, "configured before the first process"
                lanes.submit(request)
            case Withdraw(attempts) if lanes is not None:
                lanes.withdraw(attempts)
            case Kill(attempts, grace_seconds) if lanes is not None:
                lanes.kill(attempts, grace_seconds)
            case CloseLane(lane) if lanes is not None:
                lanes.close(lane)
            case StartProgram():
                descriptors = (
                    (self._descriptors.popleft(), INTERPRETER_SOCKET),
                    (self._descriptors.popleft(), INTERPRETER_MEMORY),
                )
                self._watch.call_later(lambda: self._start_interpreter(request, descriptors))
            case StopProgram():
                # Later too: its start may be in the same batch.
                self._watch.call_later(lambda: self._stop_interpreter(request))

    def _start_interpreter(
        self, request: StartProgram, descriptors: tuple[tuple[int, int], ...]
    ) -> None:
        number = request.interpreter
        try:
            os.chdir(request.folder)
            launch = None
            if request.confinement is not None:
                self._launcher.give(request.folder)
                launch = self._launcher.launch(
                    request.confinement,
                    request.folder,
                    f"interpreter-{number}",
                    request.environment,
                )
            child = spawn(
                self._watch,
                request.command[0],
                request.command,
                request.environment,
                (INTERPRETER_OUTPUT_BYTES,),
                lambda child: self._interpreter_ended(request, child),
                descriptors,
                folder=request.folder,
                launch=launch,
            )
            child.watch_output()
            self._interpreters[number] = child
        except (OSError, ValueError) as error:
            self._folders.remove(request.folder)
            reason = str(error).encode()
            self._urgent_report().ended.append(ProgramEnded(number, 126, reason))
        finally:
            for descriptor, _ in descriptors:
                os.close(descriptor)

    def _stop_interpreter(self, request: StopProgram) -> None:
        child = self._interpreters.get(request.interpreter)
        if child is not None:
            child.stop(request.grace_seconds)

    def _interpreter_ended(self, request: StartProgram, child: Child) -> None:
        del self._interpreters[request.interpreter]
        self._folders.remove(request.folder)
        self._launcher.leave(f"interpreter-{request.interpreter}")
        ended = ProgramEnded(
            request.interpreter, child.exit_code, child.output()[0], child.broken_limit
        )
        self._urgent_report().ended.append(ended)

    def _tidy(self) -> None:
        """While nothing runs: what escaped from its group, and removals that are through."""
        if self._folders.removing:
            self._folders.reap()
            if self._folders.removing:
                self._watch.call_at(clock() + 0.01, _nothing)
        elif self._strays_at is not None and clock() >= self._strays_at:
            self._strays_at = None
            kill_strays()

    def _kill_all(self) -> None:
        children = list(self._interpreters.values())
        if self._lanes is not None:
            children += self._lanes.children()
        for child in children:
            child.kill()
        self._folders.finish(REMOVAL_SECONDS)
        kill_strays()
        self._launcher.close()


def _nothing() -> None:
    """A timer that only ends the wait."""
