"""A worker makes itself findable: a record of its own, and a key for each of its facets.

The record is published again before it ends, and at once when the worker can be reached
elsewhere; it is withdrawn when the worker stops in order. Its sequence is the worker's durable
boot number and a counter, so that a later one is always higher, whatever the clock says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mycel.core.model.resources import Capabilities, ServedModel
from mycel.core.worker.served_models import with_served
from mycel.runtime.clock import Clock
from mycel.swarm.errors import SwarmError
from mycel.swarm.interface import Swarm

from .dht_keys import provided_keys
from .worker_record import ADDRESSES_MAX, NAME_LENGTH_MAX, WorkerRecord, encode_record

VALID_SECONDS: Final = 600.0
RENEW_SECONDS: Final = 240.0
CHANGE_SECONDS_MIN: Final = 2.0
"""Changes are collected for so long: a node's addresses come one by one."""
_COUNTER_BITS: Final = 24


class Publishing:
    def __init__(
        self,
        clock: Clock,
        capabilities: Capabilities,
        name: str,
        software_version: str,
        shard_bits: int,
        note: Callable[..., None],
    ) -> None:
        self._clock = clock
        self._capabilities = capabilities
        self._name = name[:NAME_LENGTH_MAX]
        self._software_version = software_version
        self._shard_bits = shard_bits
        self._note = note
        self._swarm: Swarm | None = None
        self._boot = 0
        self._published = 0
        self._keys: list[bytes] = []
        self._change_is_due = False

    def start(self, swarm: Swarm, boot: int) -> None:
        self._swarm = swarm
        self._boot = boot
        self._keys = provided_keys(self._capabilities, swarm.peer, self._shard_bits)
        for key in self._keys:
            swarm.provide(key)
        self._renew()

    def stop(self) -> None:
        """In order: nobody need find out by a failed call."""
        swarm, self._swarm = self._swarm, None
        if swarm is not None:
            for key in self._keys:
                swarm.stop_providing(key)
            swarm.withdraw_record()

    def serves(self, models: tuple[ServedModel, ...]) -> None:
        """This node serves these models from now on."""
        before, self._capabilities = self._capabilities, with_served(self._capabilities, models)
        swarm = self._swarm
        if swarm is None or self._capabilities == before:
            return
        keys = provided_keys(self._capabilities, swarm.peer, self._shard_bits)
        for key in set(keys) - set(self._keys):
            swarm.provide(key)
        for key in set(self._keys) - set(keys):
            swarm.stop_providing(key)
        self._keys = keys
        self.changed()

    def changed(self) -> None:
        """This node listens elsewhere, or can be reached through another relay."""
        if self._swarm is None or self._change_is_due:
            return
        self._change_is_due = True

        def due() -> None:
            self._change_is_due = False
            self._publish()

        self._clock.call_at(self._clock.now() + CHANGE_SECONDS_MIN, due)

    def _renew(self) -> None:
        if self._swarm is not None:
            self._publish()
            self._clock.call_at(self._clock.now() + RENEW_SECONDS, self._renew)

    def _publish(self) -> None:
        if self._swarm is None:
            return
        self._published += 1
        now = self._clock.unix()
        record = WorkerRecord(
            boot=self._boot,
            published_at=now,
            name=self._name,
            capabilities=self._capabilities,
            addresses=tuple(self._swarm.addresses[:ADDRESSES_MAX]),
            software_version=self._software_version,
        )
        sequence = (self._boot << _COUNTER_BITS) + self._published
        try:
            self._swarm.put_record(encode_record(record), sequence, now + VALID_SECONDS)
        except (ValueError, SwarmError) as error:
            self._note("cannot_publish", error=str(error))
