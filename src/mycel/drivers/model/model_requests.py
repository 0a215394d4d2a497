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

from typing import Any, Final

import msgspec

from mycel.core.model.failures import BAD_INPUT, MODEL_UPSTREAM
from mycel.core.model.model_program import Kind

ROUTES: Final[dict[str, str]] = {
    "chat": "chat/completions",
    "completion": "completions",
    "embedding": "embeddings",
    "image": "images/generations",
    "custom": "invoke",
}
OPENAI: Final = "openai"
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The second where a text is not UTF-8, the third where it nests without end."""
PASSED_ON: Final = (ROUTES["chat"], ROUTES["completion"], ROUTES["embedding"])
"""A route becomes part of a request to the owner's server: there are no others."""


class BadInput(Exception):
    """The task's own fault: the message is for its user."""

    def __init__(self, message: str, code: str = BAD_INPUT) -> None:
        super().__init__(message)
        self.code = code


class BadAnswer(Exception):
    """The server's fault."""

    code = MODEL_UPSTREAM


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
        return _call_as_it_came(model, fields[OPENAI])
    # Whatever else is asked of it, it is the model that the task names, and answers as a whole.
    more.pop("stream", None)
    more["model"] = model
    if kind == "chat":
        messages = fields.get("messages") or [{"role": "user", "content": _text(fields)}]
        return Call(ROUTES[kind], {**more, "messages": messages})
    if kind in ("completion", "image"):
        return Call(ROUTES[kind], {**more, "prompt": _text(fields)})
    given_input = fields["json"] if "json" in fields else _text(fields)
    return Call(ROUTES[kind], {**more, "input": given_input})


def _call_as_it_came(model: str, form: Any) -> Call:
    """From the scheduler's own routes, but any input of a job may look like it."""
    route, body = (form.get("route"), form.get("body")) if isinstance(form, dict) else (None, None)
    if route not in PASSED_ON or not isinstance(body, dict):
        raise BadInput("the input is neither text, messages, JSON nor a file")
    return Call(route, {**body, "model": model}, raw=True)


def _object(data: bytes, what: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(data)
    except UNREADABLE as error:
        raise BadInput(f"{what} cannot be read: {error}") from None
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
    except UNREADABLE as error:
        raise BadAnswer(f"the model server's answer is no JSON: {error}") from None
    try:
        result = _passed_on(call.route, document) if call.raw else _result(kind, document)
    except (KeyError, IndexError, TypeError) as error:
        raise BadAnswer(
            f"the model server's answer has not the form of {call.route}: {error!r}"
        ) from None
    return msgspec.json.encode(result)


def _passed_on(route: str, document: Any) -> dict[str, Any]:
    """As it is, if it has what clients look into without another look."""
    content = document["data" if route == ROUTES["embedding"] else "choices"]
    if not isinstance(content, list):
        raise TypeError("what it has to say is no list")
    return {"json": document}


class _Event(msgspec.Struct):
    error: msgspec.Raw = msgspec.Raw()


def check_event(data: bytes) -> None:
    """One of a stream: clients trust that it is an object."""
    try:
        error = bytes(msgspec.json.decode(data, type=_Event).error)
    except UNREADABLE as problem:
        raise BadAnswer(f"the model server streamed what is no event: {problem}") from None
    if error not in (b"", b"null"):
        raise BadAnswer(f"the model server failed: {data[:500].decode(errors='replace')}")


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
    except (*UNREADABLE, AttributeError):
        text = answer[:200].decode(errors="replace")
    return f"the model server answered {status}: {str(text)[:500]}"
