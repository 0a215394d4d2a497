"""What `client.submit` gives: the result of a call that is under way."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from mycel.client.errors import TaskCancelled, TaskFailed

from .values import PICKLE_FILE, RAISED, Pickled

if TYPE_CHECKING:
    from .submitter import Submitter

Value = TypeVar("Value")
_GONE: Final = object()


class RemoteTraceback(Exception):
    """The cause of an exception that was raised on a worker: its traceback there."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n\n{self.text}"


class Future(concurrent.futures.Future[Value], Generic[Value]):
    """As in `concurrent.futures`, and it can be awaited. Results stay pickled until somebody
    asks for them."""

    def __init__(self, submitter: Submitter, name: str) -> None:
        super().__init__()
        self._submitter = submitter
        self._name = name
        self._task_id = ""
        self._value_lock = threading.Lock()
        self._is_loaded = False
        self._travelling: Any = _GONE

    @property
    def task_id(self) -> str:
        """Empty until it has been sent."""
        return self._task_id

    def result(self, timeout: float | None = None) -> Value:
        """The value; raises what the function raised, with the traceback of the worker as its
        cause, or `TaskFailed`."""
        kept: Any = super().result(timeout)
        with self._value_lock:
            if not self._is_loaded:
                kept = self._result = self._submitter.loaded(self._task_id, kept)
                self._is_loaded = True
                if isinstance(self._travelling, Pickled) and PICKLE_FILE not in self._travelling:
                    self._travelling = _GONE  # once is enough in memory
            return self._result  # type: ignore[return-value]

    def cancel(self) -> bool:
        """Also while it runs. False if it has ended already."""
        return self.cancelled() or (not self.done() and self._submitter.cancel(self))

    def __await__(self) -> Generator[Any, None, Value]:
        return asyncio.wrap_future(self).__await__()

    def __repr__(self) -> str:
        state = "cancelled" if self.cancelled() else "done" if self.done() else "pending"
        return f"<Future {self._name} {self._task_id or 'not sent yet'} {state}>"

    def _repr_html_(self) -> str:
        import html

        return f"<code>{html.escape(repr(self))}</code>"

    def __reduce__(self) -> Any:
        raise TypeError(
            "a future is an argument of its own: take it out of whatever contains it, or give "
            "its result()"
        )

    # What the submitter calls

    def travelling(self) -> Any:
        """The value as another call gets it, once it has ended: a `Pickled` one, if it still is
        here. Raises its failure."""
        if self.exception() is not None or self._travelling is _GONE:
            return self.result()
        return self._travelling

    def _end_with(self, kept: Any, *, is_long: bool) -> None:
        if not is_long:
            self._travelling = kept
        self.set_result(kept)

    def _sent_as(self, task_id: str) -> None:
        self._task_id = task_id

    def _mark_cancelled(self) -> None:
        """By whomever. Again is fine."""
        with self._value_lock:
            if not self.done() and super().cancel():
                self.set_running_or_notify_cancel()


def failure(task_id: str, error: str, exit_code: int | None, value: object) -> BaseException:
    """The exception that a call raised, if it could be pickled."""
    told = TaskFailed(task_id, error, exit_code)
    if not isinstance(value, Pickled) or RAISED not in value:
        return told
    try:
        raised = value.load()
    except Exception:  # noqa: BLE001 - a class that is not here: the text says it all
        return told
    if not isinstance(raised, Exception):
        return told
    raised.__cause__ = RemoteTraceback(f"task {task_id}: {error}")
    return raised


def cancelled(task_id: str) -> BaseException:
    return TaskCancelled(task_id)


def gather(*futures: Future[Any] | Iterable[Future[Any]]) -> list[Any]:
    """All values, in order. Raises the first failure in that order."""
    wanted: list[Future[Any]] = []
    for one in futures:
        wanted += [one] if isinstance(one, Future) else one
    return [one.result() for one in wanted]


def as_completed(
    futures: Iterable[Future[Value]], timeout: float | None = None
) -> Iterator[Future[Value]]:
    """Each as it ends, whatever its end."""
    for one in concurrent.futures.as_completed(futures, timeout):
        assert isinstance(one, Future)
        yield one


def wait(
    futures: Iterable[Future[Value]], n: int | None = None, timeout: float | None = None
) -> tuple[set[Future[Value]], set[Future[Value]]]:
    """Until `n` of them, or all, have ended: those that have, and the others."""
    waiting = set(futures)
    wanted = len(waiting) if n is None else min(n, len(waiting))
    done: set[Future[Value]] = set()
    try:
        for one in as_completed(waiting, timeout):
            done.add(one)
            if len(done) >= wanted:
                break
    except TimeoutError:
        pass
    done |= {one for one in waiting if one.done()}
    return done, waiting - done
