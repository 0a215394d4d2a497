"""How a worker runs tasks: the interface of every driver.

A *lane* runs, one after another, the attempts that it is given. The worker opens a lane for
each slot of a shape and keeps a few attempts waiting in each, so that a lane never waits for
the network. When an attempt outlives `LONG_SECONDS`, its lane says so (`started`) and gives
what waits behind it back (`returned`): those attempts were not started, and may go elsewhere.

    submit ─▶ waiting ─┬─▶ running ─▶ finished
                       ├─▶ returned      the head of the lane takes long
                       └─▶ withdrawn     the worker asked, and it had not started

Promises that every driver keeps:

* Each submitted attempt ends in exactly one of `finished`, `returned` or `withdrawn`.
* `withdraw` of an attempt that runs or has ended changes nothing; `kill` of one that waits
  ends it as `withdrawn`, of one that runs as `finished` with the state `cancelled`, after
  its whole process group is gone.
* The crash of a task costs that task alone: what waited behind it is `returned`.
* A task that outlives its `timeout_seconds` gets SIGTERM, after `grace_seconds` SIGKILL, its
  whole process group with it, and ends as `timed_out`.
* Tasks never run in the worker's own process. When the worker dies, however it dies, its
  tasks' processes are killed.
* Output is captured up to a limit, head and tail. Working folders are removed afterwards.
* Calls return at once; the listener is called on the event loop's thread, in batches.
"""

from __future__ import annotations

from typing import Final, Protocol

from mycel.core.identifiers import AttemptId, LaneId
from mycel.core.messages import Text
from mycel.core.model.work import Finished, FinishedState, Run

LONG_SECONDS: Final = 0.05
GRACE_SECONDS: Final = 5.0
"""From SIGTERM to SIGKILL."""
OUTPUT_BYTES_MAX: Final = 10 << 20
"""Kept of each output stream: the first half and the last half of this."""
VALUE_BYTES_MAX: Final = 64 << 20
"""A longer result is an error of the task."""

__all__ = ["Driver", "DriverListener", "Finished", "FinishedState", "Run", "Text"]


class DriverListener(Protocol):
    def started(self, attempts: list[tuple[AttemptId, float]]) -> None:
        """These outlived `LONG_SECONDS`; with the time at which each began."""
        ...

    def finished(self, finished: list[Finished]) -> None: ...
    def streamed(self, attempt: AttemptId, piece: bytes) -> None:
        """Something that an attempt brings forth while it runs, for whoever listens now."""
        ...

    def wrote(self, texts: list[Text]) -> None:
        """What attempts that outlived `LONG_SECONDS` have written since they were last told of;
        a driver that writes faster than `live_output` allows leaves gaps."""
        ...

    def returned(self, lane: LaneId, attempts: list[AttemptId]) -> None: ...
    def withdrawn(self, attempts: list[AttemptId]) -> None: ...


class Driver(Protocol):
    @property
    def name(self) -> str: ...

    def submit(self, lane: LaneId, runs: list[Run]) -> None:
        """Gives a lane more to do; the lane is opened by its first attempt."""
        ...

    def withdraw(self, attempts: list[AttemptId]) -> None: ...
    def kill(self, attempts: list[AttemptId]) -> None: ...
    def close_lane(self, lane: LaneId) -> None:
        """Nothing waits or runs in this lane, and nothing more will come."""
        ...

    async def close(self) -> None:
        """Kills what runs, and ends only when no process of this driver is left."""
        ...
