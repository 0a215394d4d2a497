"""A node on js-libp2p: with a token it is a member like any other, without one nobody.

Its packages are installed on demand from `package-lock.json`; without Node, npm or a registry
the tests are skipped.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mycel.core.identifiers import PeerId
from tests.adapters.swarm_world import Libp2pWorld, Recorder, until
from tests.fuzz.credentials import Who, hello_block, somebody

FOLDER = Path(__file__).parent
KEY = b"mycel/capability/interop"
SECONDS_MAX = 60.0


@pytest.fixture(scope="session")
def packages() -> None:
    """Installed once, also when several processes test at the same time."""
    missing = [tool for tool in ("node", "npm") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} missing: Node 20 or later is needed")
    lock = FOLDER / "package-lock.json"
    with (FOLDER / "package.json").open() as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        done = FOLDER / "node_modules" / ".installed"
        if not done.exists() or done.read_bytes() != lock.read_bytes():
            command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
            made = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=300)
            if made.returncode:
                pytest.skip(f"npm cannot install the packages: {made.stderr[-300:]}")
            done.write_bytes(lock.read_bytes())


@pytest.fixture
async def world(packages: None) -> AsyncIterator[Libp2pWorld]:
    made = Libp2pWorld()
    yield made
    await made.close()


async def visit(address: str, who: Who, hello: bytes | None) -> dict[str, Any]:
    """What the other node tells of its visit."""
    order = {
        "address": address,
        "secret": who.seed.hex(),
        "hello": None if hello is None else hello.hex(),
        "key": KEY.hex(),
    }
    process = await asyncio.create_subprocess_exec(
        "node",
        str(FOLDER / "node.mjs"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "NODE_NO_WARNINGS": "1"},
    )
    given = json.dumps(order).encode()
    out, err = await asyncio.wait_for(process.communicate(given), SECONDS_MAX)
    assert process.returncode == 0, err.decode()
    told: dict[str, Any] = json.loads(out)
    return told


async def test_with_a_token_it_says_hello_pings_and_finds_a_worker(world: Libp2pWorld) -> None:
    near, far = Recorder(), Recorder()
    gateway, worker = await world.start(near), await world.start(far)
    worker.dial(gateway.addresses[0])
    await until(lambda: near.peers and far.peers)
    worker.provide(KEY)
    await until(lambda: gateway.figures().dht_providers, "the gateway knows the provider")
    who = somebody()
    told = await visit(gateway.addresses[0], who, hello_block(world.token(who.peer)))
    assert told["admitted"], told
    assert told["ping_ms"] is not None
    assert {"/mycel/kad/1", "/ipfs/ping/1.0.0"} <= set(told["protocols"])
    assert worker.peer in told["providers"]
    assert who.peer in {peer for name, peer in near.events if name == "connected"}


async def test_without_a_token_of_its_own_it_gets_nothing(world: Libp2pWorld) -> None:
    near = Recorder()
    gateway = await world.start(near)
    gateway.provide(KEY)
    thief, victim = somebody(), somebody()
    hellos = {
        "no hello": None,
        "an empty one": b"",
        "another's token": hello_block(world.token(victim.peer)),
        "another swarm's": hello_block(Libp2pWorld().token(thief.peer)),
        "an expired one": hello_block(world.token(thief.peer, lifetime_seconds=-3600)),
    }
    for name, hello in hellos.items():
        told = await visit(gateway.addresses[0], thief, hello)
        assert not told["admitted"], name
        assert told["refusal"], name
        nothing = (told["ping_ms"], told["protocols"], told["providers"])
        assert nothing == (None, [], []), name
    assert not near.peers
    assert PeerId(thief.peer) not in {peer for _, peer in near.events}
    await until(lambda: len(near.refusals) >= len(hellos), "each refusal is told")
