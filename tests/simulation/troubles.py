"""What goes wrong in the simulated swarm: kills, freezes, cuts, machines and rights that change.

Each fault comes at its own rate and passes after a while; `mend` ends them all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from mycel.core.events import Reopen, Shut, UsageChanged
from mycel.core.model.resources import Usage

from .processes import Process
from .scheduler_process import SchedulerProcess
from .swarm import Swarm
from .worker_process import WorkerProcess

GONE_SECONDS_MAX = 120.0
"""So long after its death a worker is looked for in the tables."""
CAUSES = ("owner", "drain")
WRITING_SECONDS = 0.02
"""As long as a commit takes at most."""


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """How often each fault is made, per virtual second, and for how long it lasts."""

    kill_scheduler: float = 0.03
    kill_writing_scheduler: float = 0.05
    """One that has a job to write, and may have sent its tasks already."""
    kill_worker: float = 0.05
    lose_workers: float = 0.02
    """Half of them at once, for longer than they may stay in anybody's table."""
    freeze_scheduler: float = 0.02
    freeze_worker: float = 0.05
    freeze_loaded_worker: float = 0.05
    """One that holds attempts which have not started, for longer than a lease."""
    break_link: float = 0.15
    kill_gateway: float = 0.01
    change_usage: float = 0.2
    """Somebody else uses a worker's machine more, or less."""
    shut_worker: float = 0.08
    """By its owner, or by somebody who drains it; some hand back what runs."""
    change_models: float = 0.1
    """A worker gains its model, loses it, or has other slots for it."""
    weaken_token: float = 0.05
    """What the user has ends, is revoked, or allows less than it asks for."""
    break_driver: float = 0.03
    """A worker's drivers fail everything for a while."""
    liars: float = 0.25
    """In how many of the worlds a worker claims what it was never given."""
    down_seconds_max: float = 6.0
    frozen_seconds_max: float = 45.0
    """Longer than an idle worker may be silent before it counts as dead."""


class Troubles:
    def __init__(self, swarm: Swarm, trouble: Trouble) -> None:
        self._swarm = swarm
        self._random = swarm.random
        self.trouble = trouble

    def make_for(self, seconds: float) -> None:
        trouble = self.trouble
        begin = self._swarm.clock.now()
        rates: list[tuple[float, Callable[[], None]]] = [
            (trouble.kill_scheduler, lambda: self.kill(self._any_scheduler())),
            (trouble.kill_writing_scheduler, lambda: self._kill_writing(self._any_scheduler())),
            (trouble.kill_worker, lambda: self.kill(self._any_worker())),
            (trouble.lose_workers, self._lose_half),
            (trouble.freeze_scheduler, lambda: self._freeze(self._any_scheduler())),
            (trouble.freeze_worker, lambda: self._freeze(self._any_worker())),
            (trouble.freeze_loaded_worker, self._freeze_loaded),
            (trouble.break_link, self._break),
            (trouble.kill_gateway, lambda: self.kill(self._swarm.gateway)),
            (trouble.shut_worker, lambda: self._shut(self._any_worker())),
            (trouble.change_usage, lambda: self._change_usage(self._any_worker())),
            (trouble.change_models, self._change_models),
            (trouble.weaken_token, self._weaken_token),
            (trouble.break_driver, lambda: self._break_driver(self._any_worker())),
        ]
        for rate, act in rates:
            when = begin + self._random.expovariate(rate)
            while when < begin + seconds:
                self._swarm.clock.call_at(when, act)
                when += self._random.expovariate(rate)

    def _any_scheduler(self) -> SchedulerProcess:
        return self._random.choice(self._swarm.schedulers)

    def _any_worker(self) -> WorkerProcess:
        return self._random.choice(self._swarm.workers)

    def kill(self, process: Process) -> None:
        if not process.is_running:
            return
        process.kill()
        down = self._random.uniform(0.0, self.trouble.down_seconds_max)
        self._swarm.later(down, lambda: self._start(process))

    def _break_driver(self, worker: WorkerProcess) -> None:
        worker.is_broken = True

        def mended() -> None:
            worker.is_broken = False

        self._swarm.later(self._random.uniform(0.0, self.trouble.frozen_seconds_max), mended)

    def _kill_writing(self, scheduler: SchedulerProcess) -> None:
        def opening() -> None:
            scheduler.on_opening = lambda: None
            self._later(WRITING_SECONDS, lambda: self.kill(scheduler))

        scheduler.on_opening = opening

    def _lose_half(self) -> None:
        running = [worker for worker in self._swarm.workers if worker.is_running]
        count = (len(running) + 1) // 2
        for worker in self._random.sample(running, count):
            worker.kill()
            away = self._random.uniform(20.0, 40.0)
            self._swarm.later(away, partial(self._start, worker))
            for scheduler in self._swarm.schedulers:
                self._expect_gone(worker, scheduler, self._swarm.clock.now())

    def _expect_gone(
        self, worker: WorkerProcess, scheduler: SchedulerProcess, lost_at: float
    ) -> None:
        """Within twice the health-check time, until it starts again. A scheduler may hear of it
        only after its death, by a record that outlived it: it has as long from then on."""
        patience = 2 * scheduler.settings.health_check_interval
        boot: int | None = None
        heard_at = lost_at
        left: set[int] = set()

        def look() -> None:
            nonlocal boot, heard_at
            now = self._swarm.clock.now()
            if worker.started_at > lost_at or now > lost_at + GONE_SECONDS_MAX:
                return
            if not scheduler.was_awake_since(lost_at):
                boot = None
                left.clear()
            elif (known := scheduler.known_boot(worker.peer)) != boot:
                left.update(() if boot is None else (boot,))
                boot, heard_at = known, now
            if boot is not None and (boot in left or now > heard_at + patience):
                how = "again" if boot in left else "still"
                told = f"{worker.peer} is {how} in {scheduler.peer}'s table"
                self._swarm.history.complaints.append(f"{told} {now - lost_at:g} s after its death")
            self._swarm.clock.call_at(now + 1.0, look)

        self._swarm.clock.call_at(lost_at, look)

    def _start(self, process: Process) -> None:
        if not process.is_running:
            process.start()

    def _freeze_loaded(self, tries: int = 20) -> None:
        loaded = [worker for worker in self._swarm.workers if worker.has_unstarted]
        if loaded:
            self._freeze(self._random.choice(loaded), 14.0)
        elif tries:
            soon = self._random.uniform(0.05, 0.5)
            self._swarm.later(soon, lambda: self._freeze_loaded(tries - 1))

    def _freeze(self, process: Process, at_least: float = 0.1) -> None:
        if process.is_running and not process.clock.is_frozen:
            process.freeze()
            frozen = self._random.uniform(at_least, self.trouble.frozen_seconds_max)
            clock = process.clock
            self._swarm.later(frozen, lambda: self._thaw(process, clock))

    def _thaw(self, process: Process, clock: object) -> None:
        if process.clock is clock:  # it may have been killed and started since
            process.thaw()

    def _break(self) -> None:
        self._swarm.network.break_connection(self._any_scheduler().peer, self._any_worker().peer)

    def _weaken_token(self) -> None:
        self._swarm.tokens.weaken(self._swarm.unix())
        for worker in self._swarm.workers:
            self._later(5.0, partial(worker.hear_of, self._swarm.tokens.revoked))
        self._submit_with_token()
        self._later(15.0, self._renew_token)

    def _renew_token(self) -> None:
        self._swarm.tokens.renew()
        self._submit_with_token()

    def _submit_with_token(self) -> None:
        """Whatever the user submits brings its token along."""
        for scheduler in self._swarm.schedulers:
            scheduler.credentials.keep(self._swarm.tokens.current, self._swarm.tokens.rights)

    def _later(self, seconds_max: float, act: Callable[[], None]) -> None:
        self._swarm.later(self._random.uniform(0.0, seconds_max), act)

    def _change_models(self) -> None:
        self._any_worker().serve(self._random.choice((None, 0, 1, 2, 3)))

    def _change_usage(self, worker: WorkerProcess) -> None:
        usage = Usage(self._random.randint(0, 16), self._random.randint(0, 16))
        worker.post(UsageChanged(usage))

    def _shut(self, worker: WorkerProcess) -> None:
        random = self._random
        cause = random.choice(CAUSES)
        worker.post(Shut(cause, f"shut for {cause}", random.choice((None, 0.0, 1.0))))
        shut = random.uniform(0.1, 8.0)
        self._swarm.later(shut, lambda: worker.post(Reopen(cause)))

    def mend(self) -> None:
        self._swarm.network.faults = msgspec.structs.replace(
            self._swarm.network.faults,
            delay_seconds_max=0.01,
            break_per_frame=0.0,
            stall_seconds_max=0.0,
        )
        self._renew_token()
        for liar in self._swarm.liars:
            liar.lies = False
        for process in self._swarm.processes:
            process.thaw()
            self._start(process)
        for worker in self._swarm.workers:
            worker.is_broken = False
            for cause in CAUSES:
                worker.post(Reopen(cause))
        for worker in self._swarm.workers:
            worker.serve(2)
