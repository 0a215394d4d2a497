"""The processes of a simulated swarm and the network between them, drawn from one seed."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from mycel.core.identifiers import LeaseId, PeerId
from mycel.discovery.methods import Ways
from mycel.testing.swarm.memory_swarm import Faults, MemoryNetwork

from .history import History
from .liar_process import LiarProcess
from .processes import LIAR, GatewayProcess, Process
from .scheduler_process import SchedulerProcess
from .time import EPOCH, VirtualClock
from .tokens import Tokens
from .worker_process import WorkerProcess

WAYS = (Ways(), Ways(gossip=False), Ways(dht=False), Ways(shard_bits=0))


class Swarm:
    def __init__(self, seed: int, ways: Ways | None = None, liars: float = 0.0) -> None:
        self.random = Random(seed)
        self.clock = VirtualClock()
        self.history = History()
        random = self.random
        faults = Faults(
            delay_seconds_min=0.0002,
            delay_seconds_max=random.choice((0.001, 0.01, 0.2, 0.8)),
            break_per_frame=random.choice((0.0, 0.0005)),
            stall_per_second=random.choice((0.0, 0.02)),
            stall_seconds_max=3.0,
            gossip_loss=0.4,
            gossip_repeat=0.2,
            dht_loss=random.choice((0.0, 0.3)),
            knock_loss=random.choice((0.0, 0.3, 1.0)),
        )
        ways = random.choice(WAYS) if ways is None else ways
        self.network = MemoryNetwork(self.clock, random, faults)
        self.tokens = Tokens(random)
        gateways = (self.network.address_of("gateway"),)  # type: ignore[arg-type]
        self.gateway = GatewayProcess(self.clock, self.network, "gateway", random)
        self.schedulers = [
            SchedulerProcess(
                self.clock,
                self.network,
                f"scheduler-{number}",
                random,
                gateways,
                self.history,
                ways,
                self.tokens,
            )
            for number in range(random.choice((1, 1, 2)))
        ]
        self.workers = [
            WorkerProcess(
                self.clock,
                self.network,
                f"worker-{number}",
                random,
                gateways,
                self.history,
                float(random.choice((1, 2, 4))),
                random.choice((0.005, 0.5)),
                ways,
            )
            for number in range(random.choice((1, 2, 3)))
        ]
        # Drawn apart: a world without a liar is the same as if there were no such thing.
        lying = Random(f"liar {seed}")
        self.liars = [
            LiarProcess(
                self.clock,
                self.network,
                LIAR,
                lying,
                gateways,
                self.history,
                float(lying.choice((1, 2))),
                0.005,
                ways,
            )
            for _ in range(lying.random() < liars)
        ]
        for liar in self.liars:
            liar.schedulers, liar.honest = self.schedulers, list(self.workers)
        self.workers += self.liars
        for worker in self.workers:
            worker.holders_end = self._lease_end

    @property
    def processes(self) -> list[Process]:
        return [self.gateway, *self.schedulers, *self.workers]

    def _lease_end(self, scheduler: PeerId, worker: PeerId, lease: LeaseId) -> float | None:
        [holder] = [one for one in self.schedulers if one.peer == scheduler]
        return holder.lease_end(worker, lease)

    def unix(self) -> float:
        return self.clock.now() + EPOCH

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        self.clock.call_at(self.clock.now() + seconds, act)
