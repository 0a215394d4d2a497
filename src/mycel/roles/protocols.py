"""The protocols and topics of a swarm, with their limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mycel.discovery.ways import Ways
from mycel.swarm.interface import CONTROL_PROTOCOL, WORK_PROTOCOL, Liveness, StreamProtocol
from mycel.wire.limits import CONTROL_BYTES_MAX, SIGNAL_BYTES_MAX, WORK_BYTES_MAX

if TYPE_CHECKING:
    from mycel.config import Configuration

SIGNAL_PROTOCOL: Final = "/mycel/signal/1"
PROTOCOLS: Final = (
    StreamProtocol(name=SIGNAL_PROTOCOL, max_frame_bytes=SIGNAL_BYTES_MAX, heartbeats=False),
    StreamProtocol(
        name=CONTROL_PROTOCOL, max_frame_bytes=CONTROL_BYTES_MAX, heartbeats=False, limited=True
    ),
    StreamProtocol(name=WORK_PROTOCOL, max_frame_bytes=WORK_BYTES_MAX, heartbeats=True),
)


def schedulers_topic(swarm_name: str) -> str:
    return f"mycel/{swarm_name}/schedulers"


def ways_of(configuration: Configuration) -> Ways:
    discovery = configuration.swarm.discovery
    return Ways(dht=discovery.dht, gossip=discovery.gossip, shard_bits=discovery.shard_bits)


def reserves(configuration: Configuration) -> bool:
    """Whether this node wants to be reached through gateways: not if all of it is on one
    machine."""
    on_this_machine = ("/ip4/127.", "/ip6/::1/")
    return configuration.swarm.relay and not all(
        address.startswith(on_this_machine) for address in configuration.swarm.listen
    )


def liveness_of(configuration: Configuration) -> Liveness:
    """When a stream counts as silent."""
    scheduler = configuration.scheduler
    timeout = scheduler.fault_tolerance.health_check_timeout
    return Liveness(
        heartbeat_seconds=scheduler.heartbeat_seconds,
        silence_seconds=scheduler.heartbeat_seconds + timeout,
        repeat_seconds=timeout,
    )
