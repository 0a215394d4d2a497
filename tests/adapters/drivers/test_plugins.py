"""Drivers that other packages bring, and names that nobody brings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from mycel.config import load
from mycel.config.errors import BadValue
from mycel.config.plugin_names import installed_drivers
from mycel.drivers.interface import Driver
from mycel.drivers.registry import (
    BrokenDriver,
    DriverContext,
    UnknownDriver,
    create_driver,
    offered_drivers,
)
from mycel.testing.drivers.conformance import PROMISES, Harness, Promise, Subject, keep, named

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "drivers.md"


def code_of_the_guide(name: str) -> str:
    found = re.search(rf"```python\n# {re.escape(name)}\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert found is not None, f"the guide has no {name}"
    return found[1]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The guide's driver and broken ones, as a package manager would install them."""
    (tmp_path / "shouting.py").write_text(code_of_the_guide("shouting.py") + "\nnothing = None\n")
    about = tmp_path / "shouting-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: shouting\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[mycel.drivers]\n"
        "shout = shouting:Shout\n"
        "missing = no_such_module:Driver\n"
        "whisper = shouting:Shout\n"
        "nothing = shouting:nothing\n"
        "process = shouting:Shout\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.parametrize("promise", PROMISES, ids=named)
def test_the_driver_of_the_guide_keeps_its_promises(
    promise: Promise, installed: Path, tmp_path: Path
) -> None:
    test: dict[str, Any] = {"__name__": "test_shouting"}
    exec(code_of_the_guide("test_shouting.py"), test)
    test["test_it_keeps_its_promises"](promise, tmp_path)


def test_an_installed_driver_is_made_by_its_name(installed: Path, tmp_path: Path) -> None:
    class Installed(Subject):
        name = "shout"

        def create(self, context: DriverContext) -> Driver:
            with pytest.raises(BrokenDriver, match="another name"):
                create_driver("whisper", context)
            return create_driver("shout", context)

    async def scenario(harness: Harness) -> None:
        end = await harness.result_of(harness.run(("hello", "world")))
        assert (end.state, end.stdout) == ("succeeded", b"HELLO WORLD\n")
        end = await harness.result_of(harness.run())
        assert (end.state, end.driver_fault) == ("failed", False)
        assert end.error == "there is nothing to shout: give a command"

    keep(scenario, Installed(), tmp_path)


def test_installed_drivers_are_offered_beside_ours(installed: Path) -> None:
    offered = offered_drivers(None)
    assert offered[:2] == ("process", "python")
    assert "shout" in offered
    assert offered_drivers(("shout", "shout")) == ("shout",)


def test_nobody_takes_the_name_of_one_of_ours(installed: Path) -> None:
    assert "process" not in installed_drivers()


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("missing", "No module named 'no_such_module'"),
        ("nothing", "'NoneType' object is not callable"),
    ],
)
def test_a_broken_package_is_named(name: str, complaint: str, installed: Path) -> None:
    with pytest.raises(BrokenDriver, match=complaint) as caught:
        create_driver(name, DriverContext(helper=None, listener=None, root=installed))  # type: ignore[arg-type]
    assert "mend or uninstall" in str(caught.value)


def test_an_unknown_driver_is_named_with_the_known_ones() -> None:
    with pytest.raises(UnknownDriver, match=r"'teleport'.*process, python"):
        create_driver("teleport", None)  # type: ignore[arg-type]


def test_the_configuration_names_drivers_that_are_there(installed: Path) -> None:
    path = installed / "mycel.toml"
    path.write_text('[worker]\ndrivers = ["process", "shout"]\n')
    assert load(path, {}, {}).worker.drivers == ("process", "shout")
    path.write_text('[worker]\ndrivers = ["teleport"]\n')
    with pytest.raises(BadValue) as caught:
        load(path, {}, {})
    assert "line 2" in str(caught.value)
    assert "mycel.drivers" in str(caught.value)
