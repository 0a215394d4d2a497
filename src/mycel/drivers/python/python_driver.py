"""The `python` driver: calls `module:function` in warm interpreters, one per lane in use.

An interpreter serves one user, one environment and one hold: the same sandbox, limits and
devices. It is taken from a small pool of idle
ones, or started by the spawn helper, when a lane has something to run; it goes back when the
lane is closed, and is replaced after many calls, after a crash, and after a kill.

    idle ◀── close_lane ── in use by a lane ── crash, kill, time-out ──▶ stopping ─▶ ended
      └── taken for the same user, environment and hold ──▲

Time-outs are watched here and not in the interpreter, where a call can hold the interpreter
lock: the memory that each shares with us says what runs, and since when. By it a call that does
not let its interpreter say so itself is told to have started, too. Only giving back
what waits needs the interpreter, so behind a call that never lets go of that lock nothing is
given back until it ends or is killed.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import msgspec

from mycel.core.identifiers import AttemptId, LaneId
from mycel.core.model.failures import LIMIT
from mycel.drivers.helper.helper_client import HelperClient
from mycel.drivers.helper.helper_lanes import describe_exit
from mycel.drivers.helper.helper_messages import ProgramEnded
from mycel.drivers.helper.leftovers import kill_abandoned, remove_leftovers
from mycel.drivers.inherited_environment import inherited_environment
from mycel.drivers.interface import GRACE_SECONDS, DriverListener, Finished, FinishedState, Run
from mycel.drivers.process.command_driver import HELPER_LOST
from mycel.drivers.report_server import ReportServer
from mycel.drivers.task_devices import ConfinementPolicy

from .interpreter_link import InterpreterEvents, InterpreterKey, InterpreterLink
from .interpreter_pool import InterpreterPool, PoolLimits
from .interpreter_records import clock

ANSWER_SECONDS: Final = 0.25
"""Who has not agreed to be killed after this long holds the interpreter lock."""


UNHEARD_SECONDS: Final = 0.25
"""So long a call runs before we look for ourselves whether it does."""


class _Lane:
    def __init__(self) -> None:
        self.waiting: list[Run] = []
        """Not yet with an interpreter."""
        self.link: InterpreterLink | None = None
        self.closed = False
        self.key: tuple[Run, InterpreterKey] | None = None
        """The last key that was worked out, and what for."""


class PythonDriver:
    """`root` belongs to this driver alone: what an earlier worker left in it is removed."""

    def __init__(
        self,
        helper: HelperClient,
        listener: DriverListener,
        root: Path,
        *,
        grace_seconds: float = GRACE_SECONDS,
        limits: PoolLimits | None = None,
        environment: dict[str, str] | None = None,
        policy: ConfinementPolicy | None = None,
        report_server: ReportServer | None = None,
    ) -> None:
        self._helper = helper
        self._listener = listener
        self._policy = policy or ConfinementPolicy()
        self._loop = asyncio.get_running_loop()
        root.mkdir(parents=True, exist_ok=True)
        self._root = root.resolve()
        remove_leftovers(self._root, "interpreter-")
        if environment is None:
            environment = inherited_environment(also=("PYTHONPATH",))
        self._pool = InterpreterPool(
            helper,
            self._root,
            environment,
            limits or PoolLimits(),
            self._policy.owner,
            grace_seconds,
            self._told,
            report_server,
        )
        self._lanes: dict[LaneId, _Lane] = {}
        self._lane_of: dict[int, LaneId] = {}
        """Interpreters in use, by number."""
        self._where: dict[AttemptId, LaneId] = {}
        """Attempts that no interpreter has yet."""
        self._to_flush: set[LaneId] = set()
        self._withdrawn: list[AttemptId] = []
        self._flushing = False
        self._closing = False
        helper.on_interpreter_ended = self._interpreter_ended
        helper.on_lost.append(self._helper_lost)

    @property
    def name(self) -> str:
        return "python"

    @property
    def interpreter_count(self) -> int:
        return len(self._pool.links)

    def submit(self, lane: LaneId, runs: list[Run]) -> None:
        state = self._lanes.get(lane)
        if state is None:
            state = self._lanes[lane] = _Lane()
        state.closed = False
        state.waiting += runs
        for run in runs:
            self._where[run.attempt] = lane
        self._to_flush.add(lane)
        self._flush_soon()

    def withdraw(self, attempts: list[AttemptId]) -> None:
        wanted = self._withdraw_waiting(attempts)
        for link in self._pool.links.values() if wanted else ():
            theirs = [attempt for attempt in wanted if attempt in link.outstanding]
            if theirs:
                link.withdraw(theirs)

    def kill(self, attempts: list[AttemptId]) -> None:
        for attempt in self._withdraw_waiting(attempts):
            for link in self._pool.links.values():
                if attempt in link.outstanding:
                    self._stop(link, attempt, "cancelled")

    def close_lane(self, lane: LaneId) -> None:
        self._policy.cores.give_back(lane)
        state = self._lanes.get(lane)
        if state is None:
            return
        state.closed = True
        state.key = None  # its cores may be others' by the next time
        self._to_flush.add(lane)
        self._flush_soon()

    async def close(self) -> None:
        self._closing = True
        for lane in self._lanes.values():
            self._withdraw_waiting([run.attempt for run in lane.waiting])
        await self._pool.close()
        self._flush()

    # ── towards the interpreters, once per turn of the loop ──

    def _flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        lanes, self._to_flush = self._to_flush, set()
        for lane in lanes:
            state = self._lanes.get(lane)
            if state is not None:
                self._feed(lane, state)
        if self._withdrawn:
            withdrawn, self._withdrawn = self._withdrawn, []
            self._listener.withdrawn(withdrawn)

    def _feed(self, lane: LaneId, state: _Lane) -> None:
        if state.waiting and not self._closing:
            key = self._key(lane, state, state.waiting[0])
            link = self._link_for(lane, state, key)
            if link is None:
                self._return_if_long(lane, state)
                return
            runs = state.waiting
            count = len(runs)
            for place, run in enumerate(runs):
                own = self._key(lane, state, run)
                if own is not key and own != key:
                    count = place
                    break
            state.waiting = runs[count:]
            del runs[count:]
            for run in runs:
                del self._where[run.attempt]
            was_idle = not link.outstanding
            link.run(runs)
            if was_idle:
                self._watch_head(link)
                self._look_soon(link)
        elif state.closed and (state.link is None or not state.link.outstanding):
            del self._lanes[lane]
            if state.link is not None:
                self._release(state.link)

    def _key(self, lane: LaneId, state: _Lane, run: Run) -> InterpreterKey:
        """Worked out anew only where it may differ: of one lane, runs mostly share all that
        counts, and it takes as long as a quick call."""
        if state.key is not None and _is_alike(run, state.key[0]):
            return state.key[1]
        packages = run.work.environment
        path = "" if packages is None else packages.path
        key = InterpreterKey(run.user, run.work.env, path, self._policy.of(lane, run))
        state.key = (msgspec.structs.replace(run, arguments=b""), key)
        return key

    def _return_if_long(self, lane: LaneId, state: _Lane) -> None:
        link = state.link
        if link is not None and link.long_attempt in link.outstanding and state.waiting:
            returned = [run.attempt for run in state.waiting]
            state.waiting = []
            for attempt in returned:
                del self._where[attempt]
            self._listener.returned(lane, returned)

    def _link_for(self, lane: LaneId, state: _Lane, key: InterpreterKey) -> InterpreterLink | None:
        """The interpreter of this lane; nothing while another one is still to end there."""
        link = state.link
        if link is not None:
            if link.usable and link.key == key and not self._pool.is_worn(link):
                return link
            if link.outstanding or not link.usable:
                return None
            state.link = None
            self._release(link)
        if self._helper.lost:
            self._fail_waiting(state, HELPER_LOST)
            return None
        link = state.link = self._pool.take(key)
        self._lane_of[link.number] = lane
        return link

    def _release(self, link: InterpreterLink) -> None:
        self._lane_of.pop(link.number, None)
        self._pool.give_back(link)

    def _withdraw_waiting(self, attempts: list[AttemptId]) -> list[AttemptId]:
        """Withdraws those that no interpreter has yet; the others come back."""
        here = {attempt for attempt in attempts if attempt in self._where}
        for attempt in here:
            state = self._lanes[self._where.pop(attempt)]
            state.waiting = [run for run in state.waiting if run.attempt not in here]
        self._withdrawn += here
        if here:
            self._flush_soon()
        return [attempt for attempt in attempts if attempt not in here]

    # ── time-outs and kills ──

    def _watch_head(self, link: InterpreterLink) -> None:
        """Sees to the time-out of what runs; asked whenever that may have changed."""
        if not link.outstanding or not link.usable:
            return
        under_way = link.under_way()
        head = next(iter(link.outstanding.values())) if under_way is None else under_way[0]
        wait = self._policy.timeout(head.work.timeout_seconds)
        if wait is None:
            return
        if under_way is not None:
            wait -= clock() - under_way[1]
        # Else it has not begun, as far as we know: its interpreter may still be starting.
        due = self._loop.time() + max(wait, 0.001)
        if link.head_timer is not None:
            # One timer each, not one per call: an early one finds out and is set anew.
            if link.head_timer.when() <= due:
                return
            link.head_timer.cancel()
        link.head_timer = self._loop.call_at(due, self._check_running, link)

    def _check_running(self, link: InterpreterLink) -> None:
        link.head_timer = None
        under_way = link.under_way()
        if under_way is not None:
            run, since = under_way
            timeout = self._policy.timeout(run.work.timeout_seconds)
            if timeout is not None and clock() - since >= timeout:
                self._stop(link, run.attempt, "timed_out")
                return
        self._watch_head(link)

    def _look_soon(self, link: InterpreterLink) -> None:
        """One timer each, as long as it has something to do."""
        if link.look_timer is None:
            link.look_timer = self._loop.call_later(UNHEARD_SECONDS, self._look, link)

    def _look(self, link: InterpreterLink) -> None:
        link.look_timer = None
        if not link.outstanding:
            return
        self._look_soon(link)
        unheard = link.unheard(clock() - UNHEARD_SECONDS)
        if unheard:
            self._told(link, InterpreterEvents(unheard, [], [], [], [], []))

    def _stop(self, link: InterpreterLink, attempt: AttemptId, state: FinishedState) -> None:
        if attempt not in link.stopped_as:
            link.ask_to_kill(attempt, state)
            self._loop.call_later(ANSWER_SECONDS, self._insist, link, attempt)

    def _insist(self, link: InterpreterLink, attempt: AttemptId) -> None:
        if attempt in link.outstanding and link.usable:
            under_way = link.under_way()
            if under_way is not None and under_way[0].attempt == attempt:
                self._pool.discard(link)
            else:
                self._loop.call_later(ANSWER_SECONDS, self._insist, link, attempt)

    # ── from the interpreters ──

    def _told(self, link: InterpreterLink, events: InterpreterEvents) -> None:
        listener = self._listener
        lane = self._lane_of.get(link.number)
        if events.doomed and link.usable:
            self._pool.discard(link)
        if events.started:
            listener.started(events.started)
            if lane is not None:
                self._return_if_long(lane, self._lanes[lane])
        if events.written:
            listener.wrote(events.written)
        if events.finished:
            listener.finished(events.finished)
            self._watch_head(link)
        if events.returned and lane is not None:
            listener.returned(lane, events.returned)
        if events.withdrawn:
            listener.withdrawn(events.withdrawn)
        if lane is not None and not link.outstanding:
            state = self._lanes[lane]
            if state.waiting or state.closed:
                self._to_flush.add(lane)
                self._flush_soon()

    def _interpreter_ended(self, ended: ProgramEnded) -> None:
        link = self._pool.forget(ended.interpreter)
        if link is None:
            return
        events = link.last_words()
        memory = link.read_memory()
        # Who was to be killed with it is not saved by what it says.
        stopped = [one for one in link.stopped_as if one in link.outstanding and not link.usable]
        head = link.outstanding.pop(stopped[0] if stopped else memory.running, None)
        # A task may have made it forget what ran. With nobody to blame, that task would be
        # returned and sent again for ever: the first one is blamed, as the likeliest.
        ended_by_itself = link.usable or link.is_broken
        if head is None and (not memory.ready or (ended_by_itself and not self._closing)):
            head = next(iter(link.outstanding.values()), None)
            link.outstanding.pop(head.attempt if head else 0, None)
        if head is not None:
            since = memory.running_since if memory.running == head.attempt else 0.0
            events.finished.append(self._victim(link, head, ended, since))
        rest = [AttemptId(attempt) for attempt in link.outstanding]
        (events.withdrawn if self._closing else events.returned).extend(rest)
        link.outstanding.clear()
        link.close()
        self._told(link, events)
        lane = self._lane_of.pop(link.number, None)
        if lane is not None:
            self._lanes[lane].link = None
            self._to_flush.add(lane)
            self._flush_soon()

    def _victim(
        self, link: InterpreterLink, run: Run, ended: ProgramEnded, since: float
    ) -> Finished:
        """The end of the attempt that ran when its interpreter died."""
        now = clock()
        output = ended.output
        state: FinishedState = "failed"
        fault = crashed = False
        code = ""
        if run.attempt in link.stopped_as:
            state = link.stopped_as[run.attempt]
            timeout = self._policy.timeout(run.work.timeout_seconds) or 0.0
            error = f"timed out after {timeout:g} s" if state == "timed_out" else "cancelled"
        elif ended.broken_limit:
            error, code, crashed = ended.broken_limit, LIMIT, True
        elif self._closing:
            state, error = "cancelled", "cancelled: the worker stops"
        elif self._helper.lost:
            error, fault = HELPER_LOST, True
        elif link.stopped_as and not link.usable:
            error, fault = "its interpreter was killed for the sake of another task", True
        elif not link.read_memory().ready:
            last = output.decode("utf-8", "replace").strip().rpartition("\n")[2]
            error = f"the interpreter did not start: {describe_exit(ended.exit_code)}: {last}"
            fault = True
        else:
            how = describe_exit(ended.exit_code)
            error = f"the interpreter ended while it ran {run.work.function!r}: {how}"
            crashed = True
            fault = not since  # it may have been another's doing
        return Finished(
            run.attempt,
            state,
            exit_code=ended.exit_code,
            error=error,
            driver_fault=fault,
            stderr=output,
            started_at=since or now,
            ended_at=now,
            crashed=crashed,
            code=code,
        )

    def _fail_waiting(self, state: _Lane, reason: str) -> None:
        runs, state.waiting = state.waiting, []
        now = clock()
        for run in runs:
            del self._where[run.attempt]
        self._listener.finished(
            [
                Finished(r.attempt, "failed", error=reason, driver_fault=True, ended_at=now)
                for r in runs
            ]
        )

    def _helper_lost(self) -> None:
        kill_abandoned(self._root)
        for number in list(self._pool.links):
            self._interpreter_ended(ProgramEnded(number, 137, b""))


def _is_alike(run: Run, other: Run) -> bool:
    return (
        (run.work is other.work or run.work == other.work)
        and run.booking is other.booking
        and run.user == other.user
        and run.readable == other.readable
        and run.writable == other.writable
    )
