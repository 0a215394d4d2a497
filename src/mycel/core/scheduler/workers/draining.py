"""Asking workers to take no new work, or to take some again, for people who may.

The worker decides, by the token that came with the request; the client is answered when it has.
"""

from __future__ import annotations

from mycel.core.errors import Conflict, NotFound
from mycel.core.events import CloseWorker
from mycel.core.identifiers import PeerId, RequestId
from mycel.core.messages import Close, Closed
from mycel.core.scheduler.clients.read_views import Views
from mycel.core.scheduler.records import Worker
from mycel.core.scheduler.state import State

from .worker_index import Roster

TIMER = "close"


class Draining:
    def __init__(self, state: State, roster: Roster, views: Views) -> None:
        self._state = state
        self._roster = roster
        self._views = views
        self._asked: dict[RequestId, PeerId] = {}

    def asked(self, event: CloseWorker, now: float) -> None:
        found = self._named(event.worker)
        if isinstance(found, NotFound | Conflict):
            self._state.reply(event.request, found)
            return
        grace = event.hand_back_after_seconds
        message = Close(event.request, event.on, event.user, grace, event.token)
        self._asked[event.request] = found.peer
        self._state.send(found.peer, message)
        due = now + self._state.settings.health_check_timeout
        self._state.timers.set((TIMER, event.request), due)

    def answered(self, worker: Worker, message: Closed, arrived_at: float, now: float) -> None:
        if self._asked.pop(message.request, None) != worker.peer:
            return
        self._state.timers.cancel((TIMER, message.request))
        if message.objection:
            refusal = Conflict(f"{worker.name} says no: {message.objection}")
            self._state.reply(message.request, refusal)
            return
        worker.accepting, worker.closed_for = message.accepting, message.closed_for
        self._roster.stands(worker)
        self._roster.has_news(worker)
        self._state.reply(message.request, self._views.worker(worker))

    def late(self, key: object, now: float) -> None:
        assert isinstance(key, int)
        if self._asked.pop(RequestId(key), None) is not None:
            detail = "the worker does not answer; 'mycel workers' says how it stands"
            self._state.reply(RequestId(key), Conflict(detail))

    def _named(self, text: str) -> Worker | NotFound | Conflict:
        """By peer id or name in full, or by an unambiguous beginning of either."""
        workers = self._state.workers.values()
        found = [one for one in workers if text in (one.peer, one.name)]
        if not found:
            found = [one for one in workers if one.peer.startswith(text)]
            found += [one for one in workers if one.name.startswith(text) and one not in found]
        if len(found) > 1:
            names = ", ".join(sorted(f"{one.name} ({one.peer})" for one in found)[:5])
            return Conflict(f"{text!r} may be one of {names}: give its peer id")
        if not found:
            known = self._state.known.get(PeerId(text))
            if known is not None:
                return Conflict(f"{known.name or text} has no link with this scheduler now")
            return NotFound(f"there is no worker {text!r}")
        if found[0].peer not in self._state.linked and not found[0].is_healthy:
            return Conflict(f"{found[0].name} is {found[0].state.value}: it cannot be asked now")
        return found[0]
