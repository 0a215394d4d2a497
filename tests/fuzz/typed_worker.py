"""A worker under typed messages: the real machine, turn and spool, and two schedulers.

One scheduler is honest. What the other says is nearly right; and what tasks leave is as strange
as a driver can tell it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

from blake3 import blake3

from mycel.core import effects, events, messages
from mycel.core.identifiers import AttemptId, JobId, JobNumber, LeaseId, PeerId, ShapeNumber
from mycel.core.invariants import check_worker
from mycel.core.machine_settings import WorkerSettings
from mycel.core.model.resources import Capabilities, Requirements
from mycel.core.model.work import Finished, FinishedState, Shape, Work
from mycel.core.worker import WorkerMachine
from mycel.runtime.runtime import Runtime
from mycel.store.spool import Spool
from mycel.swarm import message_codec
from mycel.swarm.frame_limits import CONTROL_BYTES_MAX, WORK_BYTES_MAX
from tests.simulation.time import ProcessClock, VirtualClock

from .typed_scheduler import HONEST, HOSTILE, KNOWN_MAX, Crashed
from .typed_values import FLOATS, INTEGERS, TEXTS, Maker, Pools, structs_of

SHAPE: Final = Shape("process", Requirements(cpu_cores=1.0))
MACHINE: Final = Capabilities(
    cpu_cores=4.0, memory=1 << 34, drivers=("process", "python", "model"), custom=(("zone", 4.0),)
)
LONG: Final = ("stdout", "stderr", "value", "error")
LEASES_SECONDS: Final = 120.0
"""After so long without a renewal every registration is over."""


class WorkerTarget:
    name = "worker"

    def __init__(self, folder: Path, random: Random) -> None:
        self._folder = folder
        self._random = random
        self._world = VirtualClock()
        self.pools: Pools = {
            "request": [1, 2, 3],
            "shape": [1, 2],
            "number": [1, 2],
            "attempt": [1, 2, 3],
            "job_id": ["job"],
        }
        self.maker = Maker(random, self.pools)
        self._work = structs_of(messages.WorkMessage)
        self._control = structs_of(messages.ControlMessage)
        self._failures: list[BaseException] = []
        self._heard: list[Any] = []
        self._runs: list[AttemptId] = []
        self.refused_entries = 0
        self._numbers = 1 << 40
        self._start()

    def _start(self) -> None:
        self._spool = Spool(self._folder / "spool.db")
        self._spool._connection.execute("PRAGMA synchronous = OFF")
        self.machine = WorkerMachine(
            WorkerSettings(), MACHINE, name="worker", digest=lambda value: blake3(value).digest()
        )
        self._clock = ProcessClock(self._world, 0.0)
        self._runtime = Runtime(
            self.machine, self._clock, None, self._perform(), self._failures.append
        )
        kept: dict[PeerId, list[messages.Outcome]] = {}
        for scheduler, _, payload in self._spool.load():
            kept.setdefault(PeerId(scheduler), []).append(message_codec.decode_outcome(payload))
        self._post(events.SpoolLoaded(self._spool.raise_boot(), kept))
        self._runs = []
        for peer in (HONEST, HOSTILE):
            self._welcome(peer)

    def _welcome(self, peer: PeerId) -> None:
        self._post(events.LinkUp(peer))
        welcome = messages.Welcome(messages.WIRE_VERSION, 1, 15.0, [], [])
        self._post(events.Received(peer, welcome, self._clock.now()))

    def restart(self) -> None:
        self.turn()
        self._clock.is_alive = False
        self._spool.close()
        self._start()

    def close(self) -> None:
        self._spool.close()

    def _perform(self) -> dict[type[effects.Effect], Callable[[Any], None]]:
        quiet: dict[type[effects.Effect], Callable[[Any], None]] = {
            kind: (lambda _: None) for kind in effects.Effect.__subclasses__()
        }
        return quiet | {
            effects.Send: self._sent,
            effects.SendAhead: self._sent,
            effects.RunAttempts: lambda one: self._runs.extend(run.attempt for run in one.runs),
            effects.KillRuns: self._killed,
            effects.WithdrawRuns: self._withdrawn,
            effects.SpoolOutcomes: self._spooled,
            effects.UnspoolOutcomes: lambda one: self._spool.drop(one.scheduler, one.attempts),
        }

    def _sent(self, effect: effects.Send) -> None:
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
            self._heard.append(message)
        elif isinstance(message, messages.Register):
            known = self.pools.setdefault("lease", [])
            known.append(message.lease)
            del known[:-KNOWN_MAX]

    def _spooled(self, effect: effects.SpoolOutcomes) -> None:
        rows = [
            (effect.scheduler, one.attempt, message_codec.encode_outcome(one))
            for one in effect.outcomes
        ]
        refused = self._spool.keep(rows)
        self.refused_entries += len(refused)

    def _withdrawn(self, effect: effects.WithdrawRuns) -> None:
        gone = [one for one in effect.attempts if one in self._runs]
        self._runs = [one for one in self._runs if one not in gone]
        self._post(events.RunsWithdrawn(gone))

    def _killed(self, effect: effects.KillRuns) -> None:
        gone = [one for one in effect.attempts if one in self._runs]
        self._runs = [one for one in self._runs if one not in gone]
        self._post(events.RunsFinished([Finished(one, "cancelled") for one in gone]))

    def _post(self, event: events.Event) -> None:
        self._runtime.post(event)

    def hear(self) -> bool:
        random = self._random
        if self._runs and random.random() < 0.3:
            self._finish(strange=True)
            return True
        kinds, decode = random.choice(
            ((self._work, message_codec.decode_work), (self._control, message_codec.decode_control))
        )
        kind = random.choice(kinds)
        try:
            message = decode(self.maker.message(kind))
        except message_codec.MalformedFrame:
            return False
        self._post(events.Received(HOSTILE, message, self._clock.now()))
        return True

    def _finish(self, *, strange: bool) -> None:
        """Some of what runs ends, as drivers may tell it."""
        random = self._random
        run = self._runs.pop(random.randrange(len(self._runs)))
        if not strange:
            self._post(events.RunsFinished([Finished(run, "succeeded", value=b"7")]))
            return
        some: dict[str, tuple[Any, ...]] = {
            "exit_code": INTEGERS,
            "peak_memory": INTEGERS,
            "cpu_seconds": FLOATS,
            "started_at": FLOATS,
            "ended_at": FLOATS,
            "error": (*TEXTS, "x" * 20_000_000, "\ud800" * 100_000),
            "stdout": (b"", b"x" * (10 << 20)),
            "stderr": (b"", b"x" * (10 << 20)),
            "value": (b"7", b"[" * 5000, b"1" * (20 << 20)),
        }
        chosen = random.sample(sorted(some), random.choice((0, 1, 1, 2)))
        if random.random() < 0.95:  # megabytes take their time
            chosen = [one for one in chosen if one not in LONG]
        fields = {name: random.choice(some[name]) for name in chosen}
        state: FinishedState = random.choice(("succeeded", "failed", "timed_out", "cancelled"))
        self._post(events.RunsFinished([Finished(run, state, **fields)]))

    def turn(self, seconds: float = 0.01) -> None:
        self._world.run_until(self._world.now() + seconds)
        if self._failures:
            raise Crashed(repr(self._failures[0])) from self._failures[0]

    def unsettle(self) -> None:
        dice = self._random.random()
        if dice < 0.4:
            self._post(events.LinkDown(HOSTILE, "gone"))
            self.turn()
            self._welcome(HOSTILE)
        elif dice < 0.6:
            self.restart()
        else:
            self.turn(self._random.choice((1.0, 20.0)))

    def probe(self) -> None:
        """An honest scheduler's task still runs."""
        self._post(events.LinkDown(HOSTILE, "probe"))
        self.turn(LEASES_SECONDS)
        while self._runs:
            self._finish(strange=False)
            self.turn()
        self._post(events.Reopen("drain"))
        self._heard.clear()
        self._numbers += 1
        self._say(messages.Renew(self._clock.now(), LeaseId(0)))
        registers = [one for one in self._heard if isinstance(one, messages.Register)]
        if not registers:
            raise Crashed(f"an honest scheduler is not registered with: {self._heard[-3:]}")
        lease, shape = registers[-1].lease, ShapeNumber(1)
        self._say(messages.Welcome(messages.WIRE_VERSION, 1, 15.0, [], []))
        self._say(messages.Introduce(lease, shape, SHAPE))
        self._say(messages.Assign(lease, shape, 1, [self._bundle()]))
        if not self._runs:
            raise Crashed(f"an honest task does not run: {self._heard[-3:]}")
        self._finish(strange=False)
        self.turn()
        told = [one for one in self._heard if isinstance(one, messages.Results)]
        if not any(o.attempt == self._numbers for one in told for o in one.outcomes):
            raise Crashed("an honest task's result is not told")
        acknowledged = [o.attempt for one in told for o in one.outcomes]
        self._say(messages.Acknowledge(acknowledged))
        check_worker(self.machine)
        self._welcome(HOSTILE)

    def _say(self, message: Any) -> None:
        self._post(events.Received(HONEST, message, self._clock.now()))
        self.turn(0.1)

    def _bundle(self) -> messages.Bundle:
        work = Work("process", command=("true",))
        first = AttemptId(self._numbers)
        return messages.Bundle(first, JobNumber(1), JobId("job"), 1, work, [0], [1], [])
