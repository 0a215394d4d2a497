"""What only the native swarm can be asked: ports, processes, strangers, speed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import msgspec
import pytest

from mycel._native import Stream as NativeStream
from mycel._native import identity
from mycel.core.identifiers import PeerId
from mycel.swarm.errors import (
    AddressInUse,
    InvalidAddress,
    InvalidKey,
    InvalidSetting,
    ListenFailed,
)
from mycel.swarm.interface import DialFailure, Liveness, Stream
from mycel.swarm.libp2p import Libp2pSettings, Libp2pSwarm

from .swarm_world import BEATING, LIVENESS, QUIET, Libp2pWorld, Recorder, pair, until

ROOT = Path(__file__).parents[2]


@contextlib.asynccontextmanager
async def libp2p() -> AsyncIterator[Libp2pWorld]:
    world = Libp2pWorld()
    try:
        yield world
    finally:
        await world.close()


@contextlib.asynccontextmanager
async def child_of(world: Libp2pWorld) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    secret = os.urandom(32)
    _, peer = identity(secret)
    arguments = (secret.hex(), world.owner_public.hex(), world.token(peer).hex())
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.adapters.swarm_child",
        *arguments,
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        yield process, (await process.stdout.readline()).decode().strip()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def as_stream(native: NativeStream) -> Stream:
    """For the type checker: the extension's own class satisfies the interface."""
    return native


def port_of(address: str) -> int:
    return int(address.split("/")[4])


async def test_a_port_in_use_is_told_apart() -> None:
    async with libp2p() as world:
        first = await world.start(Recorder())
        address = first.addresses[0].partition("/p2p/")[0]
        with pytest.raises(AddressInUse, match=f"{address} cannot be listened on"):
            await world.start(Recorder(), address=address)
        with pytest.raises(ListenFailed) as failure:
            await first.listen("/ip4/203.0.113.7/tcp/0")
        assert not isinstance(failure.value, AddressInUse)
        await first.stop()
        again = await world.start(Recorder(), address=address)
        assert again.addresses[0].startswith(address)


async def test_garbage_on_the_port_is_survived() -> None:
    async with libp2p() as world:
        near = Recorder()
        swarm = await world.start(near)
        noise = Random(5)
        half_open: list[socket.socket] = []
        for number in range(60):
            connection = socket.create_connection(("127.0.0.1", port_of(swarm.addresses[0])))
            if number % 3:
                with connection, contextlib.suppress(OSError):
                    connection.sendall(noise.randbytes(1 + number * 50))
            else:
                half_open.append(connection)
        await until(lambda: near.refusals, "refusals")
        friend = Recorder()
        other = await world.start(friend)
        other.dial(swarm.addresses[0])
        await until(lambda: friend.dialled, "a connection beside the garbage")
        for connection in half_open:
            connection.close()


async def test_a_killed_peer_is_noticed_and_its_port_refuses() -> None:
    async with libp2p() as world, child_of(world) as (process, address):
        near = Recorder()
        swarm = await world.start(near)
        swarm.dial(address)
        await until(lambda: near.dialled)
        swarm.open_stream(near.dialled[0][1], BEATING.name)
        await until(lambda: near.ours)
        near.ours[0].write(b"are you there?")
        await until(lambda: near.received == [b"are you there?"])
        process.kill()
        await until(lambda: near.causes, "the end of the peer")
        assert near.ends[0][1], "a crash is no orderly close"
        await process.wait()  # its connections end a moment before its port does
        swarm.dial(address)
        await until(lambda: near.dial_failures)
        assert near.dial_failures[0][1] is DialFailure.REFUSED


async def test_a_frozen_peer_is_silent_and_comes_back() -> None:
    async with libp2p() as world, child_of(world) as (process, address):
        near = Recorder()
        settings = Libp2pSettings(connect_timeout_seconds=0.5, hello_timeout_seconds=0.3)
        swarm = await world.start(near, settings=settings)
        stranger = Recorder()
        other = await world.start(stranger, settings=settings)
        swarm.dial(address)
        await until(lambda: near.dialled)
        swarm.open_stream(near.dialled[0][1], BEATING.name)
        await until(lambda: near.beats)
        process.send_signal(signal.SIGSTOP)
        try:
            await until(lambda: len(near.silences) >= 2, "silence")
            assert near.silences[0] >= LIVENESS.silence_seconds
            assert near.silences[1] >= near.silences[0] + LIVENESS.repeat_seconds * 0.9
            other.dial(address)
            await until(lambda: stranger.dial_failures)
            assert stranger.dial_failures[0][1] is DialFailure.SILENT
            near.ours[0].write(b"wake up")
        finally:
            process.send_signal(signal.SIGCONT)
        await until(lambda: near.received == [b"wake up"])
        assert not near.causes


@pytest.mark.parametrize("lifetime_seconds", [-3600, 3600])
async def test_a_bad_token_is_not_admitted(lifetime_seconds: int) -> None:
    async with libp2p() as world:
        far, near = Recorder(), Recorder()
        member = await world.start(far)
        _, somebody = identity(os.urandom(32))
        # Expired, or good for somebody else.
        outsider = await world.start(near, token=world.token(somebody, lifetime_seconds))
        outsider.dial(member.addresses[0])
        await until(lambda: near.dial_failures and far.refusals)
        assert near.dial_failures[0][1] is DialFailure.NOT_ADMITTED
        assert "token" in near.dial_failures[0][2]
        assert "token" in far.refusals[0]
        assert not far.peers


async def test_a_failing_listener_loses_no_events() -> None:
    class Clumsy(Recorder):
        def frames(self, stream: Stream, frames: list[bytes], arrived_at: float) -> None:
            super().frames(stream, frames, arrived_at)
            raise ZeroDivisionError

    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
    async with libp2p() as world:
        near, far = Recorder(), Clumsy()
        dialer, acceptor = await world.start(near), await world.start(far)
        dialer.dial(acceptor.addresses[0])
        await until(lambda: near.dialled)
        dialer.open_stream(acceptor.peer, BEATING.name)
        await until(lambda: near.ours)
        for number in range(50):
            near.ours[0].write(bytes([number]))
            await asyncio.sleep(0)
        near.ours[0].close()
        await until(lambda: far.ends)
        assert far.received == [bytes([number]) for number in range(50)]
    assert faults


async def test_much_data_passes_in_both_directions() -> None:
    async with libp2p() as world:
        near, far, _, _ = await pair(world, QUIET)
        far.echo = True
        [stream] = near.ours
        small, large = b"x" * 200, bytes(1 << 20)
        for _ in range(20):
            for _ in range(500):
                stream.write(small)
            stream.write(large)
            await until(lambda: not stream.full, "room")
        await until(lambda: len(near.received) == 20 * 501, "the echo")
        assert sum(map(len, near.received)) == 20 * (500 * len(small) + len(large))


async def test_what_cannot_work_is_refused_at_the_start() -> None:
    world = Libp2pWorld()
    with pytest.raises(InvalidAddress):
        await world.start(Recorder(), address="/ip4/127.0.0.1/tcp/none")
    with pytest.raises(InvalidSetting):
        await world.start(Recorder(), settings=Libp2pSettings(hello_timeout_seconds=-1))
    for secret, owner in ((b"short", world.owner_public), (os.urandom(32), b"short")):
        with pytest.raises(InvalidKey):
            await Libp2pSwarm.start(
                secret=secret,
                owner_public=owner,
                token=b"",
                swarm_name="test",
                listener=Recorder(),
                protocols=[],
                liveness=Liveness(),
            )


class Hidden(Recorder):
    """Notices where it could be reached when it heard of a reservation."""

    def __init__(self) -> None:
        super().__init__()
        self.swarm: Libp2pSwarm | None = None
        self.known_then: list[str] = []

    def reservation(self, gateway: PeerId, held: bool, error: str) -> None:
        super().reservation(gateway, held, error)
        assert self.swarm is not None
        self.known_then = list(self.swarm.addresses)


async def test_a_gateway_relays_only_if_that_is_among_its_services() -> None:
    async with libp2p() as world:
        without = msgspec.structs.replace(Libp2pSettings.for_gateway(), relay_service=False)
        gateway = await world.start(Recorder(), settings=without)
        hidden = Recorder()
        swarm = await world.start(hidden)
        swarm.reserve(gateway.addresses[0])
        await until(lambda: hidden.reservations)
        assert not any(held for _, held, _ in hidden.reservations)
        assert not any("/p2p-circuit" in address for address in swarm.addresses)


async def test_a_gateway_without_the_dht_keeps_nothing_for_others() -> None:
    async with libp2p() as world:
        without = msgspec.structs.replace(Libp2pSettings.for_gateway(), dht_service=False)
        gateway = await world.start(Recorder(), settings=without)
        other = await world.start(Recorder())
        near = Recorder()
        swarm = await world.start(near)
        swarm.dial(gateway.addresses[0])
        swarm.dial(other.addresses[0])
        await until(lambda: len(near.dialled) == 2)
        swarm.provide(b"something")
        await until(lambda: other.figures().dht_providers == 1)
        assert gateway.figures().dht_providers == 0


async def test_members_meet_through_a_gateway_and_then_directly() -> None:
    async with libp2p() as world:
        gateway = await world.start_gateway(Recorder())
        near, far = Recorder(), Hidden()
        quiet = Libp2pSettings(hole_punching=False)
        visitor = await world.start(near, settings=quiet)
        hidden = far.swarm = await world.start(far, settings=quiet)
        hidden.reserve(gateway.addresses[0])
        await until(lambda: far.reservations)
        assert far.known_then == hidden.addresses, "whoever hands them on has the new one"
        assert [about for about, _ in far.events].count("addresses_changed") == 1
        direct, circuit = hidden.addresses
        assert "/p2p-circuit/" in circuit
        visitor.dial(circuit)
        await until(lambda: near.dialled)
        assert near.relayed[hidden.peer]
        [facts] = [facts for facts in visitor.peers() if facts.peer == hidden.peer]
        assert facts.relayed
        assert gateway.figures().relay_circuits == 1
        visitor.dial(direct.partition("/p2p/")[0])
        await until(lambda: not near.relayed[hidden.peer], "a direct path")
        assert visitor.figures().connections["relayed"] == 1


async def test_members_meet_over_quic() -> None:
    async with libp2p() as world:
        near, far = Recorder(), Recorder()
        one = await world.start(near)
        other = await world.start(far, address="/ip4/127.0.0.1/udp/0/quic-v1")
        one.dial(other.addresses[0])
        await until(lambda: near.dialled)
        one.open_stream(other.peer, BEATING.name)
        await until(lambda: near.beats and far.beats)
        figures = one.figures()
        assert figures.connections["quic"] == 1
        assert figures.bytes_out["direct"] > 0


async def test_a_dns_name_can_be_dialled() -> None:
    async with libp2p() as world:
        near = Recorder()
        one, other = await world.start(near), await world.start(Recorder())
        one.dial(f"/dns4/localhost/tcp/{port_of(other.addresses[0])}/p2p/{other.peer}")
        await until(lambda: near.dialled or near.dial_failures)
        assert near.dialled


async def test_a_peer_that_floods_is_cut_off() -> None:
    async with libp2p() as world:
        near, far = Recorder(), Recorder()
        strict = Libp2pSettings(messages_per_second=10, message_burst=50)
        limited = msgspec.structs.replace(QUIET, limited=True)
        victim = await world.start(near, [limited], settings=strict)
        flooder = await world.start(far)
        flooder.dial(victim.addresses[0])
        await until(lambda: far.dialled)
        flooder.open_stream(victim.peer, QUIET.name)
        await until(lambda: far.ours)
        for _ in range(200):
            far.ours[0].write(b"one of many")
        await until(lambda: near.cuts, "the cut")
        assert near.cuts == [(flooder.peer, "flood")]
        assert victim.figures().cut_offs == {"flood": 1}
        await until(lambda: not far.peers)
