"""What a worker says of itself in the DHT, at `/mycel/worker/<peer id>`.

The envelope around it (signature, sequence, expiry) is the swarm's, and was checked before a
record gets here. Fields are only ever added at the end, with a default.
"""

from __future__ import annotations

from typing import Final

import msgspec

from mycel.core.events import Sighting
from mycel.core.identifiers import Boot
from mycel.core.model.resources import Capabilities
from mycel.core.ranges import Addresses, Moment, Name
from mycel.swarm.interface import SignedRecord

RECORD_BYTES_MAX: Final = 8 << 10
ADDRESSES_MAX: Final = 16
NAME_LENGTH_MAX: Final = 128
VALID_SECONDS_MAX: Final = 900.0
"""A record that claims to hold longer is believed for so long."""
SOURCE: Final = "dht"


class WorkerRecord(msgspec.Struct, frozen=True, array_like=True):
    boot: Boot
    published_at: Moment
    """Unix time, by the worker's own clock."""
    name: Name
    capabilities: Capabilities
    addresses: Addresses
    software_version: Name = ""


class UnreadableRecord(Exception):
    """The publisher's fault: it is signed, and says nothing that we understand."""


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(WorkerRecord)


def encode_record(record: WorkerRecord) -> bytes:
    """Raises `ValueError` if it is longer than others would take."""
    payload = _encoder.encode(record)
    if len(payload) > RECORD_BYTES_MAX:
        raise ValueError(
            f"the worker's record has {len(payload)} bytes, {RECORD_BYTES_MAX} are allowed: it "
            "needs fewer labels, models or custom resources"
        )
    return payload


def decode_record(payload: bytes) -> WorkerRecord:
    if len(payload) > RECORD_BYTES_MAX:
        raise UnreadableRecord(f"a record of {len(payload)} bytes")
    try:
        return _decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        # The last where a field that a later version may have added nests without end.
        raise UnreadableRecord(f"not a worker's record: {error}") from error


def sighting_of(signed: SignedRecord, now_unix: float) -> Sighting | None:
    """None if it has expired. Raises `UnreadableRecord`."""
    valid_seconds = min(signed.expires_at - now_unix, VALID_SECONDS_MAX)
    if valid_seconds <= 0:
        return None
    record = decode_record(signed.payload)
    return Sighting(
        peer=signed.peer,
        boot=record.boot,
        sequence=signed.sequence,
        published_at=record.published_at,
        valid_seconds=valid_seconds,
        source=SOURCE,
        capabilities=record.capabilities,
        addresses=record.addresses[:ADDRESSES_MAX],
        name=record.name[:NAME_LENGTH_MAX],
        software_version=record.software_version[:NAME_LENGTH_MAX],
    )
