"""What a restart needs of earlier results: those that later stages of a job ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from mycel.core.identifiers import JobNumber
from mycel.core.journal import BlockAppended, GroupAdded, HandedResult, StoredBlock, StoredJob
from mycel.core.journal_codec import UNREADABLE, decode_stages
from mycel.core.model.stages import HANDED_BYTES_MAX, handed_value

Read = Callable[[JobNumber, int, int], Iterable[tuple[int, bytes, bytes]]]
"""Of a job, the first index and the one after the last: index, value and output of those that
succeeded, by index."""


def handed_results(
    jobs: list[StoredJob], groups: list[GroupAdded], blocks: list[StoredBlock], read: Read
) -> list[HandedResult]:
    unfinished = {job.opened.job: job for job in jobs if job.opened.stages and not job.state}
    if not unfinished:
        return []
    stage_of = {(group.job, group.group): group.stage for group in groups}
    of_stage: dict[tuple[JobNumber, int], list[BlockAppended]] = {}
    for block in blocks:
        appended = block.appended
        if appended.job in unfinished:
            stage = stage_of.get((appended.job, appended.group), 0)
            of_stage.setdefault((appended.job, stage), []).append(appended)
    found: list[HandedResult] = []
    for number, job in unfinished.items():
        try:
            stages = decode_stages(job.opened.stages)
        except UNREADABLE:
            continue  # the scheduler leaves it out
        for place, declared in enumerate(stages):
            if declared.hands_on:
                found += _of_stage(of_stage.get((number, place), []), read)
    return found


def _of_stage(blocks: list[BlockAppended], read: Read) -> Iterator[HandedResult]:
    """No more than it takes to see that it is too much."""
    left = HANDED_BYTES_MAX
    for block in blocks:
        for index, value, stdout in read(block.job, block.first, block.first + block.count):
            yield HandedResult(block.job, index, value, stdout)
            left -= len(handed_value(value, stdout))
            if left < 0:
                return
