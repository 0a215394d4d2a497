"""A member with a worker's invite must not multiply.

`native/node/tests/invites.rs` has the forged and the stolen tokens; here are the ways of Python,
and gateways that are killed.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import msgspec
import pytest

from mycel._native import identity, sign_revocation
from mycel.access import tokens
from mycel.access.join_shares import shared_out
from mycel.access.tokens import Statement
from mycel.membership.admission import be_admitted
from mycel.membership.arrival import NotAdmitted
from mycel.membership.revocations import revocations_topic
from mycel.swarm.interface import DialFailure
from mycel.swarm.libp2p import Libp2pSettings, Libp2pSwarm
from tests.adapters.swarm_world import DEADLINE_SECONDS, SWARM, Libp2pWorld, Recorder

SETTINGS = Libp2pSettings(gossip_heartbeat_seconds=0.2, connect_timeout_seconds=2.0)


async def eventually(look: Callable[[], bool], what: str, pause_seconds: float = 0.02) -> None:
    ends_at = time.monotonic() + DEADLINE_SECONDS
    while not look():
        assert time.monotonic() < ends_at, what
        await asyncio.sleep(pause_seconds)


@pytest.fixture
async def world() -> AsyncIterator[Libp2pWorld]:
    made = Libp2pWorld()
    yield made
    await asyncio.gather(*(swarm.stop() for swarm in made.swarms))


def an_invite(world: Libp2pWorld, gateways: list[str], joins: int) -> bytes:
    """Of gateways that share a home."""
    peers = [address.rpartition("/")[2] for address in gateways]
    terms = shared_out(gateways, peers, joins).terms
    grant = Statement(roles=("worker",), expires_at=time.time() + 3600, invite=terms)
    return tokens.issue(world.owner_secret, SWARM, grant)


async def ask(world: Libp2pWorld, invite: bytes, secret: bytes, gateways: list[str]) -> bytes:
    return await be_admitted(
        secret=secret,
        owner_public=world.owner_public,
        token=tokens.bind(world.owner_public, invite, identity(secret)[1]),
        swarm_name=SWARM,
        gateways=gateways,
        settings=SETTINGS,
    )


async def start_gateway(world: Libp2pWorld, home: Path) -> str:
    settings = msgspec.structs.replace(SETTINGS, gateway=True, joins_path=str(home / "joins"))
    swarm = await world.start(Recorder(), settings=settings)
    return swarm.addresses[0]


async def test_of_twenty_identities_at_once_as_many_get_in_as_may(
    world: Libp2pWorld, tmp_path: Path
) -> None:
    gateways = [await start_gateway(world, tmp_path) for _ in range(2)]
    invite = an_invite(world, gateways, 3)
    secrets = [os.urandom(32) for _ in range(20)]
    answers = await asyncio.gather(
        *(ask(world, invite, one, gateways[:: (-1) ** n]) for n, one in enumerate(secrets)),
        return_exceptions=True,
    )
    inside = [one for one in answers if isinstance(one, bytes)]
    outside = [str(one) for one in answers if isinstance(one, NotAdmitted)]
    assert (len(inside), len(outside)) == (3, 17), answers
    assert all("invite is used up: 3 may join by it" in text for text in outside)
    assert all("mycel invite --joins N" in text for text in outside)


async def test_an_invite_alone_gets_no_further_than_the_hello_of_others(
    world: Libp2pWorld, tmp_path: Path
) -> None:
    gateway = await start_gateway(world, tmp_path)
    recorder = Recorder()
    scheduler = await world.start(recorder, settings=SETTINGS)
    invite = an_invite(world, [gateway], 1)
    secret = os.urandom(32)
    peer = identity(secret)[1]
    bound = tokens.bind(world.owner_public, invite, peer)
    for token in (invite, bound):
        own = Recorder()
        thief = await Libp2pSwarm.start(
            secret=secret,
            owner_public=world.owner_public,
            token=token,
            swarm_name=SWARM,
            listener=own,
            protocols=(),
            settings=SETTINGS,
        )
        world.swarms.append(thief)
        thief.dial(scheduler.addresses[0])
        await eventually(partial(bool, own.dial_failures), "the dial's end")
        assert own.dial_failures[0][1] is DialFailure.NOT_ADMITTED
        await thief.stop()
    assert not recorder.events, "nothing of it was heard behind the gate"
    refusals = scheduler.figures().refusals
    assert (refusals["unbound"], refusals["not_admitted"]) == (1, 1)
    # Asked in order, the gateway lets it in, and then so does everybody.
    member = await ask(world, invite, secret, [scheduler.addresses[0], gateway])
    rights = tokens.inspect(world.owner_public, member, peer)
    assert (rights.joins, bool(rights.admitted_by), rights.is_bound) == (1, True, True)


class Gateway:
    """Killed and started again, under one identity, at one port, with one count."""

    def __init__(self, world: Libp2pWorld, folder: Path) -> None:
        self.secret = os.urandom(32)
        self._world = world
        self._folder = folder
        self.address = "/ip4/127.0.0.1/tcp/0"
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        peer = identity(self.secret)[1]
        given = (self.secret, self._world.owner_public, self._world.token(peer))
        where = self.address.partition("/p2p/")[0]
        command = [sys.executable, "-m", "tests.attacks.gateway_child", str(self._folder), where]
        self._process = subprocess.Popen(
            [*command, *(one.hex() for one in given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()
        assert self.address, "the gateway has not started"

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def counted(self) -> int:
        path = self._folder / "joins"
        return path.stat().st_size if path.exists() else 0


async def test_a_gateway_killed_between_count_and_answer_admits_no_more_and_nobody_is_lost(
    world: Libp2pWorld, tmp_path: Path
) -> None:
    gateway = Gateway(world, tmp_path)
    gateway.start()
    try:
        invite = an_invite(world, [gateway.address], 4)
        secrets = [os.urandom(32) for _ in range(12)]
        asking = [
            asyncio.ensure_future(ask(world, invite, secret, [gateway.address]))
            for secret in secrets
        ]

        def grown(before: int) -> bool:
            return gateway.counted() != before or all(one.done() for one in asking)

        for _ in range(3):
            # The moment in which the file grows is that between the count and the answer.
            before = gateway.counted()
            await eventually(partial(grown, before), "somebody is counted", 0)
            gateway.kill()
            gateway.start()
        answers = await asyncio.gather(*asking, return_exceptions=True)
        inside = [one for one in answers if isinstance(one, bytes)]
        assert all(isinstance(one, bytes | NotAdmitted) for one in answers), answers
        assert len(inside) == 4, answers
        # Whoever is in may ask again, and nobody else gets in.
        again = await asyncio.gather(
            *(ask(world, invite, secret, [gateway.address]) for secret in secrets),
            return_exceptions=True,
        )
        assert [isinstance(one, bytes) for one in again] == [
            isinstance(one, bytes) for one in answers
        ]
    finally:
        gateway.kill()


async def start_deaf(world: Libp2pWorld, recorder: Recorder) -> Libp2pSwarm:
    secret = os.urandom(32)
    swarm = await Libp2pSwarm.start(
        secret=secret,
        owner_public=world.owner_public,
        token=world.token(identity(secret)[1]),
        swarm_name=SWARM,
        listener=recorder,
        protocols=(),
        settings=SETTINGS,
    )
    world.swarms.append(swarm)
    return swarm


async def test_forged_revocations_are_passed_on_by_nobody(world: Libp2pWorld) -> None:
    """Encoded as `Revoking` does it, one and many."""
    topic = revocations_topic(SWARM)
    recorders = [Recorder() for _ in range(3)]
    between = await world.start(recorders[1], settings=SETTINGS)
    # They do not listen, and so do not find each other.
    source, last = [await start_deaf(world, one) for one in (recorders[0], recorders[2])]
    for swarm in (source, between, last):
        swarm.subscribe(topic)
    for swarm in (source, last):
        swarm.dial(between.addresses[0])
    ends = int(time.time()) + 3600
    numbers = iter(range(1_000_000))

    def records(secret: bytes, count: int) -> bytes:
        ids = [next(numbers).to_bytes(32) for _ in range(count)]
        return msgspec.msgpack.encode([sign_revocation(secret, SWARM, one, ends) for one in ids])

    def arrived() -> bool:
        source.publish(topic, records(world.owner_secret, 1))
        return bool(recorders[2].messages)

    def has(message: bytes) -> bool:
        return any(data == message for _, _, data in recorders[2].messages)

    await eventually(arrived, "genuine ones come through", 0.2)
    for count in (1, 15, 16, 400):
        genuine = records(world.owner_secret, count)
        source.publish(topic, genuine)
        await eventually(partial(has, genuine), f"{count} in one message")
    thief = os.urandom(32)
    mixed = msgspec.msgpack.decode(records(world.owner_secret, 3))
    mixed += msgspec.msgpack.decode(records(thief, 1))
    forged = [records(thief, 1), records(thief, 400), msgspec.msgpack.encode(mixed), b"\x90", b"x"]
    before = last.figures().gossip_invalid
    seen = between.figures().gossip_invalid
    for one in forged:
        source.publish(topic, one)
    await eventually(
        lambda: between.figures().gossip_invalid >= seen + len(forged), "all are refused"
    )
    genuine = records(world.owner_secret, 1)
    source.publish(topic, genuine)
    await eventually(partial(has, genuine), "one behind them")
    heard = [data for recorder in recorders[1:] for _, _, data in recorder.messages]
    assert not set(forged) & set(heard)
    assert last.figures().gossip_invalid == before
