"""What a member may say that is a message and makes no sense: it ends neither a scheduler nor a
worker. It may cost the member its own tasks, leases and link, and nobody else anything."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import msgspec.inspect as looking
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mycel.core import messages
from mycel.core.events import Received, Tick
from mycel.core.model.stages import Stage
from mycel.swarm import message_codec
from tests.core import worker_stage
from tests.core.test_staging import WORKER, Bench

_FLOATS = [0.0, 1.0, -1.0, 0.5, 1e-9, 1e15, 1e18, -1e18, 1e300, math.inf, -math.inf, math.nan]
_NUMBERS = [0, 1, 2, 3, 7, -1, 1 << 40, (1 << 40) + 1, 1 << 62, (1 << 63) - 1, -(1 << 63)]
_TEXTS = ["", "a", "succeeded", "failed", "process", "python", "²", "x" * 2000]
_BYTES = [b"", b"1", b"null", b"\xff", b"[" * 2000, b'{"progress": 1e999}']


def anything_of(kind: looking.Type) -> st.SearchStrategy[Any]:
    """Whatever the wire lets through as a value of this type, as it stands in a frame."""
    match kind:
        case looking.BoolType():
            return st.booleans()
        case looking.IntType(ge=least, le=most) | looking.FloatType(ge=least, le=most):
            pool: list[float] = [*_NUMBERS] if isinstance(kind, looking.IntType) else _FLOATS
            low, high = least if least is not None else -math.inf, most
            fits = [n for n in pool if high is None or low <= n <= high]
            return st.sampled_from(fits)
        case looking.StrType():
            return st.sampled_from(_TEXTS)
        case looking.BytesType():
            return st.sampled_from(_BYTES)
        case looking.NoneType():
            return st.none()
        case looking.LiteralType(values=values):
            return st.sampled_from(values)
        case looking.UnionType(types=kinds):
            return st.one_of(*map(anything_of, kinds))
        case looking.TupleType(item_types=kinds):
            return st.tuples(*map(anything_of, kinds))
        case looking.ListType(item_type=item) | looking.VarTupleType(item_type=item):
            return st.lists(anything_of(item), max_size=2)
        case looking.StructType():
            return _struct(kind)
    raise NotImplementedError(kind)


def _struct(kind: looking.StructType) -> st.SearchStrategy[Any]:
    fields = [anything_of(field.type) for field in kind.fields]
    if kind.array_like:
        tag = [] if kind.tag is None else [kind.tag]
        return st.tuples(*fields).map(lambda values: [*tag, *values])
    names = [field.encode_name for field in kind.fields]
    return st.fixed_dictionaries({}, optional=dict(zip(names, fields, strict=True)))


def _messages(kinds: Any) -> st.SearchStrategy[list[bytes]]:
    return st.lists(anything_of(looking.type_info(kinds)).map(msgspec.msgpack.encode), max_size=6)


_said = st.tuples(_messages(messages.WorkMessage), _messages(messages.ControlMessage))


def heard(said: tuple[list[bytes], list[bytes]]) -> list[Any]:
    """As the other end reads it; what is no message there ends the link."""
    found: list[Any] = []
    for decode, frames in zip(
        (message_codec.decode_work, message_codec.decode_control), said, strict=True
    ):
        for frame in frames:
            try:
                found.append(decode(frame))
            except message_codec.MalformedFrame:
                continue
    return found


@settings(max_examples=150, suppress_health_check=list(HealthCheck), deadline=None)
@given(_said)
def test_no_message_of_a_worker_ends_a_scheduler(said: tuple[list[bytes], list[bytes]]) -> None:
    bench = Bench()
    bench.come()
    bench.submit((Stage("a", hands_on=True), Stage("b", needs=(0,), wants=(0,))), 3, 1)
    for message in heard(said):
        bench.tell(Received(WORKER, message, 1.0))
        bench.run_through()
    bench.tell(Tick(), 100.0)


@settings(max_examples=150, suppress_health_check=list(HealthCheck), deadline=None)
@given(_said)
def test_no_message_of_a_scheduler_ends_a_worker(said: tuple[list[bytes], list[bytes]]) -> None:
    stage = worker_stage.Stage()
    stage.introduce()
    stage.assign()
    for message in heard(said):
        stage.hear(message)
    stage.now += 100.0
    stage.do(Tick())
