"""`mycel gateway`: the program."""

from __future__ import annotations

from random import Random

from .gating import GatewayNode
from .program import Options, Program, run


def main(options: Options) -> int:
    return run(options, _serve)


async def _serve(program: Program) -> None:
    node = GatewayNode(Random(), program.configuration.swarm.name, program.note)
    swarm = await program.start_swarm(node)
    try:
        node.start(swarm)
        program.ready(swarm.peer, swarm.addresses)
        await program.until_ended()
    finally:
        await swarm.stop()
