"""Messages to frames and back: msgpack, each with the tag that names it.

Fields that a later version has added are ignored, those that an earlier one lacks have their
defaults. What cannot be read is `MalformedFrame`: the peer's fault, and the end of the link.
"""

from __future__ import annotations

from typing import Final

import msgspec

from mycel.core.messages import (
    Announcement,
    ControlMessage,
    Message,
    Outcome,
    SignalMessage,
    WorkMessage,
)

from .frame_limits import GOSSIP_BYTES_MAX

_encoder: Final = msgspec.msgpack.Encoder()
_work: Final[msgspec.msgpack.Decoder[WorkMessage]] = msgspec.msgpack.Decoder(WorkMessage)
_control: Final[msgspec.msgpack.Decoder[ControlMessage]] = msgspec.msgpack.Decoder(ControlMessage)
_signal: Final[msgspec.msgpack.Decoder[SignalMessage]] = msgspec.msgpack.Decoder(SignalMessage)
_announcement: Final = msgspec.msgpack.Decoder(Announcement)
_outcome: Final = msgspec.msgpack.Decoder(Outcome)
_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""The second where a text is not UTF-8, which msgspec does not call an error of its own; the
third where an unknown field nests without end."""


class MalformedFrame(Exception):
    """The peer's fault: this is no message of ours."""


def encode(message: Message) -> bytes:
    return _encoder.encode(message)


def decode_work(frame: bytes) -> WorkMessage:
    try:
        return _work.decode(frame)
    except _UNREADABLE as error:
        raise MalformedFrame(f"not a work message: {error}") from error


def decode_control(frame: bytes) -> ControlMessage:
    try:
        return _control.decode(frame)
    except _UNREADABLE as error:
        raise MalformedFrame(f"not a control message: {error}") from error


def decode_signal(frame: bytes) -> SignalMessage:
    try:
        return _signal.decode(frame)
    except _UNREADABLE as error:
        raise MalformedFrame(f"not a signal: {error}") from error


def decode_announcement(data: bytes) -> Announcement:
    if len(data) > GOSSIP_BYTES_MAX:
        raise MalformedFrame("gossip over the limit")
    try:
        return _announcement.decode(data)
    except _UNREADABLE as error:
        raise MalformedFrame(f"not an announcement: {error}") from error


def encode_outcome(outcome: Outcome) -> bytes:
    """For the worker's own disk."""
    return _encoder.encode(outcome)


def decode_outcome(data: bytes) -> Outcome:
    try:
        return _outcome.decode(data)
    except _UNREADABLE as error:
        raise MalformedFrame(f"not an outcome: {error}") from error
