"""The depth of JSON is found without a walk, and as a walk would find it."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mycel.core.model.json_depth import DEPTH_MAX, nests_too_deeply

TEXTS = st.text(alphabet='ab"\\[]{}\n', max_size=8)
VALUES = st.recursive(
    st.none() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=10,
)


def depth_of(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    is_level = isinstance(value, dict | list)
    return is_level + max(map(depth_of, inner), default=0)


@given(value=VALUES, levels=st.integers(0, DEPTH_MAX + 5), named=st.booleans())
def test_it_is_as_a_walk_finds_it(value: Any, levels: int, named: bool) -> None:
    for _ in range(levels):
        value = {'"[': value} if named else ["\\", value, "}"]
    assert nests_too_deeply(json.dumps(value).encode()) == (depth_of(value) > DEPTH_MAX)


def test_many_beside_each_other_are_not_deep() -> None:
    assert not nests_too_deeply(json.dumps([[{"a": []}]] * 10_000).encode())
    assert nests_too_deeply(b"[" * 1_000_000)
    deepest = b"[" * (DEPTH_MAX - 1) + b'"[",""' + b"]" * (DEPTH_MAX - 1)
    assert not nests_too_deeply(b"[" + b",".join([deepest] * 100) + b"]")
    assert nests_too_deeply(b"[[" + b",".join([deepest] * 100) + b"]]")
