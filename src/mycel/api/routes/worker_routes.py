"""Workers and totals, as clients read them."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from mycel.api.answers.answers import iso_or_none
from mycel.api.backend import ask_for
from mycel.api.http.exchange import Request
from mycel.core.events import CloseWorker, ReadFigures, ReadWorkers
from mycel.core.identifiers import RequestId
from mycel.core.model.gpu_names import family_keys, vendor_of
from mycel.core.model.model_names import shown
from mycel.core.model.prices import Tariff
from mycel.core.model.resources import USAGE_STEPS, Gpu, Usage
from mycel.core.views import Figures, WorkerView


class GpuAnswer(msgspec.Struct, frozen=True):
    model: str
    """As its driver calls it."""
    memory: int
    vendor: str
    family: str
    """What tasks may call it; empty if its name does not say."""


class PriceAnswer(msgspec.Struct, frozen=True):
    """In whatever unit the swarm has agreed on."""

    floor: float
    """Each attempt costs at least this."""
    cpu_core_hour: float
    memory_gb_hour: float
    gpu_hour: float
    surge: float
    """How much dearer a full worker is: 0.5 is half as much again."""


class CapabilitiesAnswer(msgspec.Struct, frozen=True):
    models: tuple[str, ...]
    memory: int
    cpu_cores: float
    disk: int
    gpus: list[GpuAnswer]
    drivers: tuple[str, ...]
    labels: dict[str, str]
    arch: str
    os: str
    software: dict[str, str]
    custom: dict[str, float]
    sandbox: str | None = None
    """What its processes and functions run in."""
    walls: tuple[str, ...] = ()
    """All that holds them."""
    advice: str = ""
    """What its owner can do for better walls; empty if there is nothing better."""
    network: bool = True
    """Whether tasks that ask for the network get it."""
    limits: tuple[str, ...] = ()
    """Which it can enforce."""
    price: PriceAnswer | None = None
    """What it asks; None if it asks nothing."""


class LoadAnswer(msgspec.Struct, frozen=True):
    running: int
    """Attempts of this scheduler that are out with the worker."""
    leases: int
    slots: int
    cpu_cores_free: float | None
    """None, as the other figures of what it does, for one that is only known: it has no link
    by which it could say."""
    memory_free: int | None
    gpus_free: float | None
    tasks: int | None = 0
    """Attempts that it holds, of all schedulers."""
    cpu_usage: float | None = None
    """How much of the machine is really in use, by whomever, from 0 to 1; None if it does not
    say."""
    memory_usage: float | None = None
    gpu_usage: list[float | None] = []


class HealthAnswer(msgspec.Struct, frozen=True):
    success_rate: float | None
    avg_completion_time: float | None
    """Seconds."""
    last_seen: str | None
    consecutive_failures: int


class SourceAnswer(msgspec.Struct, frozen=True):
    fact: str
    """`presence`, `capabilities` or `load`."""
    source: str
    """Who said so: the worker itself when it `registered` or over its `link`; its record in
    the `dht`; `gossip`, a `gateway`, a `call` or a mere `connection` brought it here."""
    age_seconds: float


class WorkerAnswer(msgspec.Struct, frozen=True):
    peer_id: str
    name: str
    state: str
    accepting: bool
    capabilities: CapabilitiesAnswer
    load: LoadAnswer
    health: HealthAnswer
    rtt_ms: float | None
    sources: list[SourceAnswer]
    """What is known of it, from whom, and since when."""
    addresses: tuple[str, ...]
    version: str
    closed_for: str
    """Why it is not accepting; empty while it is."""


class WorkerList(msgspec.Struct, frozen=True):
    items: list[WorkerAnswer]
    next: str | None


class StatsAnswer(msgspec.Struct, frozen=True):
    queue_depth: int
    tasks_running: int
    tasks_succeeded: int
    tasks_failed: int
    tasks_cancelled: int
    attempts_ended_unsuccessfully: int
    success_rate: float
    """Of all that succeeded or failed; 1 before the first."""
    completion_rate: float
    """Tasks per second that succeeded or failed, over the last minute."""
    average_latency_seconds: float
    """From queue to terminal state, over the last minute; 0 if none ended in it."""
    pool_size: int
    workers_known: int
    workers_busy: int
    jobs_open: int
    leases_held: int


def _gpu(gpu: Gpu) -> GpuAnswer:
    vendor, families = vendor_of(gpu.model, gpu.vendor), family_keys(gpu.model)
    return GpuAnswer(gpu.model, gpu.memory, vendor, " or ".join(families))


def _price(tariff: Tariff) -> PriceAnswer | None:
    free = tariff == Tariff(surge=tariff.surge)
    return None if free else PriceAnswer(**msgspec.structs.asdict(tariff))


def worker(view: WorkerView) -> WorkerAnswer:
    has, free = view.capabilities, view.free
    return WorkerAnswer(
        peer_id=view.peer,
        name=view.name,
        state=view.state,
        accepting=view.accepting,
        capabilities=CapabilitiesAnswer(
            models=tuple(map(shown, has.models)),
            memory=has.memory,
            cpu_cores=has.cpu_cores,
            disk=has.disk,
            gpus=[_gpu(gpu) for gpu in has.gpus],
            drivers=has.drivers,
            labels=dict(has.labels),
            arch=has.arch,
            os=has.os,
            software=dict(has.software),
            custom=dict(has.custom),
            sandbox=has.sandbox or None,
            walls=has.walls,
            advice=has.advice,
            network=has.network,
            limits=has.limits,
            price=_price(has.price),
        ),
        load=LoadAnswer(
            running=view.running,
            leases=view.leases,
            slots=view.slots,
            cpu_cores_free=None if free is None else free.cpu_millis / 1000,
            memory_free=None if free is None else free.memory,
            gpus_free=None if free is None else sum(free.gpu_millis) / 1000,
            tasks=view.tasks,
            **_usage(view.usage),
        ),
        health=HealthAnswer(
            success_rate=view.success_rate,
            avg_completion_time=view.avg_completion_seconds,
            last_seen=iso_or_none(view.last_seen_at),
            consecutive_failures=view.consecutive_failures,
        ),
        rtt_ms=None if view.rtt_seconds is None else round(view.rtt_seconds * 1000, 3),
        sources=[
            SourceAnswer(fact.fact, fact.source, max(0.0, round(time.time() - fact.at, 3)))
            for fact in view.facts
        ],
        addresses=view.addresses,
        version=view.software_version,
        closed_for=view.closed_for,
    )


def _usage(usage: Usage | None) -> dict[str, Any]:
    if usage is None:
        return {}
    return {
        "cpu_usage": usage.cpu / USAGE_STEPS,
        "memory_usage": usage.memory / USAGE_STEPS,
        "gpu_usage": [None if one < 0 else one / USAGE_STEPS for one in usage.gpus],
    }


async def list_workers(request: Request) -> None:
    request.query()
    views: list[WorkerView] = await ask_for(request.backend, list, ReadWorkers)
    await request.answer(WorkerList([worker(view) for view in views], None))


async def drain_worker(request: Request) -> None:
    await _close(request, True, request.query().seconds("hand_back_after"))


async def resume_worker(request: Request) -> None:
    request.query()
    await _close(request, False, None)


async def _close(request: Request, on: bool, hand_back_after: float | None) -> None:
    caller = request.caller

    def make(number: RequestId) -> CloseWorker:
        return CloseWorker(number, request.name, on, caller.user, caller.token, hand_back_after)

    await request.answer(worker(await ask_for(request.backend, WorkerView, make)))


async def show_stats(request: Request) -> None:
    request.query()
    figures = await ask_for(request.backend, Figures, ReadFigures)
    shown = request.backend.figures()
    totals = StatsAnswer(
        queue_depth=figures.tasks_queued,
        tasks_running=figures.tasks_live,
        tasks_succeeded=figures.tasks_succeeded,
        tasks_failed=figures.tasks_failed,
        tasks_cancelled=figures.tasks_cancelled,
        attempts_ended_unsuccessfully=figures.attempts_ended_unsuccessfully,
        success_rate=shown.success_rate,
        completion_rate=shown.completions_per_second,
        average_latency_seconds=shown.latency_mean_seconds,
        pool_size=figures.workers_available,
        workers_known=figures.workers_known,
        workers_busy=figures.workers_busy,
        jobs_open=figures.jobs_open,
        leases_held=figures.leases_held,
    )
    await request.answer(totals)
