"""`mycel gateway`: the program."""

from __future__ import annotations

import asyncio
from random import Random

from mycel.discovery.peer_book import PeerBook
from mycel.membership.gateway_services import UnknownService, load_services
from mycel.roles.metrics_server import exported
from mycel.roles.role_process import Options, Program, RoleFault, run
from mycel.runtime.clock import LoopClock

from .gateway_node import GatewayNode


def main(options: Options) -> int:
    return run(options, _serve)


async def _serve(program: Program) -> None:
    configuration = program.configuration
    names = configuration.gateway.services
    try:
        services = load_services(names)
    except UnknownService as error:
        raise RoleFault(str(error)) from error
    node = GatewayNode(
        LoopClock(asyncio.get_running_loop()),
        Random(),
        configuration.swarm.name,
        program.note,
        gateways=tuple(configuration.swarm.bootstrap),
        names=names,
        services=services,
        book=PeerBook(program.folder.path / "peers.json"),
        revoking=program.revoking,
        arrival=program.arrival(),
    )
    swarm = await program.start_swarm(node, gateway=True)
    address = configuration.gateway.metrics_address
    try:
        node.start(swarm)
        async with exported(program, "gateway.metrics_address", address, swarm.figures) as metrics:
            program.ready(swarm.peer, swarm.addresses, metrics=metrics)
            await program.until_ended()
    finally:
        node.stop()
        await swarm.stop()
