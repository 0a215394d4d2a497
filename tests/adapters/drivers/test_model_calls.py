"""What a model server may answer, and what is told of it when it does not."""

from __future__ import annotations

import msgspec
import pytest

from mycel.core.model.model_program import Kind
from mycel.drivers.model.model_requests import (
    BadAnswer,
    BadInput,
    Call,
    call_of,
    check_event,
    value_of,
)


def passed_on(route: str) -> Call:
    given = msgspec.json.encode({"openai": {"route": route, "body": {"model": "m"}}})
    return call_of("chat", "m", given, b"")


@pytest.mark.parametrize(
    ("route", "answer"),
    [
        ("chat/completions", b'{"choices": [], "more": 1}'),
        ("completions", b'{"choices": [{"text": "a"}]}'),
        ("embeddings", b'{"data": []}'),
    ],
)
def test_an_answer_is_passed_on_as_it_is(route: str, answer: bytes) -> None:
    value = value_of("chat", passed_on(route), answer)
    assert msgspec.json.decode(value) == {"json": msgspec.json.decode(answer)}


@pytest.mark.parametrize(
    "answer", [b"{}", b"[]", b"null", b'"hm"', b'{"choices": 3}', b"<hm>", b'{"choices": "\xff"}']
)
@pytest.mark.parametrize(
    ("kind", "route"), [("chat", "chat/completions"), ("embedding", "embeddings")]
)
def test_nonsense_is_the_servers_fault_whoever_asks(kind: Kind, route: str, answer: bytes) -> None:
    asked = call_of(kind, "m", b'"hello"', b"")
    for call in (asked, passed_on(route)):
        with pytest.raises(BadAnswer, match="the model server's answer"):
            value_of(kind, call, answer)


@pytest.mark.parametrize("event", [b"{no", b"[1]", b"5", b"\xff", b'{"a": 1'])
def test_an_event_of_a_stream_is_an_object(event: bytes) -> None:
    with pytest.raises(BadAnswer, match="no event"):
        check_event(event)


def test_an_event_may_tell_of_an_error() -> None:
    check_event(b'{"choices": [], "error": null}')
    for event in (b'{"error": {"message": "hot"}}', b'{ "id": 1, "error": "hot" }'):
        with pytest.raises(BadAnswer, match=r"failed: .*hot"):
            check_event(event)


@pytest.mark.parametrize(
    "form",
    [
        {"route": "../api/delete", "body": {}},
        {"route": "x HTTP/1.1\r\nHost: a\r\n\r\nDELETE /api/delete", "body": {}},
        {"route": ["completions"], "body": {}},
        {"route": "completions", "body": [1]},
        {"route": "completions"},
        ["completions"],
        5,
    ],
)
def test_an_input_reaches_no_other_route_of_the_owners_server(form: object) -> None:
    with pytest.raises(BadInput, match="the input is neither"):
        call_of("chat", "m", msgspec.json.encode({"openai": form}), b"")


def test_parameters_choose_no_other_model_and_no_stream() -> None:
    more = b'{"model": "other", "stream": true, "temperature": 0.2}'
    for kind in ("chat", "completion", "embedding", "image", "custom"):
        body = call_of(kind, "m", b'"hello"', more).body
        assert (body["model"], body["temperature"], "stream" in body) == ("m", 0.2, False)


@pytest.mark.parametrize("given", [b"5", b"null", b"[1]", b"[" * 100_000, b"{"])
def test_what_is_no_input_is_the_tasks_own_fault(given: bytes) -> None:
    with pytest.raises(BadInput, match="input"):
        call_of("chat", "m", given, b"")


def test_an_answer_without_end_is_the_servers_fault() -> None:
    deep = b"[" * 100_000
    with pytest.raises(BadAnswer):
        value_of("chat", passed_on("completions"), deep)
    with pytest.raises(BadAnswer):
        check_event(b'{"a": ' + deep)
