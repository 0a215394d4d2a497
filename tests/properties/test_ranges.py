"""Every number, text and list that comes from elsewhere has a range in its type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import msgspec
import msgspec.inspect as looking
import pytest

from mycel.blobs import blob_messages as blob_messages
from mycel.core import journal, messages, ranges
from mycel.core.messages import Outcome
from mycel.core.model.jobs import Specification
from mycel.core.model.reports import Report, StoredReport
from mycel.core.model.stages import Stage
from mycel.core.model.work import Finished, Shape
from mycel.core.ranges import bounded
from mycel.discovery.worker_record import WorkerRecord
from mycel.drivers.helper import helper_messages
from mycel.swarm import message_codec

ROOTS: dict[str, Any] = {
    "work stream": messages.WorkMessage,
    "control stream": messages.ControlMessage,
    "signal stream": messages.SignalMessage,
    "gossip": messages.Announcement,
    "blob stream": blob_messages.Message,
    "record of the DHT": WorkerRecord,
    "spool": Outcome,
    "journal's shapes": Shape,
    "journal's stages": Stage,
    "journal's specifications": Specification,
    "desk": Report,
    "reports": StoredReport,
    "drivers": Finished,
    "helper": helper_messages.Report,
} | {f"journal: {entry.__name__}": entry for entry in get_args(journal.Entry)}


class Inner(msgspec.Struct):
    number: int
    numbers: list[ranges.Count]
    right: ranges.Size


class Outer(msgspec.Struct):
    inner: Inner | None
    text: dict[str, float]


def unbounded(kind: Any, path: str, seen: set[Any]) -> Iterator[str]:
    """The places where anything goes."""
    match kind:
        case looking.IntType(ge=low, le=high) | looking.FloatType(ge=low, le=high):
            if low is None or high is None:
                yield path
        case looking.StrType(max_length=most) | looking.BytesType(max_length=most):
            if most is None:
                yield path
        case (
            looking.ListType(item_type=item, max_length=most)
            | looking.VarTupleType(item_type=item, max_length=most)
        ):
            if most is None:
                yield path
            yield from unbounded(item, f"{path}[]", seen)
        case looking.DictType(key_type=key, value_type=value, max_length=most):
            if most is None:
                yield path
            yield from unbounded(key, f"{path} key", seen)
            yield from unbounded(value, f"{path}{{}}", seen)
        case looking.TupleType(item_types=kinds):
            for place, one in enumerate(kinds):
                yield from unbounded(one, f"{path}[{place}]", seen)
        case looking.UnionType(types=kinds):
            for one in kinds:
                yield from unbounded(one, path, seen)
        case looking.StructType(cls=of, fields=fields):
            if of not in seen:
                seen.add(of)
                for field in fields:
                    yield from unbounded(field.type, f"{of.__name__}.{field.name}", seen)
        case looking.Metadata(type=inner):
            yield from unbounded(inner, path, seen)
        case looking.BoolType() | looking.NoneType() | looking.LiteralType() | looking.EnumType():
            pass
        case _:
            yield f"{path}: {kind}"


@pytest.mark.parametrize("root", ROOTS)
def test_every_field_has_a_range(root: str) -> None:
    found = list(unbounded(looking.type_info(ROOTS[root]), root, set()))
    assert not found, "\n".join(found)


def test_the_walk_finds_a_field_without_a_range() -> None:
    found = list(unbounded(looking.type_info(Outer), "outer", set()))
    places = ["Inner.number", "Inner.numbers", "Outer.text", "Outer.text key", "Outer.text{}"]
    assert found == places


def test_every_message_is_looked_at() -> None:
    """The unions have all that there is: what is in none of them cannot be said."""
    said = {*get_args(messages.WorkMessage), *get_args(messages.ControlMessage)}
    said |= {*get_args(messages.SignalMessage), messages.Announcement}
    assert said == set(messages.Message.__subclasses__())
    assert set(get_args(blob_messages.Message)) == set(blob_messages.BlobMessage.__subclasses__())


def _outcome(**fields: Any) -> bytes:
    names = [field.name for field in msgspec.structs.fields(Outcome)]
    plain = msgspec.msgpack.decode(message_codec.encode_outcome(Outcome(1, 1, 1, "failed")))  # type: ignore[arg-type]
    for name, value in fields.items():
        plain[names.index(name)] = value
    return msgspec.msgpack.encode(["results", 0.0, [plain], []])


@pytest.mark.parametrize(
    "fields",
    [
        {"exit_code": 1 << 63},
        {"exit_code": -(1 << 63)},
        {"attempt": 1 << 63},
        {"attempt": 1 << 62},
        {"attempt": -1},
        {"index": 1 << 32},
        {"peak_memory": (1 << 63) - 1},
        {"value_size": (1 << 63) - 1},
        {"number": (1 << 64) - 1},
        {"error": "x" * (ranges.ERROR_CHARACTERS_MAX + 1)},
        {"started_at": float("nan")},
        {"cpu_seconds": float("inf")},
    ],
)
def test_an_extreme_outcome_is_no_message(fields: dict[str, Any]) -> None:
    message_codec.decode_work(_outcome())
    with pytest.raises(message_codec.MalformedFrame):
        message_codec.decode_work(_outcome(**fields))


@pytest.mark.parametrize("stream", [-1, 0, 3, 256, 1 << 63])
def test_there_are_two_output_streams(stream: int) -> None:
    for number in (1, 2):
        message_codec.decode_work(msgspec.msgpack.encode(["written", [[1, number, 0, b"x"]]]))
    with pytest.raises(message_codec.MalformedFrame):
        message_codec.decode_work(msgspec.msgpack.encode(["written", [[1, stream, 0, b"x"]]]))


def test_a_text_is_made_to_fit() -> None:
    assert bounded("as it is", 100) == "as it is"
    cut = bounded("a" * 1000 + "b" * 1000, 300)
    assert len(cut) <= 300
    assert cut.startswith("a" * 50)
    assert cut.endswith("b" * 50)
    assert "characters are left out" in cut
    assert bounded("half \ud800 a pair", 100) == "half ? a pair"
    assert bounded("übel", 100) == "übel"
