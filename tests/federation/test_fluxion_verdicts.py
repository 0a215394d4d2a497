"""Verdicts that Fluxion's own tests expect, on its own graphs and job specs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mycel.core.federation.errors import SpecError
from mycel.core.federation.graph.calendar import Calendar
from mycel.core.federation.reasons import Verdict
from mycel.federation.specs.spec_reader import read_spec_file

from .data import FLUXION, fluxion_graph, fluxion_job, needs_data

pytestmark = needs_data


def cases(file: str) -> list[dict[str, Any]]:
    path = FLUXION / file
    return [json.loads(line) for line in path.open(encoding="utf-8")] if path.is_file() else []


SATISFY = cases("satisfy.jsonl")
SEQUENCES = cases("sequences.jsonl")
VALIDATION = sorted((FLUXION / "validation").glob("*/*.yaml"))


@pytest.mark.parametrize("case", SATISFY, ids=lambda case: f"{case['graph']}-{case['jobspec']}")
def test_a_job_can_ever_run_where_fluxion_says_so(case: dict[str, Any]) -> None:
    verdict = Calendar(fluxion_graph(case["graph"])).satisfy(fluxion_job(case["jobspec"]))
    assert bool(verdict) is (case["ever"] == "yes"), verdict.reason
    assert bool(verdict) or verdict.reason is not None


def test_each_no_is_right_and_they_are_counted_apart() -> None:
    """Always yes would score well on the whole file."""
    wanted = [case for case in SATISFY if case["ever"] == "no"]
    refused = [
        case
        for case in wanted
        if not Calendar(fluxion_graph(case["graph"])).satisfy(fluxion_job(case["jobspec"]))
    ]
    assert wanted
    assert len(refused) == len(wanted)


@pytest.mark.parametrize(
    "case",
    [case for case in SATISFY if "takes_when_empty" in case],
    ids=lambda case: f"{case['graph']}-{case['jobspec']}",
)
def test_a_job_takes_what_fluxion_gives_it(case: dict[str, Any]) -> None:
    verdict = Calendar(fluxion_graph(case["graph"])).allocate("1", fluxion_job(case["jobspec"]), 0)
    # Fluxion's listing shows the base name of the cluster instead of its type.
    cluster = case["graph"].partition(".")[0]
    takes = {key.replace("cluster:", f"{cluster}:"): n for key, n in verdict.takes.items()}
    assert takes == case["takes_when_empty"]


@pytest.mark.parametrize("case", SEQUENCES, ids=lambda case: case["title"])
def test_jobs_one_after_the_other(case: dict[str, Any]) -> None:
    whole_nodes = all("nodex" in policy for policy in case["policies"])
    whole = frozenset(("node",)) if whole_nodes else frozenset[str]()
    calendar = Calendar(fluxion_graph(case["graph"]), whole=whole)
    for number, step in enumerate(case["steps"], 1):
        if step["do"] == "cancel":
            calendar.cancel(str(step.get("job", step.get("jobid"))))
            continue
        job = fluxion_job(step["jobspec"])
        assert str(play(calendar, step["do"], str(number), job)) == step["expect"], f"step {number}"


def play(calendar: Calendar, do: str, name: str, job: Any) -> Verdict:
    match do:
        case "allocate":
            return calendar.allocate(name, job, 0)
        case "allocate_with_satisfiability":
            return calendar.allocate_or_say_never(name, job, 0)
        case "allocate_orelse_reserve":
            return calendar.reserve(name, job, 0)
        case "satisfiability":
            return calendar.satisfy(job)
    raise AssertionError(f"there is no step {do}")


@pytest.mark.parametrize("path", VALIDATION, ids=lambda path: path.stem)
def test_specs_are_taken_and_refused_as_fluxion_does(path: Path) -> None:
    if path.parent.name == "valid":
        assert read_spec_file(path).resources
    else:
        with pytest.raises(SpecError) as refused:
            read_spec_file(path)
        assert path.name in str(refused.value)
