"""`mycel bench dispatch`: what a task costs a scheduler, by how many workers and shapes there are.

    submit ─▶ Record, Introduce, Assign ─▶ Results, one to an event ─▶ Record, the next Assign

The scheduler's machine alone, with the codec on both sides and the journal's entries encoded, in
one process. Every worker has one slot and is busy all the time, and more tasks wait than there
are slots, so that each result frees the slot for which some shape is chosen. CPU time, from the
first result to the last one that leaves tasks waiting.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import resource
import sys
import time
from collections import deque
from random import Random
from typing import Any, Final

import msgspec

from mycel.console.errors import UsageError
from mycel.console.tables import print_json, print_table
from mycel.core.authenticators import Secret
from mycel.core.effects import Effect, Record, Send, SendAhead
from mycel.core.events import HeartbeatReceived, LinkUp, Received, Restart, Submit, Tick
from mycel.core.identifiers import AttemptId, JobNumber, LeaseId, PeerId, RequestId, fenced, ulid
from mycel.core.journal import Restored
from mycel.core.machine_settings import SchedulerSettings
from mycel.core.matching import total_of
from mycel.core.messages import WIRE_VERSION, Assign, Outcome, Register, Results
from mycel.core.model.jobs import Specification
from mycel.core.model.resources import Capabilities, Requirements
from mycel.core.model.work import Work
from mycel.core.scheduler import Scheduler
from mycel.swarm import message_codec

WORKERS: Final = (10, 100, 1_000, 10_000)
SHAPES: Final = (1, 1_000)
MEASURED: Final = 10_000
JOB_TASKS: Final = 10
SEED: Final = 20_261_120
MACHINE: Final = Capabilities(cpu_cores=1.0, memory=64 << 30, drivers=("process",))


class Row(msgspec.Struct, frozen=True, kw_only=True):
    workers: int
    shapes: int
    us_per_task: float
    """CPU for a task's whole life: submission, placement, assignment, result, end."""
    mb: float
    """What the process has grown by: workers, tasks and all."""
    register_us: float
    """CPU for one worker that comes while tasks wait."""
    renew_us: float
    """CPU for one heartbeat."""


class Plain:
    """Authenticators are made by blake3 in a real scheduler, which costs about as much."""

    def __init__(self, key: bytes, message: bytes) -> None:
        self._made = hashlib.blake2b(message, key=key, digest_size=32).digest()

    def digest(self, length: int = 32, *, seek: int = 0) -> bytes:
        del seek
        return self._made[:length]


class Bench:
    def __init__(self, workers: int, shapes: int) -> None:
        self.machine = Scheduler(
            SchedulerSettings(linked_workers_max=1 << 30, retention_tasks=10_000),
            digest=lambda value: hashlib.blake2b(value, digest_size=32).digest(),
            keyed=Plain,
            random=Random(SEED).random,
        )
        self.now = 0.0
        self.out: deque[tuple[PeerId, AttemptId, JobNumber, int]] = deque()
        self._encoder = msgspec.msgpack.Encoder()
        self._value = b'"done"'
        self._digest = hashlib.blake2b(self._value, digest_size=32).digest()
        self._jobs = 0
        self._peers = [PeerId(f"worker-{number}") for number in range(workers)]
        self._specifications = [
            Specification(
                Work("process", command=("true",)),
                Requirements(cpu_cores=1.0, min_memory=(number + 1) << 20),
            )
            for number in range(shapes)
        ]
        restored = Restored([], [], [], [], [], 0, 0, 0, 0)
        self.tell(Restart(1, restored, Secret(bytes(32))))

    def tell(self, event: Any) -> None:
        """With all that leaves the machine, as it would be written or sent."""
        self._perform(self.machine.handle(event, self.now))

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Record):
                for entry in effect.entries:
                    self._encoder.encode(entry)
            elif isinstance(effect, Send | SendAhead):
                message_codec.encode(effect.message)
                if isinstance(effect.message, Assign):
                    self._assigned(effect.peer, effect.message)

    def _assigned(self, peer: PeerId, assign: Assign) -> None:
        for bundle in assign.bundles:
            for place, index in enumerate(bundle.indices):
                attempt = AttemptId(bundle.first + place)
                self.out.append((peer, attempt, bundle.job, index))

    def catch_up(self) -> None:
        """What was too much for one event."""
        while (due := self.machine.wake_at) is not None and due <= self.now:
            self.tell(Tick())

    def come(self) -> None:
        free = total_of(MACHINE)
        for peer in self._peers:
            self.tell(LinkUp(peer))
            lease = LeaseId(fenced(1, 1))
            frame = message_codec.encode(
                Register(WIRE_VERSION, 1, 0.0, peer, MACHINE, free, (), [], [], [], lease=lease)
            )
            self.tell(Received(peer, message_codec.decode_work(frame), self.now))

    def submit(self, count: int) -> None:
        """Jobs of a few tasks, one shape after the other."""
        for _ in range(count // JOB_TASKS):
            self._jobs += 1
            specification = self._specifications[self._jobs % len(self._specifications)]
            job = ulid(self._jobs, bytes(10))
            request = RequestId(self._jobs)
            self.tell(Submit(request, job, "", "owner", specification, JOB_TASKS, b"", True))

    def finish(self, count: int) -> None:
        for _ in range(count):
            self.now += 0.0001
            peer, attempt, job, index = self.out.popleft()
            done = Outcome(
                attempt,
                job,
                index,
                "succeeded",
                self._value,
                self._digest,
                0,
                started_at=self.now,
                ended_at=self.now,
            )
            frame = message_codec.encode(Results(self.now, [done], []))
            self.tell(Received(peer, message_codec.decode_work(frame), self.now))
            self.catch_up()

    def beat(self) -> None:
        for peer in self._peers:
            self.tell(HeartbeatReceived(peer, self.now, self.now))


def measure(workers: int, shapes: int, tasks: int) -> Row:
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    bench = Bench(workers, shapes)
    bench.submit(max(shapes * JOB_TASKS, JOB_TASKS))
    began = time.process_time()
    bench.come()
    registered = time.process_time() - began
    bench.submit(workers * 2)
    bench.catch_up()
    began = time.process_time()
    for _ in range(tasks // 100):
        bench.submit(100)
        bench.finish(100)
    seconds = time.process_time() - began
    began = time.process_time()
    bench.beat()
    beating = time.process_time() - began
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return Row(
        workers=workers,
        shapes=shapes,
        us_per_task=round(1e6 * seconds / (tasks // 100 * 100), 1),
        mb=round(grown / 1024, 1),
        register_us=round(1e6 * registered / workers, 1),
        renew_us=round(1e6 * beating / workers, 1),
    )


def main(given: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="mycel bench dispatch", description="Measure what a task costs a scheduler."
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--tasks", type=int, default=MEASURED, metavar="N", help=f"in each row ({MEASURED:,})"
    )
    options = parser.parse_args(given)
    if not 100 <= options.tasks <= 1_000_000:
        raise UsageError("--tasks is between 100 and 1,000,000")
    rows = []
    for workers in WORKERS:
        for shapes in SHAPES:
            print(f"{workers:,} workers, {shapes:,} shapes", file=sys.stderr, flush=True)
            rows.append(measure(workers, shapes, options.tasks))
    if options.json:
        print_json({"tasks": options.tasks, "rows": rows})
    else:
        names = Row.__struct_fields__
        print_table(list(names), [[str(getattr(row, name)) for name in names] for row in rows])
    return 0
