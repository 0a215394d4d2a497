"""The protocols and topics of a swarm, with their limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from mycel.blobs.blob_messages import BLOB_PROTOCOL, FRAME_BYTES_MAX, WRITE_HIGH_BYTES
from mycel.discovery.methods import Ways
from mycel.swarm.frame_limits import CONTROL_BYTES_MAX, SIGNAL_BYTES_MAX, WORK_BYTES_MAX
from mycel.swarm.interface import CONTROL_PROTOCOL, WORK_PROTOCOL, Liveness, StreamProtocol
from mycel.swarm.multiaddress import ON_THIS_MACHINE
from mycel.swarm.quic_alternative import without_twins

from . import revocations

if TYPE_CHECKING:
    from mycel.config import Configuration
    from mycel.swarm.libp2p import Libp2pSettings

SIGNAL_PROTOCOL: Final = "/mycel/signal/1"
PROTOCOLS: Final = (
    StreamProtocol(
        name=SIGNAL_PROTOCOL, max_frame_bytes=SIGNAL_BYTES_MAX, heartbeats=False, limited=True
    ),
    StreamProtocol(
        name=CONTROL_PROTOCOL, max_frame_bytes=CONTROL_BYTES_MAX, heartbeats=False, limited=True
    ),
    StreamProtocol(name=WORK_PROTOCOL, max_frame_bytes=WORK_BYTES_MAX, heartbeats=True),
    StreamProtocol(
        name=BLOB_PROTOCOL,
        max_frame_bytes=FRAME_BYTES_MAX,
        heartbeats=False,
        write_high_bytes=WRITE_HIGH_BYTES,
        in_place=True,
    ),
    StreamProtocol(
        name=revocations.PROTOCOL, max_frame_bytes=revocations.FRAME_BYTES_MAX, heartbeats=False
    ),
)


def schedulers_topic(swarm_name: str) -> str:
    return f"mycel/{swarm_name}/schedulers"


def ways_of(configuration: Configuration) -> Ways:
    discovery = configuration.swarm.discovery
    return Ways(dht=discovery.dht, gossip=discovery.gossip, shard_bits=discovery.shard_bits)


def libp2p_settings(configuration: Configuration, gateway: bool) -> Libp2pSettings:
    """The swarm's policy, as the native node takes it."""
    from mycel.swarm.libp2p import Libp2pSettings

    mdns = configuration.swarm.mdns
    if not gateway:
        return Libp2pSettings(mdns=mdns)
    policy = configuration.gateway
    return msgspec.structs.replace(
        Libp2pSettings.for_gateway(),
        mdns=mdns,
        relay_service="relay" in policy.services,
        autonat_service="autonat" in policy.services,
        dht_service="dht" in policy.services,
        relay_max_reservations=policy.max_reservations,
        relay_max_circuits=policy.max_circuits,
        relay_max_circuit_seconds=policy.max_circuit_hours * 3600.0,
        relay_max_circuit_bytes=int(policy.max_circuit_size),
    )


def reserves(configuration: Configuration) -> bool:
    """Whether this node wants to be reached through gateways: not if all of it is on one
    machine."""
    return configuration.swarm.relay and not all(
        address.startswith(ON_THIS_MACHINE) for address in configuration.swarm.listen
    )


def listen_addresses(configuration: Configuration) -> list[str]:
    """QUIC comes by itself beside TCP: named as well, it is asked for once."""
    addresses = configuration.swarm.listen
    return without_twins(addresses) if configuration.swarm.quic else list(addresses)


def liveness_of(configuration: Configuration) -> Liveness:
    """When a stream counts as silent."""
    scheduler = configuration.scheduler
    timeout = scheduler.fault_tolerance.health_check_timeout
    return Liveness(
        heartbeat_seconds=scheduler.heartbeat_seconds,
        silence_seconds=scheduler.heartbeat_seconds + timeout,
        repeat_seconds=timeout,
    )
