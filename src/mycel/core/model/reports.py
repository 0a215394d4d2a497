"""What a task reports of itself while it runs."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from mycel.core.ranges import Finite, Name

MESSAGE_CHARACTERS_MAX: Final = 1000
METRICS_MAX: Final = 100

Metrics = Annotated[dict[Name, Finite], msgspec.Meta(max_length=METRICS_MAX)]
MessageText = Annotated[str, msgspec.Meta(max_length=MESSAGE_CHARACTERS_MAX)]


class Report(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Each replaces the one before."""

    progress: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] | None = None
    message: MessageText = ""
    metrics: Metrics = {}


class StoredReport(msgspec.Struct, frozen=True):
    """The same as it comes over the wire or from disk: a later version may have said more."""

    progress: Finite | None = None
    message: MessageText = ""
    metrics: Metrics = {}


_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(StoredReport)


def encode(report: Report) -> bytes:
    return _encoder.encode(report)


def decode(raw: bytes) -> StoredReport:
    """Empty for what nobody reported, or what cannot be read."""
    if not raw:
        return StoredReport()
    try:
        return _decoder.decode(raw)
    except msgspec.MsgspecError:
        return StoredReport()
