"""What the API needs of the scheduler that it stands in front of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from mycel.core.events import Event, Submit
from mycel.core.federation.registration import ClusterRecord, Registered
from mycel.core.identifiers import JobId, RequestId
from mycel.core.rights import Rights
from mycel.store.interface import Reader
from mycel.store.live_logs import Stretch
from mycel.telemetry.counters import SchedulerFigures

from .event_listeners import Listener
from .output_followers import OutputListener

if TYPE_CHECKING:
    from mycel.api.routes.network_routes import Network
    from mycel.api.submission.model_owners import ModelNames
    from mycel.blobs.scheduler_blobs import SchedulerBlobs

Value = TypeVar("Value")


class Clusters(Protocol):
    """What is known of clusters; `federation.registry` says more. Its methods read files, so they
    are called in threads, and they raise FederationError."""

    def register(
        self,
        name: str,
        graph: bytes,
        *,
        state: Mapping[str, Any] | None = None,
        group: str = "",
        token_seconds: float = 0.0,
        silent_after_seconds: float = 0.0,
    ) -> Registered: ...

    def records(self) -> list[ClusterRecord]: ...

    def record(self, name: str) -> ClusterRecord: ...

    def delete(self, name: str) -> None: ...

    def set_state(self, name: str, change: Mapping[str, Any]) -> ClusterRecord: ...

    def replace_graph(self, name: str, graph: bytes) -> ClusterRecord: ...

    def add_subsystem(self, name: str, subsystem: str, data: bytes) -> ClusterRecord: ...

    def remove_subsystem(self, name: str, subsystem: str) -> ClusterRecord: ...

    def rotate_secret(self, name: str) -> str: ...

    def problem_with_registration(self, secret: str) -> str: ...

    def problem_with_secret(self, name: str, secret: str) -> str: ...


class Backend(Protocol):
    """The scheduler role, as the API sees it. Everything runs on the loop's thread."""

    @property
    def name(self) -> str:
        """For people: the node's name."""
        ...

    @property
    def peer(self) -> str: ...

    @property
    def network(self) -> Network:
        """The scheduler's node. Raises `Stopping`."""
        ...

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

    @property
    def names(self) -> ModelNames:
        """Whose models names mean."""
        ...

    def streaming(self, job: JobId) -> AbstractContextManager[Pieces]:
        """What the first task of a job brings forth while it runs; to be entered before the
        job is submitted, so that nothing is missed."""
        ...

    def output(self, job: JobId, index: int, attempt: int | None = None) -> list[Stretch]:
        """What a task has written so far, or had when its worker was lost; of the latest
        attempt, if none is named. Nothing of tasks that were quick or have ended in order."""
        ...

    def listening_to_output(
        self, job: JobId, index: int | None
    ) -> AbstractContextManager[OutputListener]:
        """What a task, or all tasks of a job, write from now on. Raises `Crowded`."""
        ...

    def tasks_with_output(self, job: JobId) -> list[int]:
        """Those of which `output` has something."""
        ...

    def figures(self) -> SchedulerFigures:
        """What the metrics show."""
        ...

    def user_of(self, job: str) -> str | None:
        """Whose job it is; None if there is none."""
        ...

    def keep_credential(self, token: bytes, rights: Rights) -> None:
        """Before a user's first job: workers will want to see by what right it runs."""
        ...

    def revoke(self, records: list[bytes]) -> int:
        """Takes in and spreads what the owner has signed; how many were good and news."""
        ...

    def clusters(self) -> Clusters:
        """Those that have registered here. Opened at the first call, so ask for it in a thread."""
        ...

    @property
    def blobs(self) -> SchedulerBlobs | None:
        """The files of users and jobs."""
        ...

    def prometheus(self) -> bytes:
        """The metrics, in Prometheus' text format."""
        ...

    @property
    def ready(self) -> bool: ...


async def ask_for(backend: Backend, kind: type[Value], make: Callable[[RequestId], Event]) -> Value:
    """Like `Backend.ask`, for an answer of one kind."""
    answer = await backend.ask(make)
    assert isinstance(answer, kind), f"the machine answered with {answer!r}"
    return answer


def submitting(submit: Submit) -> Callable[[RequestId], Event]:
    """What `Backend.ask` wants, for a submission that is complete but for its request."""
    return lambda request: msgspec.structs.replace(submit, request=request)


class Pieces:
    """What a running task brings forth, for one listener."""

    def __init__(self) -> None:
        self._pieces: list[tuple[int, bytes]] = []
        self._arrived = asyncio.Event()

    def put(self, number: int, piece: bytes) -> None:
        """An empty piece: that attempt is lost."""
        self._pieces.append((number, piece))
        self._arrived.set()

    def take(self) -> list[tuple[int, bytes]]:
        """All since the last call, each with the number of its attempt."""
        self._arrived.clear()
        taken, self._pieces = self._pieces, []
        return taken

    async def more(self, *others: asyncio.Future[Any]) -> None:
        """Returns when there is something to take, or one of the others is done."""
        arrived = asyncio.ensure_future(self._arrived.wait())
        try:
            await asyncio.wait((arrived, *others), return_when=asyncio.FIRST_COMPLETED)
        finally:
            arrived.cancel()


class Stopping(Exception):
    """The scheduler is going down: the client may try again in a moment."""
