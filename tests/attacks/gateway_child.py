"""A gateway in a process of its own, for tests that kill it.

Gets the folder in which it counts, its address, and secret, owner's key and token as hex; prints
its address.
"""

from __future__ import annotations

import asyncio
import sys

from mycel.swarm.libp2p import Libp2pSettings, Libp2pSwarm
from mycel.swarm.null_listener import IndifferentListener


async def main(folder: str, address: str, secret: bytes, owner_public: bytes, token: bytes) -> None:
    swarm = await Libp2pSwarm.start(
        secret=secret,
        owner_public=owner_public,
        swarm_name="test",
        token=token,
        listener=IndifferentListener(),
        protocols=(),
        listen_addresses=[address],
        settings=Libp2pSettings(gateway=True, joins_path=f"{folder}/joins"),
    )
    print(swarm.addresses[0], flush=True)
    # Until the parent closes the pipe, so that no child outlives its test.
    await asyncio.to_thread(sys.stdin.read)
    await swarm.stop()


if __name__ == "__main__":
    secret, owner_public, token = (bytes.fromhex(given) for given in sys.argv[3:6])
    asyncio.run(main(sys.argv[1], sys.argv[2], secret, owner_public, token))
