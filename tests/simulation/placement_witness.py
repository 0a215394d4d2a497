"""Sees to it that no task is sent where it should not go, by the scheduler's tables after the event
that has sent it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mycel.core.identifiers import JobId, PeerId
from mycel.core.matching import has_room
from mycel.core.matching.worker_sets import slots_of, without
from mycel.core.messages import Assign
from mycel.core.model.jobs import task_key
from mycel.core.model.work import Shape, reserved
from mycel.core.scheduler.trust.breaker import BreakerState


def complaints(machine: Any, peer: PeerId, message: Assign) -> Iterator[str]:
    worker = machine.state.workers.get(peer)
    if worker is None or worker.member is None:
        return
    seen: set[Shape] = set()
    for bundle in message.bundles:
        job = machine.state.job_ids.get(JobId(bundle.job_id))
        if job is None:
            continue
        for index in bundle.indices:
            shape = job.block_of(index).group.shape
            if shape not in seen:
                seen.add(shape)
                yield from _quarantined(machine, worker, shape)
            yield from _failed_there(machine, worker, shape, task_key(job.number, index))


def _quarantined(machine: Any, worker: Any, shape: Shape) -> Iterator[str]:
    if machine._guard.breaker_of(worker).state is not BreakerState.QUARANTINED:
        return
    if any(_is_free(machine, slot, shape) for slot in _others(machine, worker, shape)):
        yield f"{worker.peer} is quarantined, another is free, and it was sent a task"


def _failed_there(machine: Any, worker: Any, shape: Shape, key: int) -> Iterator[str]:
    history = machine.state.histories.get(key, ())
    failed_at = {ended.worker for ended in history if ended.counts}
    if worker.peer not in failed_at:
        return
    for slot in _others(machine, worker, shape):
        if machine.state.pool.at(slot).key in failed_at:
            continue
        if _is_free(machine, slot, shape):
            yield f"a retry was sent to {worker.peer}, which has failed it, and another is free"
            return


def _others(machine: Any, worker: Any, shape: Shape) -> Iterator[int]:
    """Who else could be given it."""
    refusing = machine._exclusions.refusing(shape)
    candidates = machine.state.pool.candidates(shape, refusing)
    left_out = machine._exclusions.of(shape) | machine._guard.withheld(candidates)
    return slots_of(without(candidates, left_out | 1 << worker.member.slot))


def _is_free(machine: Any, slot: int, shape: Shape) -> bool:
    """Also of quarantined ones: `withheld` may be what is broken."""
    member = machine.state.pool.at(slot)
    worker = machine.state.workers[PeerId(member.key)]
    state = machine._guard.breaker_of(worker).state
    is_open = state in (BreakerState.TRUSTED, BreakerState.NEW)
    return is_open and has_room(reserved(shape), member.capabilities, member.expected)
