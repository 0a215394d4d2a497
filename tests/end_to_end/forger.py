"""Makes the worker that imports it a forger: the real program, an invite of its own, and a
registration that lists attempts and outcomes which it was never given.

It guesses: jobs and attempts are numbered from the boot of their scheduler on. How many it makes
up stands in `MYCEL_FORGERIES`; after each registration it adds a line to `MYCEL_FORGER_TELLS`.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from blake3 import blake3

from mycel.core.effects import Effect, Send
from mycel.core.identifiers import BOOT_MAX, AttemptId, JobNumber, LeaseId, fenced
from mycel.core.messages import HeldAttempt, Outcome, Register
from mycel.core.worker.machine import WorkerMachine

BOOTS = (1, 2)
JOBS = range(1, 9)
INDICES = range(5)
VALUE = b'"forged"'
_honest = WorkerMachine.handle


def _numbers() -> Iterator[tuple[AttemptId, JobNumber, int]]:
    """Every task there may be, again and again: each time under a higher attempt."""
    for counter in itertools.count(1):
        for boot, job, index in itertools.product(BOOTS, JOBS, INDICES):
            made_up = (1, boot, BOOT_MAX)[counter % 3]
            attempt = AttemptId(fenced(made_up, 1_000_000 + counter))
            yield attempt, JobNumber(fenced(boot, job)), index


def _forged(register: Register, count: int) -> Register:
    digest = blake3(VALUE).digest()
    claims = list(itertools.islice(_numbers(), count))
    held = [HeldAttempt(*one, LeaseId(1), 1, None) for one in claims[::8]]
    outcomes = [Outcome(*one, "succeeded", VALUE, digest, 0) for one in claims]
    return msgspec.structs.replace(register, attempts=held, outcomes=outcomes)


def _handle(self: WorkerMachine, event: Any, now: float, *, more: bool = False) -> list[Effect]:
    effects = _honest(self, event, now, more=more)
    told: list[Effect] = []
    for effect in effects:
        if isinstance(effect, Send) and isinstance(effect.message, Register):
            count = int(os.environ["MYCEL_FORGERIES"])
            effect = Send(effect.peer, _forged(effect.message, count))
            with Path(os.environ["MYCEL_FORGER_TELLS"]).open("a") as tells:
                tells.write(f"{count}\n")
        told.append(effect)
    return told


WorkerMachine.handle = _handle  # type: ignore[method-assign]
