"""The worker's end of one warm interpreter: its socket, its memory, what it has to do."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import marshal
import os
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from mycel.core.identifiers import AttemptId
from mycel.core.model.json_depth import objection_to
from mycel.core.model.resources import Pairs
from mycel.core.ranges import ERROR_CHARACTERS_MAX, MEMORY_MAX, SIZE_MAX, bounded
from mycel.drivers.interface import Finished, FinishedState, Run, Text
from mycel.drivers.sandbox.run_confinement import RunConfinement, give

from .interpreter_calls import OWN_FOLDER
from .interpreter_records import (
    DOOMED,
    FAILED,
    FRAME,
    KILL,
    LEFT,
    LENGTH_BYTES,
    MEMORY,
    MEMORY_BYTES,
    NO_EXIT_CODE,
    RECEIVE_BYTES,
    RESULT,
    RESULTS,
    RESULTS_OFFSET,
    RETURNED,
    RUN_BATCH,
    STANDING,
    STARTED,
    STARTED_AT,
    SUCCEEDED,
    TEXT,
    WITHDRAW,
    WITHDRAWN,
    WRITTEN,
    clock,
)

BEGIN_SECONDS_MAX: Final = 2.0
"""So long after a call became the first, it has begun, whatever the interpreter says."""
START_SECONDS_MAX: Final = 10.0
"""The same while we have not heard of the interpreter: packages run code when it starts."""
IMPOSSIBLE_MEMORY: Final = "the task told that it had {} bytes of memory, which cannot be"
FRAME_BYTES_MAX: Final = 96 << 20
"""A value and both outputs at their limits, and some more."""


class InterpreterKey(NamedTuple):
    """An interpreter serves one of them only."""

    user: str
    env: Pairs
    packages: str
    """Where they are; empty, those of the worker's own Python."""
    confinement: RunConfinement
    """Its sandbox, limits and devices."""


class BrokenInterpreter(Exception):
    """It sent what no interpreter sends: the user's code has meddled with its socket."""


class Memory(NamedTuple):
    """What an interpreter leaves behind, as it is now."""

    ready: bool
    running: int
    """An attempt, or 0."""
    running_since: float
    unsent: bytes


class InterpreterEvents(NamedTuple):
    """What came in one read, kind by kind, in the order to be told."""

    started: list[tuple[AttemptId, float]]
    finished: list[Finished]
    returned: list[AttemptId]
    withdrawn: list[AttemptId]
    doomed: list[AttemptId]
    written: list[Text]


class InterpreterLink:
    """Sends calls, and says what comes back. The caller owns its life."""

    def __init__(
        self,
        number: int,
        key: InterpreterKey,
        folder: str,
        owner: int,
        on_events: Callable[[InterpreterLink, InterpreterEvents], None],
        on_broken: Callable[[InterpreterLink], None],
    ) -> None:
        self.number = number
        self.key = key
        self.folder = folder
        self._owner = owner
        self.outstanding: dict[int, Run] = {}
        """By attempt, in the order in which they run."""
        self.stopped_as: dict[int, FinishedState] = {}
        """Attempts that we have asked to be killed with the interpreter."""
        self.long_attempt = 0
        """The last one that was told to take long."""
        self.look_timer: asyncio.TimerHandle | None = None
        self.head_timer: asyncio.TimerHandle | None = None
        self.calls_count = 0
        self.idle_since = 0.0
        self.usable = True
        """False once we have it killed: it gets no more work."""
        self.is_broken = False
        """It sent what no interpreter sends, and is killed for that."""
        self._on_events = on_events
        self._on_broken = on_broken
        self._loop = asyncio.get_running_loop()
        self._socket, self._theirs = socket.socketpair()
        self._socket.setblocking(False)
        self._opened_at = clock()
        self._memory = os.memfd_create("mycel-interpreter")
        os.ftruncate(self._memory, MEMORY_BYTES)
        self._standing_since = 0.0
        """When it told so: nothing that it calls has run by then."""
        self._head_since = 0.0
        """When the first of what it has became that, as far as we know."""
        self._received = bytearray()
        self._unsent = bytearray()
        self._writing = False
        self._loop.add_reader(self._socket, self._readable)

    def descriptors(self) -> tuple[int, int]:
        return self._theirs.fileno(), self._memory

    def handed_over(self) -> None:
        """The helper has the interpreter's ends: ours of them would hide its end."""
        self._theirs.close()

    def run(self, runs: list[Run]) -> None:
        self.calls_count += len(runs)
        if not self.outstanding:
            self._head_since = clock()
        for (function, job_id, call), alike in itertools.groupby(
            runs, lambda run: (run.work.function, run.job_id, run.work.call)
        ):
            calls = []
            for run in alike:
                self.outstanding[run.attempt] = run
                own = self._take_in(run) if run.folder else ""
                calls.append((run.attempt, run.number, run.task_id, run.arguments, own))
            pickled = None if call is None else (call.function, call.path)
            self._send(RUN_BATCH, (function, job_id, calls, pickled))

    def _take_in(self, run: Run) -> str:
        """Puts a task's own folder where the interpreter can see it, which may see no other."""
        name = f"{OWN_FOLDER}{run.attempt}"
        with contextlib.suppress(OSError):  # then the call finds none, and says so
            give(run.folder, self._owner)  # before: later it is where others can reach it
            Path(run.folder).rename(f"{self.folder}/{name}")
        return name

    def _let_go(self, attempt: int) -> Run | None:
        """It has ended, one way or another: its own folder goes back to whoever made it."""
        run = self.outstanding.pop(attempt, None)
        if run is not None and run.folder:
            back = Path(run.folder)
            with contextlib.suppress(OSError):
                Path(f"{self.folder}/{OWN_FOLDER}{attempt}").rename(back)
            # It was in the task's hands: a link in its place would lead us anywhere.
            if back.is_symlink() or not back.is_dir():
                back.unlink(missing_ok=True)
                back.mkdir(mode=0o700)
        return run

    def withdraw(self, attempts: list[AttemptId]) -> None:
        self._send(WITHDRAW, list(attempts))

    def ask_to_kill(self, attempt: AttemptId, state: FinishedState) -> None:
        """It gives back what waits, so that nobody else is hit, and then asks to be killed."""
        self.stopped_as.setdefault(attempt, state)
        self._send(KILL, attempt)

    def read_memory(self) -> Memory:
        # Read as a file: to map what user code can shorten is to invite SIGBUS.
        data = os.pread(self._memory, MEMORY_BYTES, 0)
        if len(data) < RESULTS_OFFSET:
            return Memory(True, 0, 0.0, b"")
        ready, unsent_bytes, running, since = MEMORY.unpack_from(data)
        since = self._believed(since)
        return Memory(
            bool(ready), running, since, data[RESULTS_OFFSET : RESULTS_OFFSET + unsent_bytes]
        )

    def _believed(self, moment: float) -> float:
        """A time that it names, if it can be: user code may have named it, and costs, limits and
        what clients see are reckoned with it."""
        now = clock()
        return moment if self._opened_at <= moment <= now else now

    def running(self) -> list[AttemptId]:
        """The attempt that runs now, if one does."""
        attempt = self.read_memory().running
        return [AttemptId(attempt)] if attempt in self.outstanding else []

    def under_way(self) -> tuple[Run, float] | None:
        """What runs, and since when. What it says of that counts within limits only: a call that
        had it say nothing, or something else, would never be too late, nor be killed."""
        memory = self.read_memory()
        latest = self._head_since + START_SECONDS_MAX
        if self._standing_since:
            latest = max(self._head_since, self._standing_since) + BEGIN_SECONDS_MAX
        run = self.outstanding.get(memory.running)
        if run is not None:
            return run, min(memory.running_since, latest)
        if self.outstanding and clock() >= latest:
            return next(iter(self.outstanding.values())), latest
        return None

    def unheard(self, before: float) -> list[tuple[AttemptId, float]]:
        """What has run since then, or longer, and was not told: it holds the interpreter lock."""
        memory = self.read_memory()
        attempt = memory.running
        if attempt not in self.outstanding or attempt == self.long_attempt:
            return []
        if memory.running_since > before:
            return []
        self.long_attempt = attempt
        return [(AttemptId(attempt), memory.running_since)]

    def last_words(self) -> InterpreterEvents:
        """After its death: all that it had sent or was about to send."""
        chunks = [self._received]
        while True:
            try:
                chunk = self._socket.recv(RECEIVE_BYTES)
            except OSError:
                break
            if not chunk:
                break
            chunks.append(bytearray(chunk))
        self._received = bytearray(b"".join(chunks))
        unsent = self.read_memory().unsent
        try:
            events = self._news()
            events.finished.extend(self._results(unsent))
        except BrokenInterpreter:
            events = InterpreterEvents([], [], [], [], [], [])
        return events

    def close(self) -> None:
        for timer in (self.head_timer, self.look_timer):
            if timer is not None:
                timer.cancel()
        self._loop.remove_reader(self._socket)
        if self._writing:
            self._loop.remove_writer(self._socket)
        self._socket.close()
        self._theirs.close()
        os.close(self._memory)

    def _send(self, kind: int, content: Any) -> None:
        payload = marshal.dumps((kind, content))
        self._unsent += len(payload).to_bytes(LENGTH_BYTES, "little")
        self._unsent += payload
        if not self._writing:
            self._write()

    def _write(self) -> None:
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            sent = 0
        except OSError:  # it died: the helper's report of that is under way
            sent = len(self._unsent)
        del self._unsent[:sent]
        if self._unsent and not self._writing:
            self._writing = True
            self._loop.add_writer(self._socket, self._write)
        elif not self._unsent and self._writing:
            self._writing = False
            self._loop.remove_writer(self._socket)

    def _readable(self) -> None:
        try:
            data = self._socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:  # it died: as above
            self._loop.remove_reader(self._socket)
            return
        self._received += data
        try:
            events = self._news()
        except BrokenInterpreter:
            self._loop.remove_reader(self._socket)
            self.is_broken = True
            self._on_broken(self)
            return
        if any(events):
            if events.finished or events.returned or events.withdrawn:
                self._head_since = clock()
            self._on_events(self, events)

    def _news(self) -> InterpreterEvents:
        events = InterpreterEvents([], [], [], [], [], [])
        received = self._received
        start = 0
        while len(received) - start >= FRAME.size:
            length, kind = FRAME.unpack_from(received, start)
            end = start + FRAME.size + length
            if length > FRAME_BYTES_MAX or not RESULTS <= kind <= STANDING:
                raise BrokenInterpreter
            if end > len(received):
                break
            payload = bytes(received[start + FRAME.size : end])
            start = end
            try:
                self._take(kind, payload, events)
            except struct.error as error:
                raise BrokenInterpreter from error
        if start:
            del received[:start]
        return events

    def _take(self, kind: int, payload: bytes, events: InterpreterEvents) -> None:
        if kind == RESULTS:
            events.finished.extend(self._results(payload))
        elif kind == STARTED:
            attempt, since = STARTED_AT.unpack(payload)
            if attempt in self.outstanding and attempt != self.long_attempt:
                self.long_attempt = attempt
                events.started.append((AttemptId(attempt), self._believed(since)))
        elif kind == DOOMED:
            events.doomed.append(AttemptId(struct.unpack("<Q", payload)[0]))
        elif kind == STANDING:
            self._standing_since = self._standing_since or clock()
        elif kind == WRITTEN:
            attempt, stream, offset = TEXT.unpack_from(payload)
            if attempt in self.outstanding and stream in (1, 2) and offset <= SIZE_MAX:
                text = Text(AttemptId(attempt), stream, offset, payload[TEXT.size :])
                events.written.append(text)
        else:
            assert kind in (RETURNED, WITHDRAWN)
            ended = events.returned if kind == RETURNED else events.withdrawn
            for (attempt,) in struct.iter_unpack("<Q", payload):
                if self._let_go(attempt) is not None:
                    ended.append(AttemptId(attempt))

    def _results(self, payload: bytes) -> Iterator[Finished]:
        position = 0
        opened_at, now = self._opened_at, clock()
        while position < len(payload):
            (
                attempt,
                started_at,
                ended_at,
                how,
                exit_code,
                value_bytes,
                error_bytes,
                stdout_bytes,
                stderr_bytes,
                peak_memory,
            ) = RESULT.unpack_from(payload, position)
            position += RESULT.size
            value_end = position + value_bytes
            value = payload[position:value_end]
            position = value_end
            error = stdout = stderr = b""
            if error_bytes or stdout_bytes or stderr_bytes:
                error_end = position + error_bytes
                stdout_end = error_end + stdout_bytes
                error = payload[position:error_end]
                stdout = payload[error_end:stdout_end]
                position = stdout_end + stderr_bytes
                stderr = payload[stdout_end:position]
            if position > len(payload):
                raise BrokenInterpreter
            if not opened_at <= started_at <= ended_at <= now:  # see `_believed`
                started_at = ended_at = now
            told = bounded(error.decode("utf-8", "replace"), ERROR_CHARACTERS_MAX) if error else ""
            unreadable = objection_to(value) if value else ""
            if unreadable:
                how, value, told = FAILED, b"", bounded(unreadable, ERROR_CHARACTERS_MAX)
            if peak_memory > MEMORY_MAX:
                how, value, told = FAILED, b"", IMPOSSIBLE_MEMORY.format(peak_memory)
                peak_memory = 0
            # What has been told already, or never was its to do, is not told.
            run = self._let_go(attempt)
            if run is not None:
                left = ""
                if how == LEFT:
                    left = run.folder or f"{self.folder}/{OWN_FOLDER}{attempt}"
                yield Finished(
                    attempt,
                    "succeeded" if how in (SUCCEEDED, LEFT) else "failed",
                    value,
                    None if exit_code == NO_EXIT_CODE else exit_code,
                    told,
                    False,
                    stdout,
                    stderr,
                    started_at,
                    ended_at,
                    peak_memory=peak_memory,
                    left=left,
                )
