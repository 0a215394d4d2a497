"""Runs a machine: events in, turns, effects out.

Everything that arrives before a turn is handled in it, frames before time, and shares one
commit. `wake_at` is the only timer. With `patient`, a turn that comes much too late (the process
was stopped, the machine slept) gives the network a moment to deliver what waits before time is
told, so that a scheduler declares nobody dead for its own absence. A worker is not patient: its
own leases end when they end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from mycel.core.effects import Effect
from mycel.core.events import Event, Tick, WallClock
from mycel.core.journal import Entry, EntryRefused
from mycel.store.errors import EntriesRefused

from .clock import Clock
from .outbox import Outbox

LATE_SECONDS: Final = 1.0
GRACE_SECONDS: Final = 0.25
WALL_CLOCK_SECONDS: Final = 60.0
STALLED_SECONDS: Final = 10.0
"""Entries that have waited so long for the disk wait for ever, as far as clients can tell."""

Perform = Callable[[Any], None]
Done = Callable[[BaseException | None], None]
Amend = Callable[[Sequence[EntryRefused], list[Effect]], list[Effect]]
"""What was not committed of a group, and the effects that stand on it: those that may leave."""


class Machine(Protocol):
    @property
    def wake_at(self) -> float | None: ...
    def handle(self, event: Event, now: float, *, more: bool = False) -> list[Effect]:
        """With `more` another event of the same turn follows."""
        ...


class Committer(Protocol):
    def commit(self, entries: Sequence[Entry], done: Done) -> None: ...
    def commit_at_once(self, entries: Sequence[Entry]) -> bool: ...


class Runtime:
    def __init__(
        self,
        machine: Machine,
        clock: Clock,
        journal: Committer | None,
        perform: Mapping[type[Effect], Perform],
        failed: Callable[[BaseException], None],
        *,
        patient: bool = False,
        amend: Amend | None = None,
    ) -> None:
        """`failed` is told of a commit that did not succeed, or of a fault of the machine: the
        process must stop. `amend` is told of one that did but for some entries."""
        self._machine = machine
        self._clock = clock
        self._journal = journal
        self._perform = perform
        self._failed = failed
        self._patient = patient
        self._amend = amend
        self._inbox: list[Event] = []
        self._outbox = Outbox()
        self._turn_is_due = False
        self._armed_at: float | None = None
        self._grace_given = False
        self._stopped = False
        self._next_wall_clock = 0.0
        self._waits_since: float | None = None
        """Since when entries wait, or when the last of them were committed."""

    def post(self, event: Event) -> None:
        """Hands an event to the next turn. Only from the loop's thread."""
        self._inbox.append(event)
        if not self._turn_is_due and not self._stopped:
            self._turn_is_due = True
            self._clock.call_soon(self._due)

    def turn_now(self) -> None:
        """For an adapter that has posted all it had: no need to wait for the loop's next round.
        Never from inside an effect."""
        if self._turn_is_due:
            self._turn()

    def stop(self) -> None:
        """No further turns; commits under way finish."""
        self._stopped = True

    @property
    def is_quiet(self) -> bool:
        """Nothing waits to be handled, committed or performed."""
        return not self._inbox and self._outbox.is_empty

    @property
    def is_stalled(self) -> bool:
        """Entries wait, and nothing has been committed for too long."""
        since = self._waits_since
        return since is not None and self._clock.now() - since > STALLED_SECONDS

    def _due(self) -> None:
        if self._turn_is_due:  # else somebody took the turn already
            self._turn()

    def _turn(self) -> None:
        self._turn_is_due = False
        if self._stopped:
            return
        now = self._clock.now()
        events, self._inbox = self._inbox, []
        if now >= self._next_wall_clock:
            self._next_wall_clock = now + WALL_CLOCK_SECONDS
            events.insert(0, WallClock(self._clock.unix() - now))
        try:
            effects = self._handle(events, now)
        except Exception as error:  # noqa: BLE001 - the edge that owns the machine
            # What it has done so far is not to be trusted; the journal is.
            self._fail(error)
            return
        self._release(self._outbox.put(effects))
        self._commit()
        self._arm(now)

    def _handle(self, events: list[Event], now: float) -> list[Effect]:
        handle = self._machine.handle
        effects: list[Effect] = []
        left = len(events)
        for event in events:
            left -= 1
            effects.extend(handle(event, now, more=left > 0))
        if self._is_time(now):
            effects.extend(handle(Tick(), now))
        return effects

    def _is_time(self, now: float) -> bool:
        wake_at = self._machine.wake_at
        if wake_at is None or wake_at > now:
            return False
        if self._patient and now - wake_at > LATE_SECONDS and not self._grace_given:
            self._grace_given = True
            return False
        self._grace_given = False
        return True

    def _arm(self, now: float) -> None:
        wake_at = self._machine.wake_at
        if wake_at is None:
            return
        when = now + GRACE_SECONDS if self._grace_given else max(wake_at, now)
        if self._armed_at is None or when < self._armed_at:
            self._armed_at = when
            self._clock.call_at(when, lambda: self._wake(when))

    def _wake(self, armed_at: float) -> None:
        if self._armed_at == armed_at:
            self._armed_at = None
            if not self._turn_is_due:
                self._turn()

    def _release(self, effects: list[Effect]) -> None:
        perform = self._perform
        try:
            for effect in effects:
                perform[type(effect)](effect)
        except Exception as error:  # noqa: BLE001 - the edge that owns the effects
            self._fail(error)

    def _commit(self) -> None:
        """Whatever the journal raises ends in `failed`: a group that nobody finishes would have
        everything wait behind it."""
        try:
            self._commit_groups()
        except Exception as error:  # noqa: BLE001 - the edge that owns the journal
            self._fail(error)
        if self._outbox.is_empty:
            self._waits_since = None
        elif self._waits_since is None:
            self._waits_since = self._clock.now()

    def _commit_groups(self) -> None:
        while group := self._outbox.take_group():
            assert self._journal is not None, "a machine without a journal records nothing"
            if not self._journal.commit_at_once(group):
                self._journal.commit(group, self._committed)
                return
            self._release(self._outbox.committed())

    def _committed(self, error: BaseException | None) -> None:
        if error is not None and not (isinstance(error, EntriesRefused) and self._amend):
            self._fail(error)
            return
        self._waits_since = None
        effects = self._outbox.committed()
        if isinstance(error, EntriesRefused) and self._amend is not None:
            try:
                effects = self._outbox.put_behind(self._amend(error.refused, effects))
            except Exception as fault:  # noqa: BLE001 - the edge that owns the machine
                self._fail(fault)
                return
            self._arm(self._clock.now())
        self._release(effects)
        self._commit()

    def _fail(self, error: BaseException) -> None:
        self._stopped = True
        self._failed(error)
