"""`mycel scheduler`: the program."""

from __future__ import annotations

import asyncio
import random
import socket
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from blake3 import blake3

from mycel import __version__, _native
from mycel.access import tokens
from mycel.access.key_files import load_or_create_key
from mycel.blobs.blob_store import BlobStore
from mycel.blobs.claims import BlobClaims
from mycel.blobs.scheduler_blobs import SchedulerBlobs, SchedulerView
from mycel.config import Configuration
from mycel.config.conflicts import risks
from mycel.config.settings import Api
from mycel.core.events import DataHeld, Event
from mycel.core.machine_settings import BreakerSettings, RetrySettings, SchedulerSettings
from mycel.core.matching import Algorithm
from mycel.core.scheduler import Scheduler
from mycel.discovery.peer_book import PeerBook
from mycel.membership.protocols import reserves, ways_of
from mycel.roles.role_process import Options, Program, RoleFault, run
from mycel.runtime.busy_poll import BusyPoll
from mycel.runtime.clock import LoopClock
from mycel.store.checkpoints import CheckpointFiles
from mycel.store.live_logs import LiveLogs
from mycel.store.sqlite.sqlite_journal import SqliteStore

from .api_backend import SchedulerBackend
from .job_credentials import Credentials
from .network_view import SchedulerNetwork
from .scheduler_node import SchedulerNode
from .selection_settings import load_algorithms, selection_of

if TYPE_CHECKING:
    from mycel.api.backend import Clusters
    from mycel.api.http.caller_limits import Limits
    from mycel.api.http.certificates import Certificate
    from mycel.api.http.server import ApiServer


SWEEP_SECONDS: Final = 30.0
"""So long after the start, checkpoints that a crash has left behind are removed."""
SWITCH_SECONDS: Final = 0.0005
"""So long a thread waits for the interpreter lock before it insists (Python: 5 ms). The writer
wants it after each row; its commits must not stand behind a busy loop."""


def main(options: Options) -> int:
    return run(options, partial(serve, port=options.port))


def settings_of(configuration: Configuration) -> SchedulerSettings:
    scheduler = configuration.scheduler
    health, retry = scheduler.fault_tolerance, scheduler.retry
    return SchedulerSettings(
        lease_seconds=scheduler.lease_seconds,
        health_check_interval=health.health_check_interval,
        health_check_timeout=health.health_check_timeout,
        max_consecutive_failures=health.max_consecutive_failures,
        max_concurrent_tasks=scheduler.max_concurrent_tasks,
        max_queued_tasks=scheduler.max_queued_tasks,
        max_batch_tasks=scheduler.max_batch_tasks,
        retention_seconds=scheduler.retention_days * 86400.0,
        retention_tasks=scheduler.retention_tasks,
        retention_bytes=scheduler.retention_size,
        task_timeout=(
            scheduler.task_timeout if configuration.is_set("scheduler.task_timeout") else None
        ),
        model_task_timeout=scheduler.task_timeout,
        discovery_interval=scheduler.discovery_interval,
        linked_workers_max=scheduler.max_linked_workers,
        known_workers_max=scheduler.max_known_workers,
        selection=selection_of(scheduler),
        breaker=BreakerSettings(
            failures_max=health.max_consecutive_failures,
            quarantine_seconds=health.quarantine_seconds,
        ),
        retry=RetrySettings(
            enable_retries=health.enable_retries,
            max_attempts=retry.max_attempts,
            max_retries=health.max_retries,
            backoff=health.retry_backoff,
            backoff_base=retry.backoff_base,
            backoff_max=retry.backoff_max,
            retry_on_timeout=retry.retry_on_timeout,
            retry_on_worker_failure=retry.retry_on_worker_failure,
            poison_attempts=retry.poison_attempts,
        ),
    )


async def serve(program: Program, port: int | None) -> None:
    from mycel.api.http.caller_limits import Limits

    sys.setswitchinterval(SWITCH_SECONDS)
    configuration = program.configuration
    bound = _bound(configuration, port)
    algorithms = load_algorithms(configuration.scheduler.selection_algorithm, program.warn)
    loop = asyncio.get_running_loop()
    path = program.folder.path / "journal.db"
    store = SqliteStore(path, loop.call_soon_threadsafe, swarm=configuration.swarm.name)
    machine = _machine(configuration, algorithms)
    backend = _backend(program, machine, store)
    checkpoints = CheckpointFiles(path, loop.call_soon_threadsafe)
    credentials = _credentials(program)
    keeping = keeping_of(program, machine, lambda event: node.post(event))
    node = _node(program, machine, store, backend, checkpoints, credentials, keeping)
    backend.checkpoints = checkpoints
    backend.credentials = credentials
    backend.spread = program.revoking.spread
    backend.open_clusters = lambda: _open_clusters(program)
    backend.is_stalled = lambda: node.runtime.is_stalled
    backend.log_lines_dropped = lambda: program.log.lines_dropped
    limits = Limits()
    set_limits(limits, configuration.scheduler.api)
    certificate = _certificate(program)

    def load_chosen(changed: Configuration) -> None:
        chosen = changed.scheduler.selection_algorithm
        if chosen not in algorithms:  # installed, or mended, since the scheduler started
            algorithms.update(load_algorithms(chosen, program.warn))

    def take_over(changed: Configuration) -> None:
        set_limits(limits, changed.scheduler.api)
        if certificate is not None:
            program.show_certificate(certificate.path)
        files = changed.scheduler.files
        keeping.limit(files.store_size, files.max_blob_size, files.upload_hours * 3600.0)
        node.reconfigure(settings_of(changed), changed.scheduler.announce_interval)

    def read_certificate(changed: Configuration) -> None:
        _replace_certificate(certificate, changed.scheduler.api)

    program.before_reload += [load_chosen, read_certificate]
    program.on_reload.append(take_over)
    swarm = await program.start_swarm(node)
    api: ApiServer | None = None
    try:
        node.start(swarm)
        network = SchedulerNetwork(
            node, machine, program.options.name, __version__, ways_of(configuration)
        )
        backend.start(node.post, swarm.peer, network)
        backend.keep_blobs(keeping)
        api = await _start_api(program, backend, bound, limits, certificate)
        loop.call_later(SWEEP_SECONDS, checkpoints.sweep, machine.is_live)
        shown = "" if certificate is None else certificate.path
        program.ready(swarm.peer, swarm.addresses, api.address, certificate=shown)
        for text in risks(configuration):
            program.warn_aloud("risk", text)
        await program.until_ended()
    finally:
        await _stop(api, backend, node)
        await keeping.stop()
        await swarm.stop()
        store.close()
        checkpoints.close()
        backend.close()
        bound.close()


def _backend(program: Program, machine: Scheduler, store: SqliteStore) -> SchedulerBackend:
    """Raises `RoleFault`."""
    from mycel.api.submission.model_owners import NamesUnreadable

    folder = program.folder.path
    logs, names = LiveLogs(folder / "journal.db"), folder / "model-names.json"
    try:
        return SchedulerBackend(machine, store, logs, program.options.name, __version__, names)
    except NamesUnreadable as error:
        raise RoleFault(str(error)) from error


def _open_clusters(program: Program) -> Clusters:
    from mycel.federation.registry.cluster_registry import FOLDER, open_registry

    return open_registry(program.folder.path.parent / FOLDER, time.time)


def _bound(configuration: Configuration, port: int | None) -> socket.socket:
    """First of all: a port in use should cost nobody a started node."""
    from mycel.api.http.server import CannotBind, PortInUse, bind

    address = configuration.scheduler.api.bind_address
    try:
        return bind(address.host, address.port if port is None else port)
    except (PortInUse, CannotBind) as error:
        raise RoleFault(str(error)) from error


def set_limits(limits: Limits, api: Api) -> None:
    limits.request_bytes = api.max_request_size
    limits.bodies_bytes = api.max_bodies_size
    limits.connections = api.max_connections
    limits.connections_per_address = api.max_connections_per_address
    limits.head_seconds = api.head_seconds
    limits.idle_seconds = api.idle_seconds
    limits.stall_seconds = api.stall_seconds
    limits.streams = api.max_streams
    limits.streams_per_user = api.max_streams_per_user
    limits.waits_per_user = api.max_waits_per_user


def _certificate(program: Program) -> Certificate | None:
    from mycel.api.http.certificates import BadCertificate, Certificate

    api = program.configuration.scheduler.api
    if not api.tls_cert:
        return None
    try:
        tell = partial(program.warn_aloud, "certificate")
        return Certificate(_path(api.tls_cert), _path(api.tls_key), tell)
    except BadCertificate as error:
        raise RoleFault(f"scheduler.api.{error}") from error


def _path(text: str) -> str:
    return str(Path(text).expanduser().absolute())


def _replace_certificate(certificate: Certificate | None, api: Api) -> None:
    """A pair that cannot be used is not taken over, and nothing else of the change is."""
    from mycel.api.http.certificates import BadCertificate

    if (certificate is None) != (not api.tls_cert):
        raise RoleFault("scheduler.api.tls_cert: TLS is switched on and off by a restart only")
    if certificate is None:
        return
    try:
        certificate.replace(_path(api.tls_cert), _path(api.tls_key))
    except BadCertificate as error:
        raise RoleFault(f"scheduler.api.{error}; the API keeps the certificate it had") from error


def _machine(configuration: Configuration, algorithms: Mapping[str, Algorithm]) -> Scheduler:
    return Scheduler(
        settings_of(configuration),
        digest=lambda value: blake3(value).digest(),
        keyed=lambda secret, message: blake3(message, key=secret),
        random=random.random,
        stopwatch=time.perf_counter,
        algorithms=algorithms,
        hasher=blake3,
    )


def _node(
    program: Program,
    machine: Scheduler,
    store: SqliteStore,
    backend: SchedulerBackend,
    checkpoints: CheckpointFiles,
    credentials: Credentials,
    keeping: SchedulerBlobs,
) -> SchedulerNode:
    configuration = program.configuration
    loop = asyncio.get_running_loop()
    return SchedulerNode(
        machine,
        LoopClock(loop),
        store,
        backend,
        swarm_name=configuration.swarm.name,
        gateways=tuple(configuration.swarm.bootstrap),
        announce_seconds=configuration.scheduler.announce_interval,
        survey_seconds=configuration.scheduler.discovery_interval,
        own_peers=lambda: [one.peer for one in program.companions],
        ways=ways_of(configuration),
        random=random.Random(),
        note=program.note,
        failed=program.fail,
        alarm=program.log.error,
        book=PeerBook(program.folder.path / "peers.json"),
        reserves=reserves(configuration),
        revoking=program.revoking,
        checkpoints=checkpoints,
        busy_poll=BusyPoll(loop.call_soon, lambda: machine.tasks_out),
        credentials=credentials,
        arrival=program.arrival(),
        blobs=keeping.channels,
    )


def _credentials(program: Program) -> Credentials:
    secret = load_or_create_key(program.folder.identity_path, "this node's identity")
    _, peer = _native.identity(secret)
    return Credentials(
        lambda token: tokens.bind(program.owner_public, token, peer),
        program.revoking.revoked,
        program.note,
        keep_at=program.folder.path / "credentials",
    )


def keeping_of(
    program: Program, machine: Scheduler, post: Callable[[Event], None]
) -> SchedulerBlobs:
    """The blobs of this scheduler: what users and workers bring, in its folder."""
    settings = program.configuration.scheduler.files
    folder = program.folder.path / "blobs"
    store = BlobStore(folder, settings.store_size, settings.max_blob_size, evicts=False)
    world = SchedulerView()
    world.task_of = machine.task_of
    world.user_of = machine.user_of
    world.addresses_of = machine.addresses_of
    world.holds = lambda *held: post(DataHeld(*held))
    return SchedulerBlobs(
        store,
        BlobClaims(folder / "book.db"),
        world,
        program.note,
        upload_seconds=settings.upload_hours * 3600.0,
    )


async def _start_api(
    program: Program,
    backend: SchedulerBackend,
    bound: socket.socket,
    limits: Limits,
    certificate: Certificate | None,
) -> ApiServer:
    from mycel.api.authentication import Authenticator
    from mycel.api.http.server import serve as serve_api

    authenticator = Authenticator(
        lambda token: tokens.inspect(program.owner_public, token),
        program.configuration.swarm.name,
        program.revoking.revoked,
    )
    return await serve_api(backend, authenticator, bound, limits, certificate=certificate)


async def _stop(api: ApiServer | None, backend: SchedulerBackend, node: SchedulerNode) -> None:
    """No new requests, then no new turns; commits under way end with the store."""
    backend.stop()
    if api is not None:
        await api.stop()
    node.stop()
