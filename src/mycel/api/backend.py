"""What the API needs of the scheduler that it stands in front of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from mycel.core.events import Event
from mycel.core.identifiers import JobId, RequestId
from mycel.store.interface import Reader
from mycel.telemetry.figures import SchedulerFigures

from .audience import Listener

Value = TypeVar("Value")


class Backend(Protocol):
    """The scheduler role, as the API sees it. Everything runs on the loop's thread."""

    @property
    def name(self) -> str:
        """For people: the node's name."""
        ...

    @property
    def peer(self) -> str: ...

    async def ask(self, make: Callable[[RequestId], Event]) -> object:
        """Puts a client's event to the machine and awaits its reply.

        Raises the reply if it is a `core.errors.Refusal`. When the caller is cancelled (the
        client hung up, a wait ran out), the machine is told to forget the request. Raises
        `Stopping` when the scheduler is going down.
        """
        ...

    def put(self, make: Callable[[RequestId], Event], reply: Callable[[object], None]) -> RequestId:
        """Like `ask`, for who does not want to wait in a coroutine: `reply` is called once,
        with an exception if that is the answer, and must not raise. Raises `Stopping`."""
        ...

    def forget(self, request: RequestId) -> None:
        """Nobody waits for this reply any more."""
        ...

    async def read(self, look: Callable[[Reader], Value]) -> Value:
        """Runs `look` on the store's reader, in a thread."""
        ...

    def following(self, job: JobId) -> AbstractContextManager[asyncio.Event]:
        """An event that is set whenever tasks of this job have ended, and when the scheduler
        stops. Clear it before the read that it guards: no commit is missed then."""
        ...

    def listening(self) -> AbstractContextManager[Listener]:
        """For as long as somebody wants to hear what happens; raises `Crowded` if too many do."""
        ...

    def figures(self) -> SchedulerFigures:
        """What the metrics show."""
        ...

    def prometheus(self) -> bytes:
        """The metrics, in Prometheus' text format."""
        ...

    @property
    def ready(self) -> bool: ...


class Stopping(Exception):
    """The scheduler is going down: the client may try again in a moment."""
