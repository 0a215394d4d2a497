# ruff: noqa: PTH100, PTH120
# pathlib would double the imports of this small program
"""The program of a warm interpreter: runs the calls of `python` tasks, one after another.

Started by its path, with the standard library only and few imports, so that it starts fast,
stays small, and shows the user's code a clean `sys.path`: the working folder, then the
environment. Two threads share the work:

    worker ══socket══▶ main thread: reads a batch, runs module:function
       ▲      ║                                              │
       │      ╚═ while a batch takes long ═▶ watcher         ▼
       ╚═══════════◀═ started, returned, ══════╧═◀═ results, in the memory until they are sent
                      withdrawn

* To wake a thread costs more than a quick call. So the main thread reads what it runs; the
  watcher looks every few milliseconds, and takes the reading over (`role`) from a main thread
  that is busy with one batch. It hands it back with the first batch after that one.
* A call is claimed by taking its attempt out of `waiting`, which only one thread can do: the
  main thread to run it, who reads to withdraw it or to give it back.
* Results wait to be sent together, but not long: see `Results`. They wait in memory that
  the worker can read after a crash, beside the attempt that runs; so a crash costs exactly
  the task that crashed, not those that ended just before it.
* The worker is trusted, so its frames are marshal, the cheapest to read. What the interpreter
  sends is made by user code as far as the worker knows: fixed records, checked there.

A value must be JSON in the strict sense: see `interpreter_json`; functions that came by value
bring what they like: see `pickled_calls`. Output of subprocesses is not
captured, only what goes through `sys.stdout` and `sys.stderr`.
"""

from __future__ import annotations

import _thread
import marshal
import mmap
import os
import select
import struct
import sys
from _queue import Empty, SimpleQueue

if not __package__:
    # Started by its path: its neighbours are found through a package of a name that no user
    # has, so that neither `sys.path` nor the names of the user's modules are touched.
    __package__ = "_mycel_interpreter"
    sys.modules[__package__] = type(sys)(__package__)
    sys.modules[__package__].__path__ = [os.path.dirname(os.path.abspath(__file__))]

from .interpreter_calls import BadFunction, WorkingFolder, describe, describe_exit, resolve
from .interpreter_json import Json
from .interpreter_output import CapturedOutput
from .interpreter_records import (
    DOOMED,
    FAILED,
    LEFT,
    LENGTH_BYTES,
    MEMORY_BYTES,
    NO_EXIT_CODE,
    RECEIVE_BYTES,
    RESULT,
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
from .interpreter_results import Results
from .interpreter_values import unpacked
from .live_output import LIVE_SECONDS

TYPE_CHECKING = False
"""As in `typing`, whose import a small program is spared."""
if TYPE_CHECKING:
    from collections.abc import Callable

    from .pickled_calls import PickledCalls

    Call = tuple[int, int, str, bytes, str]
    """attempt, number, task id, arguments as JSON, the name of a folder of its own or nothing"""
    Batch = tuple[str, str, list[Call], tuple[bytes, str] | None]
    """function, job id, calls; and, of a function that came by value, that and its code"""

FLUSH_SECONDS = 0.002
MEASURED_SECONDS = 0.05
"""The memory is looked at after calls that took longer."""
LOOKS_BEFORE_LONG = 5
"""So often the watcher looks at a call before it is a long one."""


def peak_memory() -> int:
    import resource  # a quick task never needs it

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


class Interpreter:
    def __init__(
        self,
        socket: int,
        memory: int,
        folder: str,
        output_max: int,
        value_max: int,
        long: float,
        cloudpickle: str,
    ) -> None:
        self._socket = socket
        self._memory = mmap.mmap(memory, MEMORY_BYTES)
        os.close(memory)
        self._results = Results(socket, self._memory)
        self._folder = WorkingFolder(folder)
        self._value_max = value_max
        self._long_seconds = long
        self._process_id = os.getpid()
        self._buffer = bytearray()
        self._role = _thread.allocate_lock()
        self._batches: SimpleQueue[Batch] = SimpleQueue()
        self._batches_run = 0
        self._wake_watcher: SimpleQueue[None] = SimpleQueue()
        self._watcher_sleeps = False
        self._waiting: dict[int, bool] = {}
        self._running = 0
        self._running_since = 0.0
        self._doomed = False
        self._functions: dict[str, Callable[..., object]] = {}
        self._json = Json()
        self._cloudpickle = cloudpickle
        self._pickled: PickledCalls | None = None
        self._stdout = CapturedOutput("stdout", output_max)
        self._stderr = CapturedOutput("stderr", output_max)

    def run(self) -> None:
        self._memory[0:4] = b"\1\0\0\0"
        self._results.send(STANDING, b"")  # what comes later, a call may have made up
        _thread.start_new_thread(self._watch_for_ever, ())
        while True:
            self._run_batch(*self._next_batch())

    # ── the main thread ──

    def _next_batch(self) -> Batch:
        batches = self._batches
        while batches.empty():
            if not self._role.acquire(blocking=False):
                return batches.get()  # the watcher reads, and gives the role up behind a batch
            try:
                # It may have done so just before we got the role.
                if batches.empty() and not self._receive():
                    os._exit(0)  # the worker is gone or has closed us
            finally:
                self._role.release()
        return batches.get()

    def _run_batch(
        self, function: str, job_id: str, calls: list[Call], pickled: tuple[bytes, str] | None
    ) -> None:
        results = self._results
        self._batches_run += 1
        if self._watcher_sleeps:
            self._watcher_sleeps = False
            self._wake_watcher.put(None)
        os.environ["MYCEL_JOB_ID"] = job_id
        number_before = 0
        now = clock()
        for attempt, number, task_id, arguments, folder in calls:
            # First say that it runs, then claim it: the other way round there would be a
            # moment in which a kill finds it neither waiting nor running.
            self._running_since = now
            self._running = attempt
            self._memory[8:24] = STARTED_AT.pack(attempt, now)
            if self._waiting.pop(attempt, None) is not None:
                os.environ["MYCEL_TASK_ID"] = task_id
                if number != number_before:
                    os.environ["MYCEL_ATTEMPT"] = str(number)
                    number_before = number
                record, now = self._run_call(function, attempt, arguments, now, folder, pickled)
                # Before its result is out, lest what the worker sends next be taken to
                # wait behind it. In the memory it stays: there results count first.
                self._running = 0
                results.add(record)
                if now - results.flushed_at > FLUSH_SECONDS:
                    results.flush(now)
        self._running = 0
        self._memory[8:16] = b"\0\0\0\0\0\0\0\0"
        # Even with more batches at hand: results that wait could be what lets the worker
        # send the next one.
        results.flush(now)

    def _run_call(
        self,
        name: str,
        attempt: int,
        arguments: bytes,
        started_at: float,
        folder: str,
        pickled: tuple[bytes, str] | None,
    ) -> tuple[bytes, float]:
        value = error = b""
        how = SUCCEEDED
        exit_code = NO_EXIT_CODE
        try:
            if folder:
                self._folder.enter(folder)
            if pickled is not None:
                value, is_left = self._pickled_calls().run(*pickled, arguments, attempt)
                how = LEFT if is_left else SUCCEEDED
            else:
                value = self._called(name, arguments, folder)
        except SystemExit as end:
            exit_code, text = describe_exit(name, end)
            error = text.encode("utf-8", "backslashreplace")
        except BaseException as failure:  # noqa: BLE001 - the edge that owns the user's code
            error = describe(failure).encode("utf-8", "backslashreplace")
            if pickled is not None and self._pickled is not None:
                value = self._pickled.raised(failure)
        if os.getpid() != self._process_id:
            os._exit(0)  # a fork inside the task came back out of it: it must not go on
        self._folder.tidy()
        ended_at = clock()
        stdout = self._stdout.take()
        stderr = self._stderr.take()
        header = RESULT.pack(
            attempt,
            started_at,
            ended_at,
            FAILED if error else how,
            exit_code,
            len(value),
            len(error),
            len(stdout),
            len(stderr),
            0 if ended_at - started_at < MEASURED_SECONDS else peak_memory(),
        )
        return header + value + error + stdout + stderr, ended_at

    def _pickled_calls(self) -> PickledCalls:
        if self._pickled is None:
            from .pickled_calls import PickledCalls

            self._pickled = PickledCalls(self._folder.path, self._cloudpickle)
        return self._pickled

    def _called(self, name: str, arguments: bytes, folder: str) -> bytes:
        function = self._functions.get(name)
        if folder:
            function = resolve(name)  # its module may be among its files
        elif function is None:
            function = self._functions[name] = resolve(name)
        result = self._call(function, arguments)
        return b"null" if result is None else self._encoded(name, result)

    def _call(self, function: Callable[..., object], arguments: bytes) -> object:
        if not arguments:
            return function()
        given = self._json.decode(arguments)
        if type(given) is list:
            return function(*given)
        found = unpacked(given)
        if found is None:
            raise BadFunction(f"arguments must be a JSON list or object, not {arguments[:80]!r}")
        return function(*found[0], **found[1])

    def _encoded(self, name: str, result: object) -> bytes:
        try:
            value = self._json.encode(result)
        except (TypeError, ValueError, RecursionError) as error:
            raise BadFunction(
                f"the result of {name!r} is not JSON: {error}; "
                "return numbers, text, lists, dictionaries, true, false or nothing, or submit the "
                "function itself instead of its name"
            ) from None
        if len(value) > self._value_max:
            raise BadFunction(
                f"the result of {name!r} has {len(value)} bytes as JSON, more than the limit "
                f"of {self._value_max}: write it to a file, and return where it is"
            )
        return value

    # ── the watcher ──

    def _watch_for_ever(self) -> None:
        try:
            while True:
                self._await_long_batch()
                if self._role.acquire(blocking=False):
                    self._read_until_handed_back()
                    self._role.release()
        finally:
            # The worker is gone or has closed us: whatever runs, nobody waits for it.
            os._exit(0)

    def _await_long_batch(self) -> None:
        """Returns when the main thread has been busy with one batch between two looks. Sleeps
        as long as it has nothing to do: an idle interpreter costs nothing."""
        look_seconds = self._long_seconds / LOOKS_BEFORE_LONG
        batches_run = -1
        while True:
            if batches_run == self._batches_run:
                if self._waiting or self._running:
                    return
                self._watcher_sleeps = True
                # It may have begun a batch before it could see that.
                if batches_run == self._batches_run:
                    self._wake_watcher.get()
                self._watcher_sleeps = False
            batches_run = self._batches_run
            try:  # noqa: SIM105 - contextlib is one import more
                self._wake_watcher.get(timeout=look_seconds)
            except Empty:
                pass

    def _read_until_handed_back(self) -> None:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        taken_over_in = self._batches_run
        reported = 0
        while True:
            # In this order: the main thread says what runs before it claims it, so that
            # whoever finds nothing waiting sees what was claimed last.
            nothing_waits = not self._waiting
            running = self._running
            if nothing_waits and not running:
                wait = None
            elif running == reported != 0:
                wait = LIVE_SECONDS * 1000
            else:
                wait = max(self._running_since + self._long_seconds - clock(), 0.001) * 1000
            if poll.poll(wait):
                moved_on = not self._running or self._batches_run != taken_over_in
                if not self._receive():
                    os._exit(0)
                if moved_on and not self._batches.empty():
                    return  # to the main thread, which takes the batch and then reads itself
            running = self._running
            if running and running != reported and self._is_long(running):
                reported = running
                started = STARTED_AT.pack(running, self._running_since)
                self._results.send(STARTED, started)
                self._stdout.go_live()
                self._stderr.go_live()
            if running and running == reported:
                self._tell_output(running)
            if self._doomed or (running and running == reported):
                self._give_back()

    def _tell_output(self, running: int) -> None:
        for stream, output in enumerate((self._stdout, self._stderr), 1):
            offset, data = output.take_live()
            if data:
                self._results.send(WRITTEN, TEXT.pack(running, stream, offset) + data)

    def _is_long(self, running: int) -> bool:
        since = self._running_since
        return clock() - since >= self._long_seconds and self._running == running

    # ── whoever has the role ──

    def _receive(self) -> bool:
        """Waits for data and deals with the frames in it; False at the end of the stream."""
        data = os.read(self._socket, RECEIVE_BYTES)
        self._buffer += data
        self._take_frames(self._buffer)
        return bool(data)

    def _take_frames(self, buffer: bytearray) -> None:
        while len(buffer) >= LENGTH_BYTES:
            end = LENGTH_BYTES + int.from_bytes(buffer[:LENGTH_BYTES], "little")
            if len(buffer) < end:
                return
            kind, content = marshal.loads(buffer[LENGTH_BYTES:end])  # noqa: S302 - the worker's
            del buffer[:end]
            if kind == RUN_BATCH:
                waiting = self._waiting
                for call in content[2]:
                    waiting[call[0]] = True
                self._batches.put(content)
            elif kind == WITHDRAW:
                self._withdraw(content)
            else:
                self._doom(content)

    def _withdraw(self, attempts: list[int]) -> None:
        withdrawn = [a for a in attempts if self._waiting.pop(a, None) is not None]
        if withdrawn:
            self._results.send(WITHDRAWN, struct.pack(f"<{len(withdrawn)}Q", *withdrawn))

    def _doom(self, attempt: int) -> None:
        """Asks to be killed with this attempt, once nothing else can start any more."""
        if self._waiting.pop(attempt, None) is not None:
            self._results.send(WITHDRAWN, struct.pack("<Q", attempt))
            return
        if self._running != attempt:
            return
        self._give_back()
        if self._running == attempt:
            self._doomed = True
            self._results.send(DOOMED, struct.pack("<Q", attempt))

    def _give_back(self) -> None:
        returned = []
        while self._waiting:
            try:
                returned.append(self._waiting.popitem()[0])
            except KeyError:  # the main thread was faster
                break
        if returned:
            returned.reverse()
            self._results.send(RETURNED, struct.pack(f"<{len(returned)}Q", *returned))


def main() -> None:
    socket, memory = int(sys.argv[1]), int(sys.argv[2])
    folder, output_max, value_max, long_seconds, cloudpickle = sys.argv[3:8]
    os.set_inheritable(socket, False)
    sys.argv[:] = [""]
    sys.path.insert(0, folder)
    Interpreter(
        socket,
        memory,
        folder,
        int(output_max),
        int(value_max),
        float(long_seconds),
        cloudpickle,
    ).run()


if __name__ == "__main__":
    main()
