"""`mycel worker`: the program.

The spawn helper is forked before anything else: it must not inherit the network's threads, the
folder's lock or the loop.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from mycel.drivers.helper import HelperEnd, start_helper

from .program import Options, Program, RoleFault, run

if TYPE_CHECKING:
    from mycel.drivers.container import ContainerSettings
    from mycel.drivers.container_engine import NoEngine

    from .working import WorkerNode

OUTPUT_BYTES_MAX: Final = 6 << 20
"""Of each output stream: both, and the value, have to fit into one frame of the work stream."""


def main(options: Options) -> int:
    end = start_helper()
    return run(options, lambda program: serve(program, end))


async def serve(
    program: Program, end: HelperEnd, introduce: Callable[[WorkerNode], None] | None = None
) -> None:
    """`introduce` tells the node, once it has joined, of peers that are known beforehand."""
    from blake3 import blake3

    from mycel import __version__
    from mycel.core.events import Revoked
    from mycel.core.settings import WorkerSettings
    from mycel.core.worker import WorkerMachine
    from mycel.core.worker.authority import AcceptRules
    from mycel.discovery.peerbook import PeerBook
    from mycel.discovery.publishing import Publishing
    from mycel.drivers import DriverContext, DriverFault, create_drivers, offered_drivers
    from mycel.drivers.helper_client import Helper
    from mycel.node.clock import LoopClock
    from mycel.store.spool import Spool

    from .authorising import remembering
    from .capabilities import capabilities_of, container_settings, environment_settings
    from .filing import caching_of, files_of
    from .offering import Offering
    from .protocols import reserves, ways_of
    from .working import WorkerNode

    configuration = program.configuration
    clock = LoopClock(asyncio.get_running_loop())
    name = configuration.worker.name or program.options.name or platform.node()
    worker = configuration.worker
    # Beside the measuring of the machine: an engine takes its time to answer.
    probing = asyncio.get_running_loop().run_in_executor(None, container_settings, worker)
    capabilities = capabilities_of(worker, program.folder.path)
    containers = _told(await probing, program.note)
    names = offered_drivers(worker.drivers, has_containers=containers is not None)
    lease_seconds = configuration.scheduler.lease_seconds
    machine = WorkerMachine(
        WorkerSettings(lease_seconds=lease_seconds),
        msgspec.structs.replace(capabilities, drivers=names),
        name=name,
        digest=lambda value: blake3(value).digest(),
        software_version=__version__,
        inspect=remembering(program.owner_public, configuration.swarm.name),
        rules=AcceptRules(**msgspec.structs.asdict(configuration.worker.accept)),
    )
    spool = Spool(program.folder.path / "spool.db")
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
            name,
            __version__,
            configuration.swarm.discovery.shard_bits,
            program.note,
        ),
        note=program.note,
        failed=program.fail,
        book=PeerBook(program.folder.path / "peers.json"),
        reserves=reserves(configuration),
        revoking=program.revoking,
    )
    program.revoking.on_news.append(lambda ids: node.runtime.post(Revoked(ids)))
    node.arrival = program.arrival()
    helper = Helper(end)
    helper.on_lost.append(
        lambda: program.fail(RoleFault("the spawn helper has died: start the worker again"))
    )
    caching = caching_of(program)
    node.blobs = caching.channels
    context = DriverContext(
        helper=helper,
        listener=node,
        root=program.folder.path / "tasks",
        output_bytes_max=OUTPUT_BYTES_MAX,
        environment_settings=environment_settings(worker.environments),
        containers=containers,
        files=files_of(program, caching),
    )
    try:
        drivers = create_drivers(names, context)
    except DriverFault as fault:
        raise RoleFault(str(fault)) from fault
    offering = Offering(drivers, node.serve, helper, context.root / "model", program.note)
    swarm = await program.start_swarm(node)
    try:
        node.start(swarm, drivers)
        offering.start(configuration.worker)
        if introduce is not None:
            introduce(node)
        program.ready(swarm.peer, swarm.addresses)
        await program.until_ended()
    finally:
        node.drain()
        # The machine's last turn: what is not acknowledged goes to disk in it.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        node.stop()
        for driver in drivers:
            await driver.close()
        await offering.close()
        await caching.stop()
        await helper.close()
        await swarm.stop()
        spool.close()


def _told(
    containers: ContainerSettings | NoEngine, note: Callable[..., None]
) -> ContainerSettings | None:
    if isinstance(containers, Exception):
        note("containers", engine="", reason=str(containers))
        return None
    note("containers", engine=containers.engine.name)
    return containers
