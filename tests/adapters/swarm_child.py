"""A node in a process of its own, for tests that stop or kill it.

Gets secret, owner key and token as hex; prints its address; echoes every frame.
"""

from __future__ import annotations

import asyncio
import sys

from mycel.swarm.libp2p import Libp2pSwarm
from tests.adapters.swarm_world import LIVENESS, PROTOCOLS, SWARM, Recorder


async def main(secret: bytes, owner_public: bytes, token: bytes) -> None:
    recorder = Recorder()
    recorder.echo = True
    swarm = await Libp2pSwarm.start(
        secret=secret,
        owner_public=owner_public,
        swarm_name=SWARM,
        token=token,
        listener=recorder,
        protocols=PROTOCOLS,
        listen_addresses=["/ip4/127.0.0.1/tcp/0"],
        liveness=LIVENESS,
    )
    print(swarm.addresses[0], flush=True)
    # Until the parent closes the pipe, so that no child outlives its test.
    await asyncio.to_thread(sys.stdin.read)
    await swarm.stop()


if __name__ == "__main__":
    asyncio.run(main(*(bytes.fromhex(argument) for argument in sys.argv[1:4])))
