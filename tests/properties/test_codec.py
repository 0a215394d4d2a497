"""Messages survive the wire, and nothing else is taken for one."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mycel.core import messages
from mycel.core.authenticators import AUTHENTICATOR_BYTES
from mycel.core.messages import ControlMessage, Message, Outcome, WorkMessage
from mycel.swarm import message_codec

NUMBERS = st.integers(1, 2)  # which every range has
SECONDS = st.floats(0.0, 1e15)
st.register_type_strategy(int, NUMBERS)
st.register_type_strategy(float, SECONDS)


def _bundle(count: int) -> st.SearchStrategy[messages.Bundle]:
    def lists(items: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
        return st.lists(items, min_size=count, max_size=count)

    return st.builds(
        messages.Bundle,
        indices=lists(NUMBERS),
        numbers=lists(NUMBERS),
        arguments=st.one_of(st.just([]), lists(st.binary())),
        authenticators=st.sampled_from([b"", bytes(AUTHENTICATOR_BYTES * count)]),
    )


_proof = st.binary(max_size=AUTHENTICATOR_BYTES)
for _kind in (Outcome, messages.HeldAttempt):
    st.register_type_strategy(_kind, st.builds(_kind, authenticator=_proof))
_bundles = st.lists(st.integers(1, 3).flatmap(_bundle), min_size=1, max_size=2)
st.register_type_strategy(messages.Assign, st.builds(messages.Assign, bundles=_bundles))

work_messages = st.one_of(*(st.from_type(kind) for kind in get_args(WorkMessage)))
control_messages = st.one_of(*(st.from_type(kind) for kind in get_args(ControlMessage)))


@settings(max_examples=60)
@given(work_messages)
def test_work_messages_come_back_as_they_were(message: Any) -> None:
    assert message_codec.decode_work(message_codec.encode(message)) == message


@settings(max_examples=40)
@given(control_messages)
def test_control_messages_come_back_as_they_were(message: Any) -> None:
    assert message_codec.decode_control(message_codec.encode(message)) == message


@settings(max_examples=20)
@given(st.from_type(Outcome))
def test_outcomes_come_back_from_disk(outcome: Outcome) -> None:
    assert message_codec.decode_outcome(message_codec.encode_outcome(outcome)) == outcome


@given(st.binary(max_size=200))
@example(b"\x91\xa1\x80")  # a tag that is not UTF-8
def test_noise_is_refused_or_harmless(noise: bytes) -> None:
    for decode in (
        message_codec.decode_work,
        message_codec.decode_control,
        message_codec.decode_announcement,
    ):
        try:
            message = decode(noise)
        except message_codec.MalformedFrame:
            continue
        assert isinstance(message, Message)


def test_a_later_version_may_add_fields_at_the_end() -> None:
    longer = msgspec.msgpack.encode(["renew", 7.0, 2, "a field of tomorrow"])
    message = message_codec.decode_work(longer)
    assert isinstance(message, messages.Renew)
    assert (message.echo, message.lease) == (7.0, 2)


def test_an_unknown_message_is_refused() -> None:
    with pytest.raises(message_codec.MalformedFrame, match="tomorrow"):
        message_codec.decode_work(msgspec.msgpack.encode(["tomorrow", 1]))


def test_gossip_over_the_limit_is_refused() -> None:
    with pytest.raises(message_codec.MalformedFrame, match="limit"):
        message_codec.decode_announcement(b"x" * (64 * 1024 + 1))


@pytest.mark.parametrize(
    ("decode", "known"),
    [
        (message_codec.decode_work, messages.Kill([])),
        (message_codec.decode_control, messages.Join(1, messages.PeerRecord("p", (), ()))),
    ],
)
def test_a_field_of_a_later_version_cannot_nest_without_end(decode: Any, known: Message) -> None:
    frame = message_codec.encode(known)
    longer = bytes([frame[0] + 1]) + frame[1:] + b"\x91" * 60_000
    with pytest.raises(message_codec.MalformedFrame):
        decode(longer)
