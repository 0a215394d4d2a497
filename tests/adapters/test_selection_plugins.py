"""Selection algorithms that other packages bring, and names that nobody brings."""

from __future__ import annotations

from pathlib import Path

import pytest

from mycel.config import load
from mycel.config.errors import BadValue
from mycel.config.plugin_names import ALGORITHMS
from mycel.core import matching
from mycel.core.matching import Pool
from mycel.core.model.resources import Capabilities, Requirements
from mycel.core.model.work import Shape
from mycel.roles.role_process import RoleFault
from mycel.roles.scheduler.selection_settings import load_algorithms, selection_of

CODE = """
from itertools import repeat

def largest(mask, view):
    return view.by_key(mask, lambda one: -one.capabilities.memory)

def forgetful(mask, view):
    return iter(())

def endless(mask, view):
    return repeat(0)

def confused(mask, view):
    yield 1 << 70
    yield mask & -mask
    yield mask

def careless(mask, view):
    yield mask & -mask
    raise RuntimeError("no such thing")

def mistaken(mask, view):
    return 3

nothing = None
"""
Told = list[tuple[str, dict[str, object]]]


def install(folder: Path, entry_points: str) -> None:
    """As a package manager would."""
    (folder / "mycel_largest.py").write_text(CODE)
    about = folder / "mycel_largest-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mycel-largest\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[mycel.selection]\n{entry_points}\n")


def unheard(event: str, **fields: object) -> None:
    raise AssertionError(f"{event} is told: {fields}")


def configuration(folder: Path, name: str) -> Path:
    path = folder / "mycel.toml"
    path.write_text(f'[scheduler]\nselection_algorithm = "{name}"\n')
    return path


def test_ours_have_the_names_that_the_configuration_knows() -> None:
    assert set(ALGORITHMS) == set(matching.ALGORITHMS) == set(load_algorithms("best", unheard))


def test_an_installed_algorithm_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "largest = mycel_largest:largest")
    monkeypatch.syspath_prepend(tmp_path)
    scheduler = load(configuration(tmp_path, "largest"), {}, {}).scheduler
    pool = Pool(selection_of(scheduler), load_algorithms("largest", unheard))
    for name, memory in (("small", 1), ("large", 3), ("middle", 2)):
        pool.put(name, Capabilities(memory=memory, drivers=("process",)), linked=True)
    ranked = pool.ranked(Shape("process", Requirements()), lambda: 0.0)
    assert [one.key for one, _ in ranked] == ["large", "middle", "small"]


def test_an_unknown_name_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(BadValue) as caught:
        load(configuration(tmp_path, "bset"), {}, {})
    text = str(caught.value)
    assert "line 2" in text
    assert '"best"' in text
    assert "mycel.selection" in text


@pytest.mark.parametrize(
    ("entry_point", "complaint"),
    [("a = mycel_missing:f", "cannot be loaded"), ("a = mycel_largest:nothing", "no function")],
)
def test_a_broken_package_is_named(
    entry_point: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, entry_point)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RoleFault, match=complaint):
        load_algorithms("a", unheard)

    told: Told = []
    found = load_algorithms("best", lambda event, **fields: told.append((event, fields)))
    assert set(found) == set(ALGORITHMS), "one that nobody has chosen stops nobody"
    [(event, fields)] = told
    assert event == "selection_algorithm_left_out"
    assert complaint in str(fields["error"])


@pytest.mark.parametrize("name", ["forgetful", "endless", "confused", "careless", "mistaken"])
def test_every_worker_is_asked_once_whatever_a_package_does(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, f"{name} = mycel_largest:{name}")
    monkeypatch.syspath_prepend(tmp_path)
    told: Told = []
    found = load_algorithms(name, lambda event, **fields: told.append((event, fields)))
    scheduler = load(configuration(tmp_path, name), {}, {}).scheduler
    pool = Pool(selection_of(scheduler), found)
    workers = ["a", "b", "c"]
    for worker in workers:
        pool.put(worker, Capabilities(drivers=("process",)), linked=True)
    for _ in range(3):
        ranked = pool.ranked(Shape("process", Requirements()), lambda: 0.0)
        assert sorted(one.key for one, _ in ranked) == workers
    failing = name in ("careless", "mistaken")
    assert [event for event, _ in told] == ["selection_algorithm_failed"] * failing, "once"


def test_nobody_takes_the_name_of_one_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "best = mycel_largest:largest")
    monkeypatch.syspath_prepend(tmp_path)
    assert load_algorithms("best", unheard)["best"] is matching.ALGORITHMS["best"]
