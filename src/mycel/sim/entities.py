"""Jobs, tasks, and servers with several resources. Times are integer nanoseconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

NS_PER_S: Final = 1_000_000_000
NS_PER_MS: Final = 1_000_000
WHOLE_GPU_MILLI: Final = 1000


@dataclass(frozen=True, slots=True)
class Demand:
    """What a task needs of one server. `gpu_milli` is the share of each of its GPUs."""

    cores_milli: int = 1000
    memory_mib: int = 0
    gpus: int = 0
    gpu_milli: int = WHOLE_GPU_MILLI
    gpu_models: frozenset[str] = frozenset()
    """Empty: any model will do."""

    def __str__(self) -> str:
        parts = [f"{self.cores_milli / 1000:g} cores"]
        if self.memory_mib:
            parts.append(f"{self.memory_mib} MiB")
        if self.gpus:
            parts.append(f"{self.gpus} × {self.gpu_milli / 1000:g} GPU")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Capacity:
    cores_milli: int
    memory_mib: int = 0
    gpus: int = 0
    gpu_model: str = ""


SLOT: Final = Demand()
"""One core: what a task of a slot scheduler needs."""


class Resources:
    """What is free on one server: in fact, or as some scheduler believes."""

    __slots__ = ("capacity", "cores_milli", "gpus_milli", "memory_mib")

    def __init__(self, capacity: Capacity) -> None:
        self.capacity: Final = capacity
        self.cores_milli = capacity.cores_milli
        self.memory_mib = capacity.memory_mib
        self.gpus_milli = [WHOLE_GPU_MILLI] * capacity.gpus

    def fits(self, demand: Demand) -> bool:
        if self.cores_milli < demand.cores_milli or self.memory_mib < demand.memory_mib:
            return False
        if not demand.gpus:
            return True
        if demand.gpu_models and self.capacity.gpu_model not in demand.gpu_models:
            return False
        return sum(free >= demand.gpu_milli for free in self.gpus_milli) >= demand.gpus

    def best_gpus(self, demand: Demand) -> tuple[int, ...]:
        """The fullest GPUs that still have room: best fit."""
        if not demand.gpus:
            return ()
        roomy = [
            (free, gpu) for gpu, free in enumerate(self.gpus_milli) if free >= demand.gpu_milli
        ]
        return tuple(gpu for _, gpu in sorted(roomy)[: demand.gpus])

    def take(self, demand: Demand, gpus: tuple[int, ...]) -> None:
        assert self.fits(demand), "the caller has looked"
        self.cores_milli -= demand.cores_milli
        self.memory_mib -= demand.memory_mib
        for gpu in gpus:
            self.gpus_milli[gpu] -= demand.gpu_milli

    def give(self, demand: Demand, gpus: tuple[int, ...]) -> None:
        self.cores_milli += demand.cores_milli
        self.memory_mib += demand.memory_mib
        for gpu in gpus:
            self.gpus_milli[gpu] += demand.gpu_milli

    def copy(self, other: Resources) -> None:
        self.cores_milli, self.memory_mib = other.cores_milli, other.memory_mib
        self.gpus_milli = list(other.gpus_milli)

    def reset(self) -> None:
        self.cores_milli = self.capacity.cores_milli
        self.memory_mib = self.capacity.memory_mib
        self.gpus_milli = [WHOLE_GPU_MILLI] * self.capacity.gpus


@dataclass(slots=True, eq=False)
class Task:
    """One placement. `attempt` counts its starts: what an old attempt sends is ignored."""

    index: int
    job: Job
    demand: Demand
    duration_ns: int
    estimate_ns: int
    remaining_ns: int = 0
    server: int = -1
    gpus: tuple[int, ...] = ()
    attempt: int = 0
    is_running: bool = False
    submitted_ns: int = 0
    start_ns: int = -1
    end_ns: int = -1
    preemptions: int = 0
    losses: int = 0
    hops: int = 0


@dataclass(slots=True, eq=False)
class Job:
    """`entry` is the server or scheduler that it arrives at, as the policy numbers them."""

    index: int
    arrival_ns: int
    entry: int
    priority: int = 0
    is_gang: bool = False
    data_bytes: int = 0
    name: str = ""
    tasks: list[Task] = field(default_factory=list)
    unfinished: int = 0
    end_ns: int = -1

    def add(self, index: int, demand: Demand, duration_ns: int, estimate_ns: int) -> None:
        task = Task(index, self, demand, duration_ns, estimate_ns, remaining_ns=duration_ns)
        task.submitted_ns = self.arrival_ns
        self.tasks.append(task)
        self.unfinished += 1


class Server:
    """A machine. Only the engine changes it."""

    __slots__ = ("index", "is_up", "resources", "running", "slowdown")

    def __init__(self, index: int, capacity: Capacity) -> None:
        self.index: Final = index
        self.resources: Final = Resources(capacity)
        self.running: Final[dict[int, Task]] = {}
        self.is_up = True
        self.slowdown = 1.0
        """A straggler runs its tasks this many times longer."""

    def fits(self, demand: Demand) -> bool:
        return self.is_up and self.resources.fits(demand)
