"""What peers may send on the streams that every node has."""

from __future__ import annotations

import pytest

from mycel.core.messages import Ping
from mycel.membership.protocols import PROTOCOLS, SIGNAL_PROTOCOL
from mycel.swarm import message_codec
from mycel.swarm.interface import CONTROL_PROTOCOL
from mycel.swarm.libp2p import Libp2pSettings

from .swarm_world import Libp2pWorld, Recorder, until


@pytest.mark.parametrize("protocol", [CONTROL_PROTOCOL, SIGNAL_PROTOCOL])
async def test_a_peer_that_floods_what_a_program_answers_is_cut_off(protocol: str) -> None:
    world = Libp2pWorld()
    try:
        near, far = Recorder(), Recorder()
        strict = Libp2pSettings(messages_per_second=10, message_burst=50)
        victim = await world.start(near, PROTOCOLS, settings=strict)
        flooder = await world.start(far, PROTOCOLS)
        flooder.dial(victim.addresses[0])
        await until(lambda: far.dialled)
        flooder.open_stream(victim.peer, protocol)
        await until(lambda: far.ours)
        for number in range(200):
            far.ours[0].write(message_codec.encode(Ping(number)))
        await until(lambda: near.cuts, "the cut")
        assert near.cuts == [(flooder.peer, "flood")]
    finally:
        await world.close()
