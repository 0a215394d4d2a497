"""The processes of the spawn helper: each with a process group of its own.

    spawned ─ exits ─▶ the rest of its group gets SIGKILL ─ group is gone ─▶ ended
       └── stop: SIGTERM to the group, after the grace SIGKILL ──▲

The leader is reaped only after its group was killed: as long as it is a zombie, no stranger
can get its number. A process that leaves its group (setsid) is still in the sandbox, whose
processes the kernel ends with the first of them; or in the control group of its task, which is
emptied; or, without either, an orphan that the helper has adopted and knows by its environment.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import resource
import select
import signal
import termios
import time
from collections.abc import Callable
from functools import lru_cache, partial
from heapq import heappop, heappush
from itertools import count
from typing import Final

from mycel.drivers.python.interpreter_output import HeadAndTail
from mycel.drivers.python.interpreter_records import clock
from mycel.drivers.python.live_output import LiveOutput
from mycel.drivers.sandbox.launch import Launch, bounded, harden, is_bounded
from mycel.drivers.sandbox.soft_limits import (
    LOOK_SECONDS,
    MEMORY_LOOK_SECONDS,
    broken_limit,
    folder_bytes,
    memory_bytes,
)

from .leftovers import carries

QUIET_SECONDS: Final = 0.002
"""So long a pipe's own buffer takes the output: who ends sooner costs no epoll entries."""
GROUP_POLL_SECONDS: Final = 0.001
GROUP_GONE_SECONDS: Final = 5.0
"""A process that survives SIGKILL for longer hangs in the kernel: there is no use in waiting."""
PIPE_BYTES_MAX: Final = 1 << 20
READ_BYTES: Final = 1 << 16
LISTING_BYTES_MAX: Final = 1 << 16
IGNORED_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_UNBOUNDED: Final = contextlib.nullcontext()
DEFAULT_SIGNALS: Final = (*IGNORED_SIGNALS, signal.SIGPIPE, signal.SIGXFSZ)
_PR_SET_CHILD_SUBREAPER: Final = 36


_living: set[int] = set()
"""Processes that somebody here waits for."""


class EventLoop:
    """One epoll and one heap of timers."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[], None]] = {}
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._later: list[Callable[[], None]] = []

    def register(self, descriptor: int, handler: Callable[[], None]) -> None:
        self._epoll.register(descriptor, select.EPOLLIN)
        self._handlers[descriptor] = handler

    def want_write(self, descriptor: int, wanted: bool) -> None:
        self._epoll.modify(descriptor, select.EPOLLIN | (select.EPOLLOUT if wanted else 0))

    def unregister(self, descriptor: int) -> None:
        # Explicitly, not by close alone: a child between fork and exec still holds it.
        self._epoll.unregister(descriptor)
        del self._handlers[descriptor]

    def call_at(self, when: float, callback: Callable[[], None]) -> None:
        heappush(self._timers, (when, next(self._numbers), callback))

    def call_later(self, callback: Callable[[], None]) -> None:
        """After this turn's events. Whatever opens descriptors belongs here: one that was
        closed in this turn may still have an event in it, which its successor must not get."""
        self._later.append(callback)

    def turn(self) -> None:
        if self._later:
            timeout = 0.0
        elif self._timers:
            timeout = max(self._timers[0][0] - clock(), 0.0)
        else:
            timeout = -1.0
        for descriptor, _ in self._epoll.poll(timeout):
            handler = self._handlers.get(descriptor)
            if handler is not None:
                handler()
        if self._timers:
            now = clock()
            while self._timers and self._timers[0][0] <= now:
                heappop(self._timers)[2]()
        later, self._later = self._later, []
        for callback in later:
            callback()


class Child:
    """A process that runs, and its group."""

    def __init__(
        self,
        watch: EventLoop,
        process_id: int,
        pipes: list[tuple[int, HeadAndTail]],
        on_end: Callable[[Child], None],
        folder: str,
        launch: Launch | None,
    ) -> None:
        self._watch = watch
        self._folder = folder
        self._launch = launch
        self._is_over_disk = False
        self._is_over_memory = False
        self._pipes = pipes
        self._watched_pipes = False
        self._on_end = on_end
        self._stopping = False
        self.process_id = process_id
        self.started_at = clock()
        self.ended_at = 0.0
        self.exit_code = 0
        self.peak_memory = 0
        self.cpu_seconds = 0.0
        self.alive = True
        self.on_output: Callable[[int, bytes], None] | None = None
        """Hears what is read of each stream, numbered as descriptors are."""
        self.broken_limit = ""
        """Which limit it died of, in words; nothing if it was none."""
        _living.add(process_id)
        if launch is not None and launch.limits.disk:
            watch.call_at(self.started_at + LOOK_SECONDS, self._look_at_folder)
        if launch is not None and launch.group is None and launch.limits.memory:
            watch.call_at(self.started_at + MEMORY_LOOK_SECONDS, self._look_at_memory)
        self._process_descriptor = os.pidfd_open(process_id)
        watch.register(self._process_descriptor, self._exited)

    def watch_output(self) -> None:
        """From now on its output is read while it runs."""
        if self._watched_pipes or not self.alive:
            return
        self._watched_pipes = True
        for stream, (descriptor, kept) in enumerate(self._pipes, 1):
            self._watch.register(descriptor, partial(self._read, stream, descriptor, kept))

    def live_outputs(self) -> list[LiveOutput]:
        return [kept.live() for _, kept in self._pipes]

    def stop(self, grace_seconds: float) -> None:
        """Asked again without grace, it does not wait for the end of the first."""
        if grace_seconds <= 0:
            self.kill()
        elif self.alive and not self._stopping:
            self._stopping = True
            if self._launch is not None and self._launch.confined:
                # Not what makes the sandbox, which would take all others with it at once.
                for process_id in inhabitants(self.process_id, kept=self._launch.kept):
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(process_id, signal.SIGTERM)
            else:
                self.signal_group(signal.SIGTERM)
            self._watch.call_at(clock() + grace_seconds, self.kill)

    def kill(self) -> None:
        if not self.alive:
            return
        if self._launch is not None and self._launch.kept:
            # Who is dead keeps nobody: it kills the others, and ends.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process_id, signal.SIGTERM)
        else:
            self.signal_group(signal.SIGKILL)

    def signal_group(self, number: int) -> bool:
        """Whether there is such a group that we may signal."""
        try:
            os.killpg(self.process_id, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def output(self) -> list[bytes]:
        return [kept.take() for _, kept in self._pipes]

    def _read(self, stream: int, descriptor: int, kept: HeadAndTail) -> None:
        data = os.read(descriptor, READ_BYTES)
        if data:
            kept.write(data)
            if self.on_output is not None:
                self.on_output(stream, data)
        else:
            self._watch.unregister(descriptor)
            os.close(descriptor)
            self._pipes = [(-1 if d == descriptor else d, k) for d, k in self._pipes]

    def _exited(self) -> None:
        self._watch.unregister(self._process_descriptor)
        os.close(self._process_descriptor)
        self.signal_group(signal.SIGKILL)
        _, status, used = os.wait4(self.process_id, 0)
        _living.discard(self.process_id)
        self._add_usage(used)
        code = os.waitstatus_to_exitcode(status)
        self.exit_code = code if code >= 0 else 128 - code
        self.alive = False
        self.ended_at = clock()
        self.broken_limit = broken_limit(
            self._launch,
            self.exit_code,
            over_disk=self._is_over_disk,
            over_memory=self._is_over_memory,
        )
        self._end_with_the_group()

    def _end_with_the_group(self) -> None:
        if clock() - self.ended_at < GROUP_GONE_SECONDS and self._anybody_left():
            self._watch.call_at(clock() + GROUP_POLL_SECONDS, self._end_with_the_group)
            return
        for descriptor, kept in self._pipes:
            if descriptor >= 0:
                if self._watched_pipes:
                    self._watch.unregister(descriptor)
                _drain(descriptor, kept)
                os.close(descriptor)
        self._on_end(self)

    def _anybody_left(self) -> bool:
        if self.signal_group(0):
            with contextlib.suppress(ChildProcessError):
                while True:  # orphans of the group, which the helper has adopted
                    process_id, _, used = os.wait4(-self.process_id, os.WNOHANG)
                    if not process_id:
                        break
                    self._add_usage(used)
            if self.signal_group(0):
                return True
        launch = self._launch
        if launch is not None and launch.confined:
            return False
        group = None if launch is None else launch.group
        escaped = escaped_from(self._folder) if group is None else group.members()
        for process_id in escaped:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process_id, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process_id, os.WNOHANG)
        return bool(escaped)

    def _add_usage(self, used: resource.struct_rusage) -> None:
        self.peak_memory = max(self.peak_memory, used.ru_maxrss << 10)
        self.cpu_seconds += used.ru_utime + used.ru_stime

    def _look_at_folder(self) -> None:
        launch = self._launch
        if not self.alive or launch is None:
            return
        if folder_bytes(self._folder, launch.limits.disk) > launch.limits.disk:
            self._is_over_disk = True
            self.kill()
            return
        self._watch.call_at(clock() + LOOK_SECONDS, self._look_at_folder)

    def _look_at_memory(self) -> None:
        """Each process is limited by the kernel; all of a task together are by us."""
        launch = self._launch
        if not self.alive or launch is None:
            return
        if memory_bytes([self.process_id, *descendants(self.process_id)]) > launch.limits.memory:
            self._is_over_memory = True
            self.kill()
            return
        self._watch.call_at(clock() + MEMORY_LOOK_SECONDS, self._look_at_memory)


def _drain(descriptor: int, kept: HeadAndTail) -> None:
    """Reads what is there, and no more: somebody who escaped may still hold the other end."""
    drained = 0
    while drained < PIPE_BYTES_MAX:
        waiting = int.from_bytes(fcntl.ioctl(descriptor, termios.FIONREAD, b"\0\0\0\0"), "little")
        if not waiting:
            return
        kept.write(os.read(descriptor, waiting))
        drained += waiting


def spawn(
    watch: EventLoop,
    path: str,
    command: list[str] | tuple[str, ...],
    environment: dict[str, str],
    output_limits: tuple[int, ...],
    on_end: Callable[[Child], None],
    descriptors: tuple[tuple[int, int], ...] = (),
    *,
    folder: str = "",
    launch: Launch | None = None,
) -> Child:
    """Starts a process in a session of its own, in our current folder, which should be `folder`:
    posix_spawn knows no working folder, and with one thread, ours will do.

    `output_limits`: how much to keep of standard output and error; one limit for both together.
    `descriptors`: which of ours it gets under which number.
    `launch`: what holds it.
    Raises OSError or ValueError if it cannot be started.
    """
    opens: tuple[tuple[int, str], ...] = ()
    if launch is not None:
        environment, opens = launch.environment, launch.opens
        if launch.words:
            command = (*launch.words, path, *command[1:])
            path = command[0]
    bounds = launch if launch is not None and is_bounded(launch) else None
    pipes = [(*os.pipe(), HeadAndTail(limit)) for limit in output_limits]
    process_id = 0
    try:
        with _UNBOUNDED if bounds is None else bounded(bounds):
            process_id = os.posix_spawn(
                path,
                command,
                environment,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, pipes[0][1], 1),
                    (os.POSIX_SPAWN_DUP2, pipes[-1][1], 2),
                    *((os.POSIX_SPAWN_DUP2, ours, theirs) for ours, theirs in descriptors),
                    *((os.POSIX_SPAWN_OPEN, to, what, os.O_RDONLY, 0) for to, what in opens),
                ],
                setsid=True,
                setsigmask=(),
                setsigdef=DEFAULT_SIGNALS,
            )
        if bounds is not None:
            harden(process_id, bounds)
        kept = [(reading, output) for reading, _, output in pipes]
        return Child(watch, process_id, kept, on_end, folder, launch)
    except BaseException:
        if process_id:
            _kill_unwatched(process_id)
        for reading, _, _ in pipes:
            os.close(reading)
        raise
    finally:
        # Once per task: a stack of contexts would cost more than the pipes.
        for _, writing, _ in pipes:
            os.close(writing)


def _kill_unwatched(process_id: int) -> None:
    os.killpg(process_id, signal.SIGKILL)
    os.waitpid(process_id, 0)


def adopt_orphans() -> None:
    """Makes this process the parent of its descendants' orphans, instead of process 1."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_strays() -> None:
    """Kills and reaps every child. Only for when no child is known any more."""
    deadline = clock() + 1.0
    while clock() < deadline:
        children = _children()
        if not children:
            return
        for process_id in children:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process_id, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(GROUP_POLL_SECONDS)


def inhabitants(process_id: int, *, kept: bool = False) -> list[int]:
    """Who lives in a sandbox: all below the first process in it, whose parent this is; or all
    below a keeper."""
    if kept:
        return descendants(process_id)
    return [one for first in _children(process_id) for one in descendants(first)]


def descendants(process_id: int) -> list[int]:
    found = _children(process_id)
    for one in found:  # which grows
        found += _children(one)
    return found


def escaped_from(folder: str) -> list[int]:
    """Orphans that we have adopted whose working folder, as they were told, is this one."""
    strangers = [one for one in _children() if one not in _living]
    if not strangers or not folder:
        return []
    mark = b"MYCEL_WORKDIR=" + os.fsencode(folder)
    return [one for one in strangers if carries(one, mark)]


def _children(process_id: int = 0) -> list[int]:
    """Ours, if no other is named."""
    try:
        if not process_id:
            listing = os.pread(_own_listing(os.getpid()), LISTING_BYTES_MAX, 0)
        else:
            file = _listing(process_id)
            try:
                listing = os.read(file, LISTING_BYTES_MAX)
            finally:
                os.close(file)
    except OSError:  # gone, or a kernel without it: then strays are not found
        return []
    return [int(word) for word in listing.split()]


def _listing(process_id: int) -> int:
    return os.open(f"/proc/{process_id}/task/{process_id}/children", os.O_RDONLY)


@lru_cache(1)
def _own_listing(process_id: int) -> int:
    """Open for good: it is read after each task."""
    return _listing(process_id)
