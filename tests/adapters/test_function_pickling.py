"""What the client makes of functions, their modules and their arguments before it sends them."""

from __future__ import annotations

import base64
import importlib
import io
import math
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mycel.client.functions import own_modules, pickling, values
from mycel.drivers.python import interpreter_values, pickled_calls
from mycel.drivers.python.interpreter_json import Json

Write = Callable[[str, str], None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    monkeypatch.syspath_prepend(tmp_path)

    def make(name: str, source: str) -> None:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(source)

    return make


def names(archive: bytes) -> list[str]:
    return zipfile.ZipFile(io.BytesIO(archive)).namelist() if archive else []


def test_modules_are_found_by_their_imports(write: Write) -> None:
    write("farm/__init__.py", "from . import barn\n")
    write("farm/barn.py", "from .tools import rake\nimport json, numpy\n")
    write("farm/tools/__init__.py", "")
    write("farm/tools/rake.py", "from ..gate import *\n")
    write("farm/gate.py", "def late():\n    from farm import cellar\n")
    write("farm/cellar.py", "raise RuntimeError('nobody imports it here')\n")
    write("farm/unused.py", "")
    found = names(own_modules.OwnModules().packed(["farm.barn", "json", "no_such_module"]))
    assert found == [
        "farm/__init__.py",
        "farm/barn.py",
        "farm/cellar.py",
        "farm/gate.py",
        "farm/tools/__init__.py",
        "farm/tools/rake.py",
    ]


def test_an_archive_depends_on_its_content_alone(write: Write) -> None:
    write("steady.py", "A = 1\n")
    modules = own_modules.OwnModules()
    first = modules.packed(["steady"])
    assert modules.packed(["steady"]) is first
    assert own_modules.OwnModules().packed(["steady"]) == first
    write("steady.py", "A = 12\n")
    assert modules.packed(["steady"]) != first
    assert modules.packed(["json", "pytest", "mycel.task", "__main__"]) == b""


def test_a_module_that_cannot_be_parsed_goes_along(write: Write) -> None:
    write("broken.py", "def (:\n")
    assert names(own_modules.OwnModules().packed(["broken"])) == ["broken.py"]


def called(function: Callable[..., Any], *arguments: Any) -> pickling.Call:
    return pickling.Pickling().call(function, pickling.arguments(arguments, {}))


def test_what_a_function_names_and_imports_goes_along(write: Write) -> None:
    write("by_global.py", "class Thing: pass\n")
    write("by_import.py", "")
    by_global = importlib.import_module("by_global")

    def function() -> Any:
        import by_import  # type: ignore[import-not-found]

        return by_global, by_import

    assert {"by_global.py", "by_import.py"} <= set(names(called(function).code))
    in_main = eval("lambda thing: thing", {"__name__": "__main__"})
    assert called(in_main).code == b""
    assert names(called(in_main, by_global.Thing()).code) == ["by_global.py"]


def test_a_long_function_goes_with_the_code() -> None:
    table = bytes(range(256)) * 1000
    call = called(eval("lambda: table", {"__name__": "__main__", "table": table}))
    assert call.function == b""
    assert names(call.code) == [own_modules.FUNCTION_FILE]
    content = zipfile.ZipFile(io.BytesIO(call.code)).read(pickled_calls.FUNCTION_FILE)
    assert pickle.loads(content)() == table


def test_a_function_that_can_change_is_pickled_each_time() -> None:
    space: dict[str, Any] = {"__name__": "__main__", "scale": 2}
    makers = pickling.Pickling()
    none = pickling.arguments((), {})

    def sent(function: Callable[..., Any]) -> Any:
        return pickle.loads(makers.call(function, none).function)

    scaled = eval("lambda x: x * scale", space)
    assert sent(scaled)(3) == 6
    space["scale"] = 5
    assert sent(scaled)(3) == 15
    box = [1]
    closed = (lambda inner: lambda: inner[0])(box)
    closed.__module__ = "__main__"
    assert sent(closed)() == 1
    box[0] = 2
    assert sent(closed)() == 2
    defaults = [eval(f"lambda n={n}: n", space) for n in range(2)]
    assert [sent(one)() for one in defaults] == [0, 1]
    constants = [eval(text, space) for text in ("lambda: 1", "lambda: True", "lambda: 1.0")]
    assert [repr(sent(one)()) for one in constants] == ["1", "True", "1.0"]


PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
ANY = st.recursive(
    PLAIN | st.binary() | st.complex_numbers(allow_nan=False),
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(PLAIN, inner),
    max_leaves=8,
)


@given(st.lists(ANY, max_size=3), st.dictionaries(st.text(), ANY, max_size=2))
def test_arguments_arrive_as_they_were_given(positional: list[Any], named: dict[str, Any]) -> None:
    sent = pickling.arguments(tuple(positional), named).json
    form = Json().decode(sent)
    if isinstance(form, dict) and form.keys() == {values.PICKLE}:
        found = pickle.loads(base64.b64decode(form[values.PICKLE]))
    else:
        found = interpreter_values.unpacked(form)
    assert repr((list(found[0]), found[1])) == repr((positional, named))


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner)
    | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=8,
)  # fmt: skip


@given(JSON_VALUES)
def test_json_values_are_read_as_they_were_written(value: Any) -> None:
    """By either end."""
    written = Json().encode(values.json_value(value, "$"))
    assert repr(Json().decode(written)) == repr(value)
    assert repr(values.received(Json().decode(written))) == repr(value)
    assert repr(values.received(_as_json(Json().encode(value)))) == repr(value)


def _as_json(encoded: bytes) -> Any:
    import json

    return json.loads(encoded)


@pytest.mark.parametrize(
    "value", [b"x", {1: 2}, {"a": {None: 1}}, {1}, 1j, object(), [math, 1], Path("a")]
)
def test_what_json_would_change_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match=r"\$\.arguments"):
        values.json_value(value, "$.arguments")


def test_the_client_is_light() -> None:
    """Nobody who submits by name or uses the command line pays for pickling and arrays."""
    program = (
        "import sys, mycel; mycel.Client; mycel.task\n"
        "heavy = {'cloudpickle', 'numpy', 'joblib', 'IPython'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
