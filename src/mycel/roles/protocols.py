"""The protocols and topics of a swarm, with their limits."""

from __future__ import annotations

from typing import Final

from mycel.swarm.interface import CONTROL_PROTOCOL, WORK_PROTOCOL, StreamProtocol
from mycel.wire.limits import CONTROL_BYTES_MAX, WORK_BYTES_MAX

PROTOCOLS: Final = (
    StreamProtocol(name=CONTROL_PROTOCOL, max_frame_bytes=CONTROL_BYTES_MAX, heartbeats=False),
    StreamProtocol(name=WORK_PROTOCOL, max_frame_bytes=WORK_BYTES_MAX, heartbeats=True),
)


def schedulers_topic(swarm_name: str) -> str:
    return f"mycel/{swarm_name}/schedulers"
