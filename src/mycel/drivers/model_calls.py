"""How a model task becomes a request to its server, and the answer the task's result.

| kind       | request                  | result             |
|------------|--------------------------|--------------------|
| chat       | POST chat/completions    | {"text", "usage"}  |
| completion | POST completions         | {"text", "usage"}  |
| embedding  | POST embeddings          | {"json": vectors}  |
| image      | POST images/generations  | {"json": answer}   |
| custom     | POST invoke              | {"json": answer}   |

A request that came to the scheduler in the OpenAI form already is passed on as it is, and its
answer passed back: `{"openai": {"route": …, "body": …}}`.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

Kind = Literal["chat", "completion", "embedding", "image", "custom"]
ROUTES: Final[dict[str, str]] = {
    "chat": "chat/completions",
    "completion": "completions",
    "embedding": "embeddings",
    "image": "images/generations",
    "custom": "invoke",
}
OPENAI: Final = "openai"


class BadInput(Exception):
    """The task's own fault: the message is for its user."""


class BadAnswer(Exception):
    """The server's fault."""


class Call(msgspec.Struct, frozen=True):
    route: str
    body: dict[str, Any]
    raw: bool = False
    """The answer is the result, as it is."""

    @property
    def streams(self) -> bool:
        return self.raw and self.body.get("stream") is True


def call_of(kind: Kind, model: str, given: bytes, parameters: bytes) -> Call:
    """`model` is the name that the server knows."""
    fields: dict[str, Any] = _object(given, "input")
    more: dict[str, Any] = _object(parameters, "parameters") if parameters else {}
    if OPENAI in fields:
        form = fields[OPENAI]
        return Call(str(form["route"]), {**form["body"], "model": model}, raw=True)
    if kind == "chat":
        messages = fields.get("messages") or [{"role": "user", "content": _text(fields)}]
        return Call(ROUTES[kind], {"model": model, "messages": messages, **more})
    if kind in ("completion", "image"):
        return Call(ROUTES[kind], {"model": model, "prompt": _text(fields), **more})
    given_input = fields["json"] if "json" in fields else _text(fields)
    return Call(ROUTES[kind], {"model": model, "input": given_input, **more})


def _object(data: bytes, what: str) -> dict[str, Any]:
    found = msgspec.json.decode(data)
    if isinstance(found, str):
        return {"text": found}
    if not isinstance(found, dict):
        raise BadInput(f"{what} is a string or an object")
    return found


def _text(fields: dict[str, Any]) -> str:
    text = fields.get("text")
    if not isinstance(text, str):
        raise BadInput(f"this model takes text, and the input has {', '.join(fields) or 'nothing'}")
    return text


def value_of(kind: Kind, call: Call, answer: bytes) -> bytes:
    """The task's result, as JSON."""
    try:
        document = msgspec.json.decode(answer)
    except msgspec.DecodeError as error:
        raise BadAnswer(f"the model server's answer is no JSON: {error}") from None
    if call.raw:
        return msgspec.json.encode({"json": document})
    try:
        result = _result(kind, document)
    except (KeyError, IndexError, TypeError) as error:
        raise BadAnswer(
            f"the model server's answer has not the form of {ROUTES[kind]}: {error!r}"
        ) from None
    return msgspec.json.encode(result)


def _result(kind: Kind, document: Any) -> dict[str, Any]:
    if kind == "chat":
        return _with_usage(document["choices"][0]["message"]["content"], document)
    if kind == "completion":
        return _with_usage(document["choices"][0]["text"], document)
    if kind == "embedding":
        return {"json": [one["embedding"] for one in document["data"]]}
    return {"json": document}


def _with_usage(text: Any, document: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(text, str):
        raise TypeError("the text is missing")
    return {"text": text, **({"usage": document["usage"]} if document.get("usage") else {})}


def refusal_of(status: int, answer: bytes) -> str:
    """What the server says of its refusal, in one line."""
    try:
        document = msgspec.json.decode(answer)
        error = document.get("error", document)
        text = error.get("message") if isinstance(error, dict) else str(error)
    except (msgspec.DecodeError, AttributeError):
        text = answer[:200].decode(errors="replace")
    return f"the model server answered {status}: {str(text)[:500]}"
