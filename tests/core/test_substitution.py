"""`${name}`: what is filled, what is left alone."""

from __future__ import annotations

from typing import Any

import pytest

from mycel.core.errors import TooLong
from mycel.core.model.substitution import (
    FILLED_CHARACTERS_MAX,
    Budget,
    fill_text,
    fill_value,
    references,
)

VALUES = {"lr": 0.1, "name": "a b", "none": None, "deep": {"list": [1, {"x": "y"}]}, "t": "${lr}"}


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("--lr=${lr} ${name}", "--lr=0.1 a b"),
        ("${none}", "null"),
        ("${deep.list[1].x} ${deep.list.0}", "y 1"),
        ("${deep.list}", '[1,{"x":"y"}]'),
        (
            "${missing} ${deep.missing} ${deep.list[7]}",
            "${missing} ${deep.missing} ${deep.list[7]}",
        ),
        ("${deep.list.²} ${deep.list[१]}", "${deep.list.²} ${deep.list[१]}"),
        pytest.param(*(f"${{deep.list[{'9' * 5000}]}}",) * 2, id="a number without end"),
        ("$${lr}", "${lr}"),
        ("$${missing}", "$${missing}"),
        ("${t}", "${lr}"),
        ("$lr {lr} ${lr", "$lr {lr} ${lr"),
    ],
)
def test_texts(text: str, filled: str) -> None:
    assert fill_text(text, VALUES, Budget()) == filled


@pytest.mark.parametrize(
    ("value", "filled"),
    [
        ("${lr}", 0.1),
        (["${lr}", "x${lr}"], [0.1, "x0.1"]),
        ({"a": {"b": "${deep.list}"}}, {"a": {"b": [1, {"x": "y"}]}}),
        ({"${lr}": 1}, {"${lr}": 1}),
        ("$${lr}", "${lr}"),
        (3, 3),
    ],
)
def test_values_keep_their_type(value: Any, filled: Any) -> None:
    assert fill_value(value, VALUES, Budget()) == filled


def test_references_are_found() -> None:
    assert list(references("${a} $${b} ${c.d[0]} ${} {e}")) == ["a", "c.d[0]"]


@pytest.mark.parametrize(
    "template", [["${long}"] * 1000, "${long}" * 1000, {"a": ["x${long}"] * 999}]
)
def test_a_long_value_is_not_repeated_without_end(template: Any) -> None:
    long = {"long": "x" * (FILLED_CHARACTERS_MAX // 100)}
    assert fill_value("${long}", long, Budget()) == long["long"]
    with pytest.raises(TooLong, match="8 million characters"):
        fill_value(template, long, Budget())
