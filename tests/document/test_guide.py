"""The guide to the scheduler leaves no key and no figure out, and its examples hold."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import msgspec
import pytest

from mycel.api.submission.bodies import RequirementsBody, TaskBody
from mycel.api.submission.conversion import specification
from mycel.config.reload import FIXED, leaves
from mycel.config.settings import Scheduler
from mycel.core.matching import ALGORITHMS, Pool, SelectionSettings
from mycel.core.model.prices import Tariff
from mycel.core.model.resources import Capabilities, Requirements
from mycel.core.model.work import Shape

from .text import metrics

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "scheduler.md").read_text("utf-8")


@pytest.mark.parametrize("key", [key for key, _ in leaves(Scheduler())])
def test_every_key_is_told(key: str) -> None:
    assert re.search(rf"`({re.escape(key)}|{key.rpartition('.')[2]})`", GUIDE)


@pytest.mark.parametrize("key", sorted(FIXED))
def test_every_key_that_needs_a_restart_is_told(key: str) -> None:
    [told] = [line for line in GUIDE.splitlines() if "needs a restart" in line]
    assert f"`{key.rpartition('.')[2]}`" in told


@pytest.mark.parametrize("name", [*ALGORITHMS, *RequirementsBody.__struct_fields__])
def test_every_algorithm_and_requirement_is_told(name: str) -> None:
    assert re.search(rf"\b{re.escape(name)}\b", GUIDE)


def test_every_metric_of_the_document_is_told() -> None:
    for metric in metrics():
        assert metric in GUIDE or f"…{metric.removeprefix('hypha_scheduler')}" in GUIDE, metric


def test_the_requirements_are_taken() -> None:
    [text] = re.findall(r"```toml\n(\[requirements\].*?)```", GUIDE, re.DOTALL)
    asked = msgspec.convert(tomllib.loads(text)["requirements"], RequirementsBody)
    found = specification(TaskBody(command=["true"], requirements=asked)).requirements
    assert found.gpus is not None
    assert (found.cpu_cores, found.gpus.count, found.labels) == (4.0, 2.0, (("zone", "a"),))


def test_the_algorithm_works() -> None:
    [text] = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    names: dict[str, object] = {}
    exec(text, names)  # it is the guide's own
    settings = SelectionSettings(algorithm="cheapest")
    pool = Pool(settings, {**ALGORITHMS, "cheapest": names["cheapest"]})  # type: ignore[dict-item]
    for name, price in (("a", 3.0), ("b", 1.0), ("c", 2.0)):
        pool.put(name, Capabilities(price=Tariff(price), drivers=("process",)), linked=True)
    ranked = pool.ranked(Shape("process", Requirements()), lambda: 0.0)
    assert [one.key for one, _ in ranked] == ["b", "c", "a"]
