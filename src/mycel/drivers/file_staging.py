"""The files of tasks: inputs arrive before a task starts, outputs are safe before it succeeds.

    submit ─▶ preparing ─▶ the driver ─▶ gathering ─▶ bringing home ─▶ finished
                  │             │            └─ failed: a declared output is missing
                  │             └─ returned, withdrawn, failed
                  └─ withdrawn; failed: an input is missing

Tasks without files pass through untouched. The inputs of several tasks are prepared at once, and
whichever is ready first runs first. Gathering reads and hashes the outputs, which takes a core: it
counts as part of the attempt and its time-out, and nothing else starts in the lane until it is
done. Bringing them home only waits for the network, so the lane goes on meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, Protocol

import msgspec

from mycel.blobs.errors import BadTree
from mycel.blobs.task_transfers import GatheredOutputs
from mycel.core.identifiers import AttemptId, LaneId
from mycel.core.model.task_files import BadFile, mentions_files
from mycel.runtime.clock import boot_seconds

from .interface import LONG_SECONDS, DriverListener, Finished, Run
from .long_values import LongValues
from .preparation import Submit

GATHER_SECONDS_MIN: Final = 1.0
"""How long a task has for its outputs at least, even if it ends just in time."""
DISCARD_SECONDS_MAX: Final = 2.0
"""How long `close` waits for folders that are being removed. The next start removes the rest."""


class Files(Protocol):
    """What moves the files: `blobs.task_transfers.TaskFiles`."""

    async def prepare(self, run: Run) -> Run: ...
    async def gather(self, run: Run) -> GatheredOutputs: ...
    async def bring_home(self, run: Run, gathered: GatheredOutputs) -> None: ...
    async def discard(self, run: Run) -> None: ...
    async def send_value(self, run: Run, folder: Path) -> tuple[str, int]: ...
    async def fetch_to(self, digest: str, run: Run, target: Path) -> int: ...


class _Filed:
    """A task with files, on its way."""

    def __init__(self, lane: LaneId, run: Run) -> None:
        self.lane = lane
        self.run = run
        self.preparing: asyncio.Task[None] | None = None
        self.collecting: asyncio.Task[None] | None = None
        self.ended: Finished | None = None
        """How it ended, while its outputs are collected."""


class _TimedOut(Exception):
    """The attempt's time ended while its outputs were read."""


class _Gate:
    """A lane that has a task with outputs: what comes behind waits here, not in the driver, which
    would start it as soon as the task's own process has ended."""

    def __init__(self, attempt: AttemptId) -> None:
        self.attempt = attempt
        self.is_long = False
        self.waiting: deque[Run] = deque()


class FileStaging:
    """A stage of `StagedDriver`: `submit` gets the runs whose files are there."""

    def __init__(
        self,
        events: DriverListener,
        files: Files,
        submit: Submit,
        timeout: Callable[[float | None], float | None] = lambda seconds: seconds,
    ) -> None:
        """`timeout`: how long a task may run, given what it asks for."""
        self._events = events
        self._files = files
        self._submit = submit
        self._timeout = timeout
        self._filed: dict[AttemptId, _Filed] = {}
        self._gates: dict[LaneId, _Gate] = {}
        self._discarding: set[asyncio.Task[None]] = set()
        self._values = LongValues(files, events)

    def take(self, lane: LaneId, runs: list[Run]) -> list[Run]:
        """Keeps the runs with files, and those behind them; returns the others."""
        self._values.expect(runs)
        filed = [run for run in runs if _has_files(run)]
        if not filed:
            if lane not in self._gates:
                return runs
            self._hand_on(lane, runs)
            return []
        plain = [run for run in runs if not _has_files(run)]
        if plain:
            self._hand_on(lane, plain)
        for run in filed:
            one = self._filed[run.attempt] = _Filed(lane, run)
            one.preparing = asyncio.create_task(self._prepare(one))
        return []

    def withdraw(self, attempts: list[AttemptId]) -> list[AttemptId]:
        """Withdraws those that are here, and returns the others."""
        return self._withdraw_waiting([one for one in attempts if not self._stop_preparing(one)])

    def kill(self, attempts: list[AttemptId]) -> list[AttemptId]:
        rest = []
        for attempt in self._values.kill(attempts):
            one = self._filed.get(attempt)
            if one is not None and one.collecting is not None:
                # Soon, not now: a task that is cancelled before it begins reports nothing.
                asyncio.get_running_loop().call_soon(one.collecting.cancel)
            else:
                rest.append(attempt)
        return self.withdraw(rest)

    async def stop(self) -> None:
        waiting = [run.attempt for gate in self._gates.values() for run in gate.waiting]
        self.withdraw([*self._filed, *waiting])

    async def close(self) -> None:
        await asyncio.sleep(0)
        await self._values.close()
        tasks = [one.collecting for one in self._filed.values() if one.collecting is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._discarding:
            await asyncio.wait(self._discarding, timeout=DISCARD_SECONDS_MAX)
        for task in self._discarding:
            task.cancel()
        await asyncio.gather(*self._discarding, return_exceptions=True)

    def _stop_preparing(self, attempt: AttemptId) -> bool:
        one = self._filed.get(attempt)
        if one is None or one.preparing is None:
            return False
        one.preparing.cancel()
        self._forget(attempt)
        asyncio.get_running_loop().call_soon(self._events.withdrawn, [attempt])
        return True

    # Before and after

    async def _prepare(self, one: _Filed) -> None:
        attempt = one.run.attempt
        try:
            ready = await self._files.prepare(one.run)
        except (BadFile, BadTree) as error:
            self._fail(attempt, str(error), its_own=True)
        except Exception as error:  # noqa: BLE001 - the edge that owns it: else it never ends
            self._fail(attempt, f"its inputs cannot be had: {error}", its_own=False)
        else:
            one.run, one.preparing = ready, None
            self._hand_on(one.lane, [ready])

    def _fail(self, attempt: AttemptId, error: str, *, its_own: bool) -> None:
        self._forget(attempt)
        now = boot_seconds()
        fault = not its_own
        self._events.finished(
            [
                Finished(
                    attempt,
                    "failed",
                    error=error,
                    driver_fault=fault,
                    started_at=now,
                    ended_at=now,
                )
            ]
        )

    async def _collect(self, one: _Filed, ended: Finished) -> None:
        try:
            gathered = await self._gather(one, ended)
            self._open(one.lane, one.run.attempt)
            cpu_seconds = ended.cpu_seconds + gathered.cpu_seconds
            ended = msgspec.structs.replace(ended, cpu_seconds=cpu_seconds)
            await self._files.bring_home(one.run, gathered)
        except asyncio.CancelledError:
            ended = msgspec.structs.replace(ended, state="cancelled", value=b"", error="cancelled")
        except _TimedOut as error:
            ended = msgspec.structs.replace(ended, state="timed_out", value=b"", error=str(error))
        except BadTree as error:
            ended = msgspec.structs.replace(ended, state="failed", value=b"", error=str(error))
        except Exception as error:  # noqa: BLE001 - likewise
            ended = msgspec.structs.replace(
                ended,
                state="failed",
                value=b"",
                error=f"its outputs cannot be brought home: {error}",
                driver_fault=True,
            )
        self._open(one.lane, one.run.attempt)
        self._forget(one.run.attempt)
        self._events.finished([ended])

    async def _gather(self, one: _Filed, ended: Finished) -> GatheredOutputs:
        """Within what is left of the attempt's time."""
        seconds = self._timeout(one.run.work.timeout_seconds)
        left = None
        if seconds is not None:
            left = max(seconds - (ended.ended_at - ended.started_at), GATHER_SECONDS_MIN)
        loop = asyncio.get_running_loop()
        turning_long = loop.call_later(LONG_SECONDS, self._is_long, one.run.attempt)
        try:
            async with asyncio.timeout(left):
                return await self._files.gather(one.run)
        except TimeoutError:
            raise _TimedOut(f"timed out after {seconds:g} s, while its outputs were read") from None
        finally:
            turning_long.cancel()

    # One task with outputs at a time

    def _hand_on(self, lane: LaneId, runs: list[Run]) -> None:
        """Gives the driver what is ready, up to the first task with outputs."""
        gate = self._gates.get(lane)
        if gate is not None:
            gate.waiting.extend(runs)
            if gate.is_long:
                self._give_back(lane, gate)
            return
        for number, run in enumerate(runs):
            if run.work.outputs is not None:
                gate = self._gates[lane] = _Gate(run.attempt)
                gate.waiting.extend(runs[number + 1 :])
                runs = runs[: number + 1]
                break
        self._submit(lane, runs)

    def _open(self, lane: LaneId, attempt: AttemptId) -> None:
        """That task takes nothing of its lane any more."""
        gate = self._gates.get(lane)
        if gate is not None and gate.attempt == attempt:
            del self._gates[lane]
            if gate.waiting:
                self._hand_on(lane, list(gate.waiting))

    def _is_long(self, attempt: AttemptId) -> None:
        """Others may run sooner elsewhere than behind it."""
        one = self._filed.get(attempt)
        gate = None if one is None else self._gates.get(one.lane)
        if one is not None and gate is not None and gate.attempt == attempt:
            gate.is_long = True
            self._give_back(one.lane, gate)

    def _give_back(self, lane: LaneId, gate: _Gate) -> None:
        attempts = [run.attempt for run in gate.waiting]
        gate.waiting.clear()
        if attempts:
            asyncio.get_running_loop().call_soon(self._events.returned, lane, attempts)

    def _withdraw_waiting(self, attempts: list[AttemptId]) -> list[AttemptId]:
        """Withdraws those that wait here; the others come back."""
        if not self._gates:
            return attempts
        wanted, found = set(attempts), []
        for gate in self._gates.values():
            found += [run.attempt for run in gate.waiting if run.attempt in wanted]
            gate.waiting = deque(run for run in gate.waiting if run.attempt not in wanted)
        if found:
            asyncio.get_running_loop().call_soon(self._events.withdrawn, found)
        return [attempt for attempt in attempts if attempt not in found]

    def _forget(self, attempt: AttemptId) -> None:
        one = self._filed.pop(attempt, None)
        if one is not None:
            self._open(one.lane, attempt)
            task = asyncio.create_task(self._discard(one))
            self._discarding.add(task)
            task.add_done_callback(self._discarding.discard)

    async def _discard(self, one: _Filed) -> None:
        if one.preparing is not None:
            await asyncio.wait([one.preparing])
        await self._files.discard(one.run)

    # What the driver reports

    def started(self, attempts: list[tuple[AttemptId, float]]) -> None:
        if self._gates:
            for attempt, _ in attempts:
                self._is_long(attempt)

    def finished(self, finished: list[Finished]) -> list[Finished]:
        """Keeps those whose outputs are to be gathered, and returns the others."""
        finished = self._values.finished(finished)
        if not self._filed:
            return finished
        through = []
        for ended in finished:
            one = self._filed.get(ended.attempt)
            if one is not None and ended.state == "succeeded" and one.run.work.outputs:
                one.ended = ended
                one.collecting = asyncio.create_task(self._collect(one, ended))
            else:
                self._forget(ended.attempt)
                through.append(ended)
        return through

    def release(self, attempts: Iterable[AttemptId]) -> None:
        for attempt in attempts:
            self._values.forget(attempt)
            self._forget(attempt)


def _has_files(run: Run) -> bool:
    work = run.work
    return bool(work.inputs or work.outputs or mentions_files(run.arguments))
