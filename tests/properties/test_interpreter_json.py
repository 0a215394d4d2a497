"""What an interpreter reads and writes is what Python's own module reads and writes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mycel.drivers.python.interpreter_json import Json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)  # fmt: skip
WITHOUT_SURROGATES = VALUES.filter(lambda value: "\\ud" not in json.dumps(value))
JSON = Json()


@given(WITHOUT_SURROGATES)
def test_values_are_written_as_the_json_module_writes_them(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    assert JSON.encode(value) == text.encode()


@given(WITHOUT_SURROGATES, st.sampled_from(["", " ", "\n\t"]))
def test_arguments_are_read_with_or_without_white_space(value: object, space: str) -> None:
    assert JSON.decode(f"{space}{json.dumps(value)}{space}".encode()) == value


@given(st.text(max_size=8))
def test_what_is_not_json_is_refused_as_by_the_json_module(text: str) -> None:
    try:
        expected = json.loads(text)
    except ValueError:
        with pytest.raises(ValueError):  # noqa: PT011 - whatever is wrong with it
            JSON.decode(text.encode("utf-8", "surrogatepass"))
    else:
        found = JSON.decode(text.encode())
        assert found == expected or found != found  # NaN


def test_a_value_that_cannot_be_written_does_not_spoil_the_next() -> None:
    endless: list[object] = [1]
    endless.append(endless)
    for value, error in (
        ({1: "one"}, TypeError),
        ([{1, 2}], TypeError),
        (endless, ValueError),
    ):
        for _ in range(2):
            with pytest.raises(error):
                JSON.encode(value)
        assert JSON.encode([1]) == b"[1]"
    endless.pop()
    assert JSON.encode(endless) == b"[1]"


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
def test_numbers_that_json_lacks_are_written_in_words(number: str) -> None:
    written = JSON.encode({"a": [1.5, (float(number),)]})
    assert written == b'{"a":[1.5,[{"$float":"%b"}]]}' % number.encode()
    assert str(JSON.decode(written)) == str({"a": [1.5, [float(number)]]})


def test_only_that_form_is_a_number() -> None:
    for value in ({"$float": "1.5"}, {"$float": "nan", "b": 1}, {"$float": ["nan"]}):
        assert JSON.decode(JSON.encode(value)) == value
