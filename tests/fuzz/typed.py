"""Mutated messages of every kind against the machines of a scheduler, a worker and a gateway.

    python -m tests.fuzz.typed [--messages 100000] [--seed 1]

A crash is whatever would end the process, a hang whatever is not done in time: a commit, or an
honest task in between. Deterministic by its seed, but for the threads of the stores.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Final, Protocol

import msgspec

from .typed_gateway import GatewayTarget
from .typed_scheduler import SchedulerTarget
from .typed_worker import WorkerTarget

MESSAGES: Final = 100_000
PER_TURN: Final = 3
UNSETTLED_EVERY: Final = 100
PROBED_EVERY: Final = 500
FAULTS_MAX: Final = 20


class Target(Protocol):
    refused_entries: int

    def hear(self) -> bool: ...
    def turn(self, seconds: float = ...) -> None: ...
    def unsettle(self) -> None: ...
    def probe(self) -> None: ...
    def close(self) -> None: ...


Make = Callable[[Path, Random], Target]
TARGETS: Final[dict[str, tuple[Make, float]]] = {
    "scheduler, sqlite": (lambda at, random: SchedulerTarget(at, random, in_memory=False), 0.4),
    "scheduler, memory": (lambda at, random: SchedulerTarget(at, random, in_memory=True), 0.2),
    "worker": (WorkerTarget, 0.3),
    "gateway": (GatewayTarget, 0.1),
}
"""And which share of the messages each gets."""


class Tally(msgspec.Struct):
    target: str
    sent: int = 0
    handled: int = 0
    """They were messages, and the machine has dealt with them."""
    probes: int = 0
    entries_refused: int = 0
    faults: list[str] = []


def attack(name: str, count: int, seed: int) -> Tally:
    """A node that has crashed is replaced, and the attack goes on."""
    make, _ = TARGETS[name]
    tally = Tally(name, faults=[])
    random = Random(f"{seed} {name}")
    while tally.sent < count and len(tally.faults) < FAULTS_MAX:
        with TemporaryDirectory() as folder:
            target = make(Path(folder), random)
            try:
                _until_done(target, tally, count)
            except Exception:  # noqa: BLE001 - whatever it is, it would have ended a node
                tally.faults.append(traceback.format_exc(limit=-6))
            finally:
                tally.entries_refused += target.refused_entries
                target.close()
    return tally


def _until_done(target: Target, tally: Tally, count: int) -> None:
    while tally.sent < count:
        tally.sent += 1
        tally.handled += target.hear()
        if tally.sent % PER_TURN == 0:
            target.turn()
        if tally.sent % UNSETTLED_EVERY == 0:
            target.unsettle()
        if tally.sent % PROBED_EVERY == 0:
            target.turn()
            target.probe()
            tally.probes += 1


def everything(count: int, seed: int, say: Callable[[str], None]) -> list[Tally]:
    tallies = []
    for name, (_, share) in TARGETS.items():
        began = time.monotonic()
        tally = attack(name, round(count * share), seed)
        tallies.append(tally)
        seconds = time.monotonic() - began
        numbers = (tally.sent, tally.handled, tally.sent - tally.handled, tally.probes)
        columns = "".join(f"{number:>9,}" for number in numbers)
        say(
            f"{name:<34}{columns}{tally.entries_refused:>9,}{len(tally.faults):>9}  {seconds:.0f} s"
        )
    return tallies


HEAD: Final = f"{'typed messages to':<34}" + "".join(
    f"{head:>9}" for head in ("sent", "handled", "refused", "probes", "entries", "faults")
)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(HEAD, file=sys.stderr)
    tallies = everything(options.messages, options.seed, lambda line: print(line, file=sys.stderr))
    for tally in tallies:
        for fault in tally.faults:
            print(f"WRONG: {tally.target}: {fault}", file=sys.stderr)
    return 1 if any(tally.faults for tally in tallies) else 0


if __name__ == "__main__":
    sys.exit(main())
