"""`${name}`: what is filled, what is left alone."""

from __future__ import annotations

from typing import Any

import pytest

from mycel.core.substitution import fill_text, fill_value, references

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
        ("$${lr}", "${lr}"),
        ("$${missing}", "$${missing}"),
        ("${t}", "${lr}"),
        ("$lr {lr} ${lr", "$lr {lr} ${lr"),
    ],
)
def test_texts(text: str, filled: str) -> None:
    assert fill_text(text, VALUES) == filled


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
    assert fill_value(value, VALUES) == filled


def test_references_are_found() -> None:
    assert list(references("${a} $${b} ${c.d[0]} ${} {e}")) == ["a", "c.d[0]"]
