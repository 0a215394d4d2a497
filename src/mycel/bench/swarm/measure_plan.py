"""How much of each is done, and how long it may take."""

from __future__ import annotations

from typing import Final

import msgspec

NODES_MIN: Final = 8
NODES_MAX: Final = 2_000
PROCESSES_MIN: Final = 4
"""One with the gateway, one with what is looked for, two to be killed."""
SWARM_NAME: Final = "bench"
TOPIC: Final = f"mycel/{SWARM_NAME}/measured"
MESSAGE_BYTES: Final = 200
"""Of a gossip message and of a request."""


class Plan(msgspec.Struct, frozen=True):
    nodes: int
    processes: int
    seed: int
    joins_at_once: int = 3
    """In each process. Machines of a real swarm do not all join in the same second."""
    lookups: int = 100
    capabilities: int = 20
    """Each of them is had by one node alone."""
    messages: int = 100
    gap_seconds: float = 0.1
    """Between spaced messages. 300 deliveries each are then half of what two cores can do."""
    kills: int = 2
    exchange_seconds: float = 0.7
    exchange_rounds: int = 3
    bulk_bytes: int = 256_000_000
    hellos: int = 200

    # Deadlines: for a swarm that fails, not delays.
    answer_seconds_max: float = 60.0
    """Of the gateway, to one node."""
    join_seconds_max: float = 240.0
    lookup_seconds_max: float = 10.0
    quiet_seconds_max: float = 15.0
    """Gossip is over when nothing has arrived for so long."""
    settled_seconds: float = 4.0
    """A swarm in which so long no connection has come or gone has settled."""
    settle_seconds_max: float = 60.0

    def scaled(self, factor: float) -> Plan:
        """So many times as much is done with the same nodes."""

        def more(count: int) -> int:
            return max(1, round(count * factor))

        return msgspec.structs.replace(
            self,
            lookups=more(self.lookups),
            messages=more(self.messages),
            exchange_seconds=self.exchange_seconds * factor,
            bulk_bytes=more(self.bulk_bytes),
            hellos=more(self.hellos),
        )

    def spread(self) -> list[int]:
        """How many nodes each process holds."""
        least, more = divmod(self.nodes, self.processes)
        return [least + (number < more) for number in range(self.processes)]
