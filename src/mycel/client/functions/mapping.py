"""`client.map`: one call for each element, its values in order, as they come.

A thread feeds a job of its own, no further ahead of whoever reads than `AHEAD_TASKS_MAX`; the
reader takes results from the job's stream. Closed early, the rest is cancelled.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from mycel.client.errors import ClientError
from mycel.client.responses import Result

from . import values
from .futures import cancelled, failure
from .options import Options
from .persistence import lines, persistently
from .submitter import BATCH_BYTES_MAX, BATCH_TASKS_MAX, Submitter, new_job_id, value_of

AHEAD_TASKS_MAX: Final = 200_000
AHEAD_BYTES_MAX: Final = 256 << 20
FIRST_TASKS: Final = 64
"""The first batch is small, so that the workers begin while the rest is read."""


class Mapping(Iterator[Any]):
    """The values of a map, in the order of its elements. The first failure is raised in its
    place."""

    def __init__(
        self, submitter: Submitter, function: Any, options: Options, calls: Iterable[Any]
    ) -> None:
        """`calls` are positional arguments as tuples; with a function's name, its arguments as
        JSON has them."""
        self._submitter = submitter
        self._function = function
        self._options = options
        self._calls = iter(calls)
        self._job_id = new_job_id()
        self._changed = threading.Condition()
        self._sent = 0
        self._sizes: list[int] = []
        self._bytes_ahead = 0
        self._is_complete = False
        self._is_open = False
        self._closed = False
        self._error: BaseException | None = None
        self._early: dict[int, Result] = {}
        self._next = 0
        self._lines: Iterator[Result] | None = None
        self._feeder = threading.Thread(target=self._feed, name="mycel-map", daemon=True)
        self._feeder.start()

    @property
    def done(self) -> int:
        """How many values have been read."""
        return self._next

    @property
    def submitted(self) -> int:
        return self._sent

    @property
    def job_id(self) -> str:
        return self._job_id

    def __iter__(self) -> Mapping:
        return self

    def __next__(self) -> Any:
        try:
            return self._value(self._result())
        except StopIteration:
            raise
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Cancels what has not ended. Again is fine."""
        with self._changed:
            already, self._closed = self._closed, True
            self._changed.notify_all()
        over = self._is_complete and self._next == self._sent
        if not already and not over:
            self._feeder.join()
            if self._is_open:
                with contextlib.suppress(ClientError):
                    self._submitter.client.cancel(self._job_id)

    def __enter__(self) -> Mapping:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()

    def __repr__(self) -> str:
        total = str(self._sent) if self._is_complete else f"{self._sent}+"
        return f"<map of {total} calls, {self._next} values read, job {self._job_id}>"

    # The reader

    def _result(self) -> Result:
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_open or self._is_complete or self._error or self._closed
            )
            if self._error is not None and self._next >= self._sent:
                raise self._error
            if self._closed or (self._is_complete and self._next >= self._sent):
                raise StopIteration
        if self._lines is None:
            self._lines = lines(self._submitter.client, self._job_id)
        while self._next not in self._early:
            line = next(self._lines, None)
            if line is None:
                if self._error is not None:
                    raise self._error
                raise StopIteration
            self._early[line.index] = line
        with self._changed:
            found = self._early.pop(self._next)
            self._bytes_ahead -= self._sizes[self._next]
            self._next += 1
            self._changed.notify_all()
        return found

    def _value(self, result: Result) -> Any:
        task_id = f"{self._job_id}.{result.index}"
        if result.state == "succeeded":
            return self._submitter.loaded(task_id, value_of(result))
        if result.state == "cancelled":
            raise cancelled(task_id)
        raise failure(task_id, result.error or "", result.exit_code, result.value)

    # The feeder

    def _feed(self) -> None:
        try:
            for number, batch in enumerate(self._batches()):
                self._send(number, batch)
                if self._closed:
                    break
        except BaseException as error:  # noqa: BLE001 - the edge of this thread: the reader is told
            self._error = error
        try:
            if self._is_open:
                close = self._submitter.client.close_job
                persistently(lambda: close(self._job_id))
        except ClientError as error:
            self._error = self._error or error
        with self._changed:
            self._is_complete = True
            self._changed.notify_all()

    def _batches(self) -> Iterator[list[bytes]]:
        batch: list[bytes] = []
        size, tasks_max = 0, FIRST_TASKS
        for call in self._calls:
            item = self._encoded(call)
            with self._changed:
                self._changed.wait_for(self._has_room)
                if self._closed:
                    return
                self._sizes.append(len(item))
                self._bytes_ahead += len(item)
            batch.append(item)
            size += len(item)
            if len(batch) >= tasks_max or size >= BATCH_BYTES_MAX:
                yield batch
                batch, size = [], 0
                tasks_max = min(4 * tasks_max, BATCH_TASKS_MAX)
        if batch:
            yield batch

    def _has_room(self) -> bool:
        ahead = len(self._sizes) - self._next
        return self._closed or (ahead < AHEAD_TASKS_MAX and self._bytes_ahead < AHEAD_BYTES_MAX)

    def _encoded(self, call: Any) -> bytes:
        is_name = isinstance(self._function, str)
        if not self._sizes:
            prepare = self._submitter.bodies.prepared
            positional = () if is_name else call
            encoded, self._task, self._code, _ = prepare(
                self._function, self._options, positional, {}
            )
            if not is_name:
                return encoded
        if is_name:
            return msgspec.json.encode(values.json_arguments(call))
        bodies = self._submitter.bodies
        return bodies.uploaded(bodies.arguments(self._function, call, {}))

    def _send(self, number: int, batch: list[bytes]) -> None:
        client, submitter = self._submitter.client, self._submitter
        arguments = msgspec.Raw(b"[" + b",".join(batch) + b"]")
        if number == 0:
            submitter.bodies.upload_code(self._code)
            body = {
                "id": self._job_id,
                "name": self._options.name,
                "task": self._task,
                "arguments": arguments,
                "closed": False,
            }
            self._first = persistently(lambda: client.submit_job_body(body)).batches
        else:
            part = {"batch": self._first + number - 1, "arguments": arguments}
            persistently(lambda: client.append(self._job_id, part))
        with self._changed:
            self._is_open = True
            self._sent += len(batch)
            self._changed.notify_all()
