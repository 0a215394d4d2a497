"""Calls on their way: submitted from any thread, sent in batches, their results followed.

    submit ─▶ pending ─▶ the sender thread ─▶ batches of an open job ─▶ its follower ─▶ futures

All calls of one function with the same options share a job, so a thousand submissions are a few
requests. A job is closed when its calls have ended and no other has come for a second, or when
nothing was submitted for half a minute: so a client that dies leaves no open job for longer, except
the last one. Whatever breaks is tried again: batches are numbered, and the stream of results goes
on where it broke.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping
from concurrent.futures import InvalidStateError
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mycel.client.errors import ClientError, Conflict, ConnectionLost
from mycel.client.responses import Result, Task
from mycel.core.identifiers import ulid

from . import dependencies
from .call_bodies import CallBodies, Key, Prepared
from .futures import Future, cancelled, failure
from .options import Options, parted
from .persistence import lines, persistently, until
from .values import Pickled

if TYPE_CHECKING:
    from mycel.client.client import Client

BATCH_TASKS_MAX: Final = 10_000
BATCH_BYTES_MAX: Final = 2_000_000
JOB_TASKS_MAX: Final = 1_000_000
QUIET_SECONDS: Final = 1.0
OPEN_SECONDS_MAX: Final = 30.0
RUN_SECONDS: Final = 30.0
"""One request waits so long for a call; longer waits are several."""
LEAVE_SECONDS: Final = 30.0
"""How long the end of the program waits for what has not been sent."""


class Stream:
    """The calls of one function, and the job that they go to."""

    def __init__(self, task: Mapping[str, Any], code: bytes, job_id: str = "") -> None:
        """With an id of its own it is for one call, which may have been submitted before."""
        self.task = task
        self.code = code
        self.is_single = bool(job_id)
        self.pending: deque[tuple[bytes, Future[Any]]] = deque()
        self.sent: dict[int, Future[Any]] = {}
        """By index, until the result is here."""
        self.job_id = job_id
        self.is_open = False
        self.count = 0
        self.batches = 0
        self.used_at = time.monotonic()

    def take(self) -> list[tuple[bytes, Future[Any]]]:
        taken: list[tuple[bytes, Future[Any]]] = []
        size = 0
        while self.pending and len(taken) < BATCH_TASKS_MAX and size < BATCH_BYTES_MAX:
            taken.append(self.pending.popleft())
            size += len(taken[-1][0])
        return taken


class Submitter:
    """Of one client. Its threads start with the first call and end with `close`."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.bodies = CallBodies(client)
        self._streams: dict[Key, Stream] = {}
        self._retiring: list[Stream] = []
        """Sent to no more, and to be closed."""
        self._changed = threading.Condition()
        self._sender: threading.Thread | None = None
        self._closing = False
        self._held: set[Future[Any]] = set()
        """Calls that wait for others."""
        leaver = weakref.WeakMethod(self.close)
        atexit.register(lambda: (leaver() or (lambda: None))())

    # From any thread

    def submit(
        self, function: Any, positional: tuple[Any, ...], named: Mapping[str, Any]
    ) -> Future[Any]:
        bare, options = parted(function)
        future: Future[Any] = Future(self, _shown(bare))
        awaited = dependencies.futures_in(positional, named)
        if not awaited:
            self._enqueue(future, options, self.bodies.prepared(bare, options, positional, named))
            return future

        def go_on() -> None:
            try:
                if not future.done():
                    self._enqueue(
                        future, options, self.bodies.prepared(bare, options, positional, named)
                    )
            except BaseException as error:  # noqa: BLE001 - the edge that owns it: it is told
                _end(future, error)

        self._held.add(future)
        future.add_done_callback(self._held.discard)
        dependencies.when_all_have_ended(awaited, go_on)
        return future

    def _enqueue(self, future: Future[Any], options: Options, prepared: Prepared) -> None:
        encoded, task, code, key = prepared
        with self._changed:
            if self._closing:
                raise RuntimeError("the client is closed")
            self._held.discard(future)
            if options.key:
                stream = Stream(task, code, self.client.id_of_key(options.key))
                self._retiring.append(stream)
            else:
                stream = self._stream_of(key, task, code)
            stream.pending.append((encoded, future))
            stream.used_at = time.monotonic()
            self._wake()

    def _stream_of(self, key: Key, task: Mapping[str, Any], code: bytes) -> Stream:
        stream = self._streams.get(key)
        if stream is None or stream.count + len(stream.pending) >= JOB_TASKS_MAX:
            if stream is not None:
                self._retiring.append(stream)
            stream = self._streams[key] = Stream(task, code)
        return stream

    def run(self, function: Any, positional: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        """In one exchange with the scheduler, without a thread: the shortest way for one call."""
        bare, options = parted(function)
        if options.key or dependencies.futures_in(positional, named):
            return self.submit(function, positional, named).result()
        encoded, fields, code, _ = self.bodies.prepared(bare, options, positional, named)
        self.bodies.upload_code(code)
        body = {**fields, "id": new_job_id(), "arguments": msgspec.Raw(encoded)}
        ask = self.client.submit_task_body
        task: Task = persistently(lambda: ask(body, RUN_SECONDS))
        if not task.is_over:
            begun = task.id
            task = persistently(lambda: self.client.wait(begun))
        result = task.result
        value = None if result is None else self.client.received(result.json)
        if task.state == "succeeded":
            return self.loaded(task.id, _Long() if result is not None and result.size else value)
        if task.state == "cancelled":
            raise cancelled(task.id)
        raise failure(task.id, task.error or "", task.exit_code, value)

    def cancel(self, future: Future[Any]) -> bool:
        if self._is_taken_back(future):
            future._mark_cancelled()
            return True
        if not future.task_id:  # it is being sent
            until(lambda: bool(future.task_id) or future.done(), LEAVE_SECONDS)
        try:
            self.client.cancel(future.task_id)
        except ClientError:
            return future.cancelled()  # it has ended
        future._mark_cancelled()
        return True

    def _is_taken_back(self, future: Future[Any]) -> bool:
        """Before it was sent."""
        with self._changed:
            if future in self._held:
                self._held.discard(future)
                return True
            for stream in (*self._streams.values(), *self._retiring):
                for place, (_, one) in enumerate(stream.pending):
                    if one is future:
                        del stream.pending[place]
                        return True
        return False

    def close(self) -> None:
        """Sends what waits, and closes the jobs. What has been sent goes on."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            sender = self._sender
        if sender is not None and sender is not threading.current_thread():
            sender.join(LEAVE_SECONDS)

    def loaded(self, task_id: str, value: Any) -> Any:
        """A result as its function returned it. It is unpickled here: one has sent the function
        oneself, and trusts the workers that it was sent to."""
        if isinstance(value, _Long):
            value = persistently(lambda: self.client.long_value(task_id))
        if isinstance(value, Pickled):
            data = persistently(value.data)
            return _unpickled(data)
        return value

    # The sender

    def _wake(self) -> None:
        if self._sender is None:
            self._sender = threading.Thread(
                target=self._send_for_ever, name="mycel-sender", daemon=True
            )
            self._sender.start()
        self._changed.notify_all()

    def _send_for_ever(self) -> None:
        while True:
            with self._changed:
                while not (due := self._due()):
                    if self._closing and not self._streams and not self._retiring:
                        return
                    self._changed.wait(QUIET_SECONDS if self._streams else None)
            for stream, taken in due:
                if taken:
                    self._send(stream, taken)
                else:
                    self._close_job(stream)

    def _due(self) -> list[tuple[Stream, list[tuple[bytes, Future[Any]]]]]:
        """What there is to send; nothing to send is a job to close."""
        found: list[tuple[Stream, list[tuple[bytes, Future[Any]]]]] = []
        now = time.monotonic()
        for key, stream in list(self._streams.items()):
            if stream.pending:
                found.append((stream, self._taken(stream)))
                continue
            quiet = QUIET_SECONDS if not stream.sent else OPEN_SECONDS_MAX
            if self._closing or now - stream.used_at > quiet:
                del self._streams[key]
                found.append((stream, []))
        for stream in self._retiring:
            found.append((stream, self._taken(stream)))
            if not stream.pending:
                found.append((stream, []))
        self._retiring = [stream for stream in self._retiring if stream.pending]
        return found

    def _taken(self, stream: Stream) -> list[tuple[bytes, Future[Any]]]:
        taken = stream.take()
        for place, (_, future) in enumerate(taken):
            stream.sent[stream.count + place] = future
        return taken

    def _send(self, stream: Stream, taken: list[tuple[bytes, Future[Any]]]) -> None:
        arguments = msgspec.Raw(b"[" + b",".join(one for one, _ in taken) + b"]")
        first, stream.count = stream.count, stream.count + len(taken)
        try:
            if stream.is_open:
                batch = {"batch": stream.batches, "arguments": arguments}
                persistently(lambda: self.client.append(stream.job_id, batch))
                stream.batches += 1
            else:
                self._open(stream, arguments)
        except Exception as error:  # noqa: BLE001 - the edge that owns these calls: they are told
            for place in range(first, stream.count):
                lost = stream.sent.pop(place, None)
                if lost is not None:
                    _end(lost, error)
            with self._changed:
                self._streams = {k: one for k, one in self._streams.items() if one is not stream}
                for _, future in stream.pending:
                    _end(future, error)
                stream.pending.clear()
            if stream.is_open:
                self._close_job(stream)
            return
        for place, (_, future) in enumerate(taken, first):
            future._sent_as(f"{stream.job_id}.{place}")

    def _open(self, stream: Stream, arguments: msgspec.Raw) -> None:
        self.bodies.upload_code(stream.code)
        stream.job_id = stream.job_id or new_job_id()
        body = {
            "id": stream.job_id,
            "name": stream.task.get("name") or _name_of(stream.task),
            "task": stream.task,
            "arguments": arguments,
            "closed": False,
        }
        if stream.is_single:
            body["closed"] = True
            with contextlib.suppress(Conflict):  # the call came before, pickled in another way
                persistently(lambda: self.client.submit_job_body(body))
        else:
            job = persistently(lambda: self.client.submit_job_body(body))
            stream.is_open, stream.batches = True, job.batches
        follower = threading.Thread(
            target=self._follow, args=(stream,), name="mycel-follower", daemon=True
        )
        follower.start()

    def _close_job(self, stream: Stream) -> None:
        if stream.is_open:
            stream.is_open = False
            with contextlib.suppress(ClientError):  # it was cancelled, perhaps
                persistently(lambda: self.client.close_job(stream.job_id))

    # The followers, one for each job

    def _follow(self, stream: Stream) -> None:
        try:
            for result in lines(self.client, stream.job_id):
                future = stream.sent.pop(result.index, None)
                if future is not None:
                    settle(future, f"{stream.job_id}.{result.index}", result)
                if not stream.sent:
                    stream.used_at = time.monotonic()
            error: Exception = ConnectionLost(f"job {stream.job_id} ended without this result")
        except Exception as failed:  # noqa: BLE001 - the edge that owns the futures: they are told
            error = failed
        with self._changed:
            unfinished = list(stream.sent.values())
            stream.sent.clear()
            for key, one in list(self._streams.items()):
                if one is stream:  # somebody has cancelled or closed the job: go on with another
                    del self._streams[key]
                    if stream.pending:
                        fresh = self._streams[key] = Stream(stream.task, stream.code)
                        fresh.pending, stream.pending = stream.pending, deque()
                        self._changed.notify_all()
        for future in unfinished:
            _end(future, error)


class _Long:
    """Stands for a value that is too long for a line."""


def settle(future: Future[Any], task_id: str, result: Result) -> None:
    future._sent_as(task_id)
    if result.state == "cancelled":
        future._mark_cancelled()
        return
    with contextlib.suppress(InvalidStateError):  # it was cancelled
        if result.state == "succeeded":
            future._end_with(value_of(result), is_long=bool(result.size))
        else:
            error = failure(task_id, result.error or "", result.exit_code, result.value)
            future.set_exception(error)


def _end(future: Future[Any], error: BaseException) -> None:
    with contextlib.suppress(InvalidStateError):  # likewise
        future.set_exception(error)


def value_of(result: Result) -> Any:
    """As `Submitter.loaded` takes it."""
    return _Long() if result.size else result.value


def new_job_id() -> str:
    return ulid(time.time_ns() // 1_000_000, os.urandom(10))


def _unpickled(data: bytes) -> Any:
    import pickle

    return pickle.loads(data)  # noqa: S301 - see `Submitter.loaded`


def _shown(function: Any) -> str:
    return function if isinstance(function, str) else getattr(function, "__qualname__", "call")


def _name_of(task: Mapping[str, Any]) -> str:
    call = task.get("call")
    return str(call["name"] if call else task["python"])[:256]
