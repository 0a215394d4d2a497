"""Answers of a chat model, piece by piece, over OpenAI's route."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from .errors import ConnectionLost, ModelFailed
from .event_stream import read_data
from .json_body import encode
from .session import Session

ROUTE: Final = "/v1/chat/completions"
_DONE: Final = b"[DONE]"


class _Delta(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta = msgspec.field(default_factory=_Delta)


class _Error(msgspec.Struct):
    message: str = ""


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    error: _Error | None = None


_decode: Final = msgspec.json.Decoder(_Chunk).decode


def answer(
    session: Session, model: str, messages: Iterable[dict[str, Any]], parameters: dict[str, Any]
) -> Iterator[str]:
    body = {**parameters, "model": model, "messages": list(messages), "stream": True}
    for data in read_data(session.stream(ROUTE, encode(body))):
        if data == _DONE:
            return
        chunk = _decode(data)
        if chunk.error is not None:
            raise ModelFailed(model, chunk.error.message)
        for choice in chunk.choices:
            if choice.delta.content:
                yield choice.delta.content
    raise ConnectionLost("the answer broke off")
