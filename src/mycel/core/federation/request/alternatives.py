"""Jobs that leave something open: Fluxion's `xor_slot` and `or_slot`.

    xor_slot beside xor_slot    exactly one of them is meant, for the whole job
    slot beside slot            each slot may be any of them; `or_slot` is an older name of it

An exclusive choice makes a job of each possibility. They are tried in the order in which they
are written, and the first that fits is the job. `or` needs no such list: the matcher mixes.
"""

from __future__ import annotations

from itertools import product
from typing import Final

import msgspec

from .request_tree import SLOT, JobRequest, Request

XOR_SLOT: Final = "xor_slot"
OR_SLOT: Final = "or_slot"
VARIANTS_MAX: Final = 64

Requests = tuple[Request, ...]


def variants(job: JobRequest) -> tuple[JobRequest, ...]:
    """The jobs that it can mean, without `xor_slot` and `or_slot`; empty if they are too many."""
    if not _leaves_open(job.resources):
        return (job,)
    found = _variants(job.resources)
    if found is None:
        return ()
    return tuple(msgspec.structs.replace(job, resources=one) for one in found)


def _leaves_open(requests: Requests) -> bool:
    return any(one.type in (XOR_SLOT, OR_SLOT) or _leaves_open(one.contents) for one in requests)


def _variants(requests: Requests) -> list[Requests] | None:
    """None if they are too many."""
    choices: list[list[Request]] = []
    exclusive: list[Request] = []
    for request in requests:
        below = _variants(request.contents)
        if below is None:
            return None
        type_ = SLOT if request.type in (XOR_SLOT, OR_SLOT) else request.type
        made = [msgspec.structs.replace(request, type=type_, contents=one) for one in below]
        if request.type == XOR_SLOT:
            exclusive += made
        else:
            choices.append(made)
    if exclusive:
        choices.append(exclusive)
    total = 1
    for choice in choices:
        total *= len(choice)
    return [tuple(one) for one in product(*choices)] if total <= VARIANTS_MAX else None
