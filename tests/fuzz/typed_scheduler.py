"""A scheduler under typed messages: the real machine, turn and journal, and two workers.

One worker is honest and does what it is asked. What the other says is nearly right.
"""

from __future__ import annotations

import math
import queue
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

from blake3 import blake3

from mycel.core import effects, events, messages
from mycel.core.identifiers import AttemptId, PeerId, RequestId, ulid
from mycel.core.invariants import check_scheduler
from mycel.core.machine_settings import SchedulerSettings
from mycel.core.messages.refusals import RULES
from mycel.core.model.jobs import Specification
from mycel.core.model.resources import Capabilities, Ledger, Requirements
from mycel.core.model.work import Work
from mycel.core.scheduler import Scheduler
from mycel.core.views import TaskIsOver
from mycel.discovery.worker_record import UnreadableRecord, WorkerRecord, sighting_of
from mycel.runtime.runtime import Runtime
from mycel.store.checkpoints import CheckpointFiles
from mycel.store.live_logs import LiveLogs, Stretch
from mycel.store.sqlite.commit_pace import Pace
from mycel.store.sqlite.sqlite_journal import SqliteStore
from mycel.swarm import message_codec
from mycel.swarm.frame_limits import CONTROL_BYTES_MAX, WORK_BYTES_MAX
from mycel.swarm.interface import SignedRecord
from mycel.testing.store.memory_journal import MemoryStore
from tests.core.keys import keyed
from tests.simulation.time import ProcessClock, VirtualClock

from .typed_values import Maker, Pools, structs_of

HONEST: Final = PeerId("honest")
HOSTILE: Final = PeerId("hostile")
OURS: Final = (("honest", "yes"),)
PATIENCE_SECONDS: Final = 20.0
PROBE_SECONDS: Final = 300.0
HUGE_TASKS: Final = 4
KNOWN_MAX: Final = 40


class Crashed(Exception):
    """The node would have ended, or hangs."""


def _machine_of(labels: tuple[tuple[str, str], ...]) -> Capabilities:
    return Capabilities(cpu_cores=4.0, memory=1 << 34, drivers=("process", "python"), labels=labels)


class SchedulerTarget:
    name = "scheduler"
    kinds: Final = (messages.WorkMessage, messages.ControlMessage)

    def __init__(self, folder: Path, random: Random, *, in_memory: bool) -> None:
        self._folder = folder
        self._random = random
        self._in_memory = in_memory
        self._world = VirtualClock()
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._memory = MemoryStore(self._world, 0.0, at_once=lambda: True)
        self._jobs = 0
        self._request = 0
        self.pools: Pools = {}
        self.maker = Maker(random, self.pools)
        self._work = structs_of(messages.WorkMessage)
        self._control = structs_of(messages.ControlMessage)
        [self._record] = structs_of(WorkerRecord)
        self._answers: dict[int, object] = {}
        self._ours: dict[int, bool] = {}
        """Which of the shapes, by the honest worker's numbers, are meant for it."""
        self._failures: list[BaseException] = []
        self.refused_entries = 0
        self.held = 0
        """How often the hostile one held attempts when it spoke."""
        [self._results] = structs_of(messages.Results)
        self._start()

    # Its life

    def _start(self) -> None:
        path = self._folder / "journal.db"
        if self._in_memory:
            self._store: Any = self._memory
        else:
            self._store = SqliteStore(path, self._calls.put, pace=Pace(quick_seconds=math.inf))
            # What is sought is no matter of syncs.
            self._store._connection.execute("PRAGMA synchronous = OFF")
        self._logs = LiveLogs(path)
        self._checkpoints = CheckpointFiles(path, self._calls.put)
        self.machine = Scheduler(
            SchedulerSettings(retention_tasks=500),
            digest=lambda value: blake3(value).digest(),
            keyed=keyed,
            random=self._random.random,
            hasher=blake3,
        )
        self._clock = ProcessClock(self._world, 0.0)
        self._runtime = Runtime(
            self.machine,
            self._clock,
            self._store,
            self._perform(),
            self._failures.append,
            amend=self._amended,
        )
        boot = self._store.raise_boot()
        self._post(events.Restart(boot, self._store.restore(), self._store.secret()))
        for peer in (HONEST, HOSTILE):
            self._arrive(peer, boot)
        for _ in range(HUGE_TASKS):
            self._submit(())

    def _amended(self, refused: Any, waiting: list[effects.Effect]) -> list[effects.Effect]:
        self.refused_entries += len(refused)
        return self.machine.amended(refused, waiting)

    def _arrive(self, peer: PeerId, boot: int = 1) -> None:
        labels = OURS if peer == HONEST else ()
        has = _machine_of(labels)
        now = self._clock.now()
        register = messages.Register(
            messages.WIRE_VERSION, boot, now, peer, has, Ledger(has).free, (), [], [], []
        )
        self._post(events.LinkUp(peer))
        self._post(events.Received(peer, register, now))

    def restart(self) -> None:
        self._settle()
        self._clock.is_alive = False
        self._checkpoints.close()
        if self._in_memory:
            self._memory = self._memory.crash()
        else:
            self._store.close()
        self._start()

    def close(self) -> None:
        self._checkpoints.close()
        self._store.close()

    # What it does

    def _perform(self) -> dict[type[effects.Effect], Callable[[Any], None]]:
        quiet: dict[type[effects.Effect], Callable[[Any], None]] = {
            kind: _nothing for kind in effects.Effect.__subclasses__() if kind is not effects.Record
        }
        loud: dict[type[effects.Effect], Callable[[Any], None]] = {
            effects.Send: self._sent,
            effects.SendAhead: self._sent,
            effects.Reply: lambda one: self._answers.__setitem__(one.request, one.answer),
            effects.TaskWrote: self._wrote,
            effects.KeepCheckpoint: self._checkpointed,
        }
        return quiet | loud

    def _wrote(self, one: effects.TaskWrote) -> None:
        stretch = Stretch(one.number, one.stream, one.offset, one.data)
        self._logs.write(one.job_id, one.index, stretch)
        self._logs.read(one.job_id, one.index)

    def _checkpointed(self, one: effects.KeepCheckpoint) -> None:
        self._checkpoints.keep(one.job_id, one.index, one.part, _nothing)

    def _sent(self, effect: effects.Send | effects.SendAhead) -> None:
        """What it says itself has to be a message."""
        message = effect.message
        frame = message_codec.encode(message)
        try:
            message_codec.decode_work(frame)
            limit = WORK_BYTES_MAX
        except message_codec.MalformedFrame:
            message_codec.decode_control(frame)
            limit = CONTROL_BYTES_MAX
        assert len(frame) <= limit, f"{type(message).__name__} is too long"
        if effect.peer == HONEST:
            self._answer(message)
        else:
            self._remember(message)

    def _answer(self, message: Any) -> None:
        now = self._clock.now()
        answer: Any
        if isinstance(message, messages.Introduce):
            is_ours = message.shape.requirements.labels == OURS  # the rest is for the other one
            self._ours[message.number] = is_ours
            return
        if isinstance(message, messages.Assign) and not self._ours[message.shape]:
            attempts = [
                AttemptId(bundle.first + place)
                for bundle in message.bundles
                for place in range(len(bundle.indices))
            ]
            answer = messages.Refused(attempts, RULES, "it is for the other one")
        elif isinstance(message, messages.Assign):
            outcomes = [
                messages.Outcome(
                    bundle.first + place,  # type: ignore[arg-type]
                    bundle.job,
                    index,
                    "succeeded",
                    b"7",
                    blake3(b"7").digest(),
                    started_at=now,
                    ended_at=now,
                )
                for bundle in message.bundles
                for place, index in enumerate(bundle.indices)
            ]
            answer = messages.Results(now, outcomes, [])
        else:
            return
        self._post(events.Received(HONEST, answer, now))

    def _remember(self, message: Any) -> None:
        """For the hostile one, who has most of it right."""
        if isinstance(message, messages.Introduce):
            self._know("lease", message.lease)
            self._know("shape", message.number)
        elif isinstance(message, messages.Assign):
            for bundle in message.bundles:
                self._know("job", bundle.job)
                self._know("job_id", bundle.job_id)
                for index in bundle.indices:
                    self._know("index", index)

    def _know(self, what: str, value: object) -> None:
        known = self.pools.setdefault(what, [])
        known.append(value)
        del known[:-KNOWN_MAX]

    # What it hears

    def _post(self, event: events.Event) -> None:
        self._runtime.post(event)

    def hear(self) -> bool:
        """One frame of the hostile worker; whether it was a message."""
        random, now = self._random, self._clock.now()
        self._look()
        dice = random.random()
        if dice < 0.05:
            frame = self.maker.message(self._record)
            return self._seen(frame, now)
        kinds, decode = (
            (self._work, message_codec.decode_work)
            if dice < 0.7
            else (self._control, message_codec.decode_control)
        )
        kind = random.choice(kinds)
        if self.pools["attempt"] and dice < 0.4:
            kind = self._results
        try:
            message = decode(self.maker.message(kind))
        except message_codec.MalformedFrame:
            return False
        self._post(events.Received(HOSTILE, message, now))
        return True

    def _look(self) -> None:
        """What the hostile one holds now; it comes anew when that is nothing."""
        worker = self.machine.state.workers.get(HOSTILE)
        held = [] if worker is None else list(worker.attempts)[:KNOWN_MAX]
        self.pools["attempt"] = held
        self.held += bool(held)
        if not held and self._random.random() < 0.3:
            self._post(events.LinkDown(HOSTILE, "again"))
            self._arrive(HOSTILE)
            self._submit(())
            self.turn(self._random.choice((0.1, 1.0)))

    def _seen(self, frame: bytes, now: float) -> bool:
        signed = SignedRecord(
            peer=PeerId(f"seen {self._random.randrange(9)}"),
            payload=frame,
            sequence=self._random.choice((0, 1, (1 << 63) - 1)),
            expires_at=self._clock.unix() + 100.0,
        )
        try:
            sighting = sighting_of(signed, self._clock.unix())
        except UnreadableRecord:
            return False
        assert sighting is not None
        self._post(events.WorkersSeen([sighting]))
        return True

    def turn(self, seconds: float = 0.01) -> None:
        self._world.run_until(self._world.now() + seconds)
        self._settle()

    def _settle(self) -> None:
        """Every commit ends, and nothing that it does ends the node."""
        ends_at = time.monotonic() + PATIENCE_SECONDS
        while not self._runtime.is_quiet and not self._failures:
            try:
                self._calls.get(timeout=0.02)()
            except queue.Empty:
                self._world.run_until(self._world.now() + 0.001)
            if time.monotonic() > ends_at:
                raise Crashed("entries wait, and nothing is committed")
        while not self._calls.empty():
            self._calls.get()()
        if self._failures:
            raise Crashed(repr(self._failures[0])) from self._failures[0]

    def unsettle(self) -> None:
        """What happens to links and time, now and then."""
        dice = self._random.random()
        if dice < 0.3:
            self._post(events.LinkDown(HOSTILE, "gone"))
            self.turn()
            self._arrive(HOSTILE)
        elif dice < 0.4:
            self.restart()
        elif dice < 0.7:
            self.turn(self._random.choice((1.0, 20.0)))
        self._submit(())

    def _submit(self, labels: tuple[tuple[str, str], ...], count: int = 5) -> None:
        self._jobs += 1
        self._request += 1
        job = ulid(int(self._clock.unix() * 1000), self._jobs.to_bytes(10, "big"))
        work = Work("process", command=("true",))
        needs = Requirements(cpu_cores=1.0, labels=labels)
        self._post(
            events.Submit(
                RequestId(self._request),
                job,
                "",
                "owner",
                Specification(work, needs),
                count,
                b"",
                True,
                wait=bool(labels),
            )
        )
        self._know("job_id", job)

    def probe(self) -> None:
        """An honest task still runs, and its result is in the journal."""
        self._post(events.LinkDown(HONEST, "probe"))
        self._arrive(HONEST)
        self._submit(OURS, 1)
        request, ends_at = self._request, self._world.now() + PROBE_SECONDS
        while request not in self._answers:
            self.turn(1.0)
            self._post(events.HeartbeatReceived(HONEST, self._clock.now(), self._clock.now()))
            if self._world.now() > ends_at:
                raise Crashed("an honest task does not end")
        answer = self._answers[request]
        if not isinstance(answer, TaskIsOver) or answer.ended is None:
            raise Crashed(f"an honest task was answered with {answer!r}")
        if answer.ended.state != "succeeded":
            raise Crashed(f"an honest task has {answer.ended.state}: {answer.ended.error}")
        stored = self._store.result(answer.job_id, 0)
        assert stored is not None, "the journal has the result"
        check_scheduler(self.machine)
        self._answers.clear()


def _nothing(_: object) -> None:
    pass
