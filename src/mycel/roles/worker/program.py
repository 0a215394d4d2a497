"""`mycel worker`: the program.

The spawn helper is forked before anything else, this module included: it must not inherit the
network's threads, the folder's lock or the loop.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from mycel.roles.role_process import Options, Program, RoleFault, run

if TYPE_CHECKING:
    from mycel.blobs.worker_blobs import WorkerBlobs
    from mycel.core.model.resources import Capabilities
    from mycel.core.worker import WorkerMachine
    from mycel.drivers.container.container_driver import ContainerSettings
    from mycel.drivers.container.engine_detection import NoEngine
    from mycel.drivers.helper.helper_client import HelperClient
    from mycel.drivers.helper.spawn_helper import HelperHandle
    from mycel.drivers.interface import Driver
    from mycel.drivers.registry import DriverContext
    from mycel.store.spool import Spool

    from .idle_lending import Lending
    from .worker_node import WorkerNode


def main(options: Options, end: HelperHandle) -> int:
    return run(options, lambda program: serve(program, end))


async def serve(
    program: Program, end: HelperHandle, introduce: Callable[[WorkerNode], None] | None = None
) -> None:
    """`introduce` tells the node, once it has joined, of peers that are known beforehand."""
    from mycel.core.events import Shut
    from mycel.drivers.helper.helper_client import HelperClient
    from mycel.drivers.registry import offered_drivers
    from mycel.roles.metrics_server import exported
    from mycel.runtime.clock import LoopClock
    from mycel.store.spool import Spool

    from .capabilities import capabilities_of, container_settings
    from .confinement import CAUSE, confinement_policy, sandbox_status, with_sandbox
    from .file_setup import caching_of
    from .model_offers import Offering
    from .opening_hours import Attending

    loop, worker = asyncio.get_running_loop(), program.configuration.worker
    # Beside the measuring of the machine: an engine takes its time to answer.
    probing = loop.run_in_executor(None, container_settings, worker, program.folder.path)
    capabilities = capabilities_of(worker, program.folder.path)
    containers = _told(await probing, program.note)
    names = offered_drivers(worker.drivers, has_containers=containers is not None)
    spool = Spool(program.folder.path / "spool.db")
    status = sandbox_status(program, capabilities, end)
    capabilities = with_sandbox(msgspec.structs.replace(capabilities, drivers=names), status)
    machine = _machine(program, capabilities)
    caching = caching_of(program)
    node = _node(program, machine, spool, caching)
    helper = HelperClient(end)
    helper.on_lost.append(
        lambda: program.fail(RoleFault("the spawn helper has died: start the worker again"))
    )
    helper.post(status.plan)
    context = msgspec.structs.replace(
        _context(program, helper, node, containers, caching, status.plan.user),
        policy=confinement_policy(worker, capabilities, status),
    )
    drivers = _drivers(names, context)
    offering = Offering(drivers, node.serve, helper, context.root / "model", program.note)
    lending = _lending(program, node, has_gpus=bool(capabilities.gpus))
    attending = Attending(LoopClock(loop), node.runtime.post, worker.accept.hours)
    swarm = await program.start_swarm(node)
    try:
        if status.closed:
            node.runtime.post(Shut(CAUSE, status.closed))
        node.start(swarm, drivers)
        attending.start()
        lending.start()
        offering.start(worker)
        if introduce is not None:
            introduce(node)
        address = worker.metrics_address
        async with exported(program, "worker.metrics_address", address, swarm.figures) as metrics:
            program.ready(swarm.peer, swarm.addresses, metrics=metrics, walls=status.line)
            await program.until_ended()
            await node.wind_down(worker.drain_seconds, program.hurried)
    finally:
        attending.stop()
        await lending.stop()
        await _stop(node, drivers)
        if context.report_server is not None:
            await context.report_server.close()
        await offering.close()
        await caching.stop()
        await helper.close()
        await swarm.stop()
        spool.close()


def _machine(program: Program, capabilities: Capabilities) -> WorkerMachine:
    from blake3 import blake3

    from mycel import __version__
    from mycel.core.machine_settings import WorkerSettings
    from mycel.core.worker import WorkerMachine
    from mycel.core.worker.authorization import AcceptRules

    from .token_reader import remembering

    configuration = program.configuration
    worker = configuration.worker
    rules = {name: getattr(worker.accept, name) for name in AcceptRules.__struct_fields__}
    return WorkerMachine(
        WorkerSettings(lease_seconds=configuration.scheduler.lease_seconds),
        capabilities,
        name=worker.name or _called(program.options.name),
        digest=lambda value: blake3(value).digest(),
        software_version=__version__,
        inspect=remembering(program.owner_public, configuration.swarm.name),
        rules=AcceptRules(**rules),
    )


def _called(folder: str) -> str:
    """After its host, as people know it; where several workers of a host have folders of their own,
    after those."""
    host = platform.node().partition(".")[0]
    return host if host and folder in ("", "worker") else folder


def _node(
    program: Program, machine: WorkerMachine, spool: Spool, caching: WorkerBlobs
) -> WorkerNode:
    from mycel import __version__
    from mycel.core.events import Revoked
    from mycel.discovery.peer_book import PeerBook
    from mycel.discovery.publisher import Publishing
    from mycel.membership.protocols import reserves, ways_of
    from mycel.runtime.clock import LoopClock

    from .worker_node import WorkerNode

    configuration = program.configuration
    clock = LoopClock(asyncio.get_running_loop())
    node = WorkerNode(
        machine,
        clock,
        spool,
        swarm_name=configuration.swarm.name,
        gateways=tuple(configuration.swarm.bootstrap),
        ways=ways_of(configuration),
        publishing=Publishing(
            clock,
            machine.capabilities,
            machine.name,
            __version__,
            configuration.swarm.discovery.shard_bits,
            program.note,
        ),
        note=program.note,
        failed=program.fail,
        alarm=program.log.error,
        book=PeerBook(program.folder.path / "peers.json"),
        reserves=reserves(configuration),
        revoking=program.revoking,
        arrival=program.arrival(),
        blobs=caching.channels,
    )
    program.revoking.on_news.append(lambda ids: node.runtime.post(Revoked(ids)))
    return node


def _context(
    program: Program,
    helper: HelperClient,
    node: WorkerNode,
    containers: ContainerSettings | None,
    caching: WorkerBlobs,
    tasks_user: int,
) -> DriverContext:
    from mycel.drivers.registry import DriverContext
    from mycel.drivers.report_server import ReportServer

    from .capabilities import environment_settings
    from .confinement import TASKS
    from .file_setup import files_of

    return DriverContext(
        helper=helper,
        listener=node,
        root=program.folder.path / TASKS,
        environment_settings=environment_settings(program.configuration.worker.environments),
        containers=containers,
        files=files_of(program, caching),
        report_server=ReportServer(node.reporting, tasks_user),
    )


def _drivers(names: tuple[str, ...], context: DriverContext) -> list[Driver]:
    from mycel.drivers.registry import DriverFault, create_drivers

    try:
        return create_drivers(names, context)
    except DriverFault as fault:
        raise RoleFault(str(fault)) from fault


def _lending(program: Program, node: WorkerNode, has_gpus: bool) -> Lending:
    from mycel.devices.machine_usage import Meter

    from .idle_lending import IdleSettings, Lending

    worker = program.configuration.worker
    idle = IdleSettings(
        idle_minutes=worker.idle_minutes,
        command=worker.idle_command,
        others_load_max=worker.idle_load,
        hand_back_after_seconds=worker.owner_grace_seconds,
    )
    found = has_gpus and worker.gpus is None  # declared ones are not there to be asked
    chosen = idle if worker.only_when_idle else None
    return Lending(node.runtime.post, Meter(found), chosen, program.note)


async def _stop(node: WorkerNode, drivers: list[Driver]) -> None:
    """What the drivers end goes back to its scheduler; what is not acknowledged, to disk."""
    node.drain()
    await _turns()
    for driver in drivers:
        await driver.close()
    await _turns()
    node.stop()


async def _turns() -> None:
    """So many of the loop as the machine needs to act, and its messages to leave."""
    for _ in range(4):
        await asyncio.sleep(0)


def _told(
    containers: ContainerSettings | NoEngine, note: Callable[..., None]
) -> ContainerSettings | None:
    if isinstance(containers, Exception):
        note("containers", engine="", reason=str(containers))
        return None
    engine = containers.engine
    note("containers", engine=engine.name, options=" ".join(engine.options), reason=engine.remark)
    return containers
