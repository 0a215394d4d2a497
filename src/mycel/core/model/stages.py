"""The stages of a job: a graph without cycles, and how far each has come.

                 ┌─ start ─▶ started ─ end ─▶ ended
    waiting ─────┤
                 └─ skip ──▶ skipped        its tasks are cancelled: `dependency_failed`

A stage starts when all that it needs has ended well enough. What a stage's failures do is its
own policy:

    fail      no stage that needs it, directly or not, can run; the job fails
    continue  stages that need it start when it has ended; the job fails
    ignore    the same, and the job does not fail for it

A stage has ended when all its tasks have, and its job takes no further batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from mycel.core.errors import TooLong
from mycel.core.ranges import FEW, Count, Name
from mycel.core.states import STAGE, StageState, StageStep, TaskState

from .substitution import Budget, fill_text, fill_value, index_of, references, references_in

if TYPE_CHECKING:
    from .jobs import Block, Group
    from .work import Work

HANDED_BYTES_MAX: Final = 256 << 10
"""So much of a stage's results reaches the stages that ask for them: each task gets a copy."""
NEEDS: Final = "needs"
"""The name under which they find it: `${needs.prepare}`."""


class Policy(StrEnum):
    FAIL = "fail"
    CONTINUE = "continue"
    IGNORE = "ignore"


class Stage(msgspec.Struct, frozen=True, omit_defaults=True):
    """As it stands in the journal."""

    name: Name
    needs: Annotated[tuple[Count, ...], FEW] = ()
    """Places of other stages of the job."""
    policy: Policy = Policy.FAIL
    hands_on: bool = False
    """Another stage asks for its results."""
    wants: Annotated[tuple[Count, ...], FEW] = ()
    """The stages, among those that it needs, for whose results it asks."""


def find_cycle(needs: Sequence[Sequence[int]]) -> list[int] | None:
    """The places of a cycle, the first one again at its end; None if there is none."""
    done: set[int] = set()
    for start in range(len(needs)):
        path: list[int] = []
        waiting: list[Iterator[int]] = [iter((start,))]
        while waiting:
            place = next(waiting[-1], None)
            if place is None:
                waiting.pop()
                if path:
                    done.add(path.pop())
            elif place in path:
                return [*path[path.index(place) :], place]
            elif place not in done:
                path.append(place)
                waiting.append(iter(needs[place]))
    return None


def wanted(work: Work, arguments: bytes) -> set[tuple[str, int | None]]:
    """The stages whose results these texts ask for, and of which task, if only of one."""
    texts = (*work.command, *(value for _, value in work.env))
    found = [path for text in texts for path in references(text)]
    for encoded in (work.input, arguments):
        if b"${" in encoded:
            found += references_in(msgspec.json.decode(encoded))
    parts = (path.replace("[", ".").replace("]", "").split(".") for path in found)
    return {
        (name, index_of(rest[0]) if rest else None)
        for first, name, *rest in (part for part in parts if len(part) > 1)
        if first == NEEDS
    }


class Handed:
    """Results of earlier stages, for the tasks of a stage that asked for them."""

    def __init__(self, results: dict[str, list[Any]]) -> None:
        self._values = {NEEDS: results}
        self._works: dict[Group, Work | str] = {}
        """Or why there is none."""

    def work(self, group: Group) -> Work:
        """Raises `TooLong`, for each of the group's tasks."""
        filled = self._works.get(group)
        if filled is None:
            try:
                filled = self._filled(group.specification.work)
            except TooLong as error:
                filled = str(error)
            self._works[group] = filled
        if isinstance(filled, str):
            raise TooLong(filled)  # afresh: one that is kept gathers the frames of all who meet it
        return filled

    def _filled(self, work: Work) -> Work:
        values, budget = self._values, Budget()
        return msgspec.structs.replace(
            work,
            command=tuple(fill_text(word, values, budget) for word in work.command),
            env=tuple((name, fill_text(value, values, budget)) for name, value in work.env),
            input=self.arguments(work.input) if work.input else b"",
        )

    def arguments(self, encoded: bytes) -> bytes:
        if b"${" not in encoded:
            return encoded
        filled = fill_value(msgspec.json.decode(encoded), self._values, Budget())
        return msgspec.json.encode(filled)


class StageRun:
    """One stage of one job, under way."""

    __slots__ = (
        "blocks",
        "cancelled",
        "count",
        "failed",
        "handed",
        "handed_bytes",
        "needs",
        "results",
        "skip_reason",
        "stage",
        "state",
        "succeeded",
        "wants",
    )

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.state = StageState.WAITING
        self.needs: list[StageRun] = []
        self.blocks: list[Block] = []
        self.count = 0
        self.succeeded = 0
        self.failed = 0
        self.cancelled = 0
        self.skip_reason = ""
        self.results: dict[int, bytes] = {}
        """JSON by task, as long as another stage may ask for it."""
        self.handed_bytes = 0
        self.wants: list[StageRun] = []
        self.handed: Handed | None = None
        """What it was given when it started."""

    def step(self, step: StageStep) -> None:
        self.state = STAGE[self.state, step]

    @property
    def name(self) -> str:
        return self.stage.name

    @property
    def all_ended(self) -> bool:
        return self.succeeded + self.failed + self.cancelled == self.count

    @property
    def has_failed(self) -> bool:
        """It lets nobody start who needs it."""
        unsuccessful = self.failed or self.cancelled
        return bool(unsuccessful) and self.stage.policy is Policy.FAIL

    @property
    def hands_too_much(self) -> bool:
        return self.handed_bytes > HANDED_BYTES_MAX

    def count_end(self, state: TaskState) -> None:
        if state is TaskState.SUCCEEDED:
            self.succeeded += 1
        elif state is TaskState.FAILED:
            self.failed += 1
        else:
            self.cancelled += 1

    def keep(self, index: int, value: bytes) -> None:
        """A result that another stage will ask for."""
        self.handed_bytes += len(value)
        if self.hands_too_much:
            self.results.clear()
        else:
            self.results[index] = value

    def all_results(self) -> list[Any]:
        """By index; null for those that did not succeed."""
        return [
            msgspec.json.decode(self.results.get(index, b"null"))
            for block in self.blocks
            for index in range(block.first, block.first + block.count)
        ]


def runs_of(stages: Sequence[Stage]) -> list[StageRun]:
    runs = [StageRun(stage) for stage in stages]
    for run in runs:
        run.needs = [runs[place] for place in run.stage.needs]
        run.wants = [runs[place] for place in run.stage.wants]
    return runs


TOO_MUCH: Final = bytes(HANDED_BYTES_MAX + 1)
"""Stands for a result that is in a file: it is never handed on."""


def handed_value(value: bytes, stdout: bytes) -> bytes:
    """A task's result as a later stage gets it: JSON, or what a process wrote, without the
    line's end."""
    return value or msgspec.json.encode(stdout.decode(errors="replace").rstrip("\r\n"))
