"""Which cluster gets the job, and what selection steps may say."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mycel.core.federation.cluster_selection import Option, Selector
from mycel.core.federation.decision import Answer, ClusterTable, decide
from mycel.core.federation.errors import ExpressionError
from mycel.core.federation.expressions import Expression, Value
from mycel.core.federation.graph.vertex_kinds import KindTable
from mycel.core.federation.reasons import Level, Reason
from mycel.core.federation.selection_steps import selector
from mycel.federation.jgf import read_graph
from mycel.federation.selectors import UnknownSelector, make_selector
from mycel.federation.specs.spec_reader import read_spec

from .test_graphs import graph, node

OPTIONS = (
    Option("a", {"eta_seconds": 60.0, "cost": 9.0, "nodes_free": 4.0, "region": "eu"}),
    Option("b", {"eta_seconds": 600.0, "cost": 1.0, "nodes_free": 2.0, "region": "us"}),
    Option("c", {"eta_seconds": 90.0, "cost": 3.0, "nodes_free": 0.0, "region": "eu"}),
)


def named(name: str, options: Any = None) -> Selector:
    found = selector(name, options)
    assert found is not None
    return found


def choose(name: str, options: Any = None, job: Any = None, seed: int = 1) -> str:
    return named(name, options)(OPTIONS, job or {}, Random(seed).randrange).name


def test_simple_selections() -> None:
    assert choose("earliest-eta") == "a"
    assert choose("lowest-cost") == "b"
    assert choose("weighted") == "c"
    assert choose("weighted", {"eta_seconds": 1.0, "cost": 0.0}) == "a"
    assert {choose("random", seed=seed) for seed in range(20)} == {"a", "b", "c"}
    assert choose("random", seed=5) == choose("random", seed=5)
    assert selector("by-name") is None


def test_a_cluster_that_says_nothing_is_not_the_cheapest() -> None:
    choice = named("lowest-cost")(
        (Option("a"), Option("b", {"cost": 5.0})), {}, Random(1).randrange
    )
    assert choice.name == "b"
    assert choice.dropped == {"a": "says no cost"}
    assert named("lowest-cost")((Option("a"),), {}, Random(1).randrange).name == ""


STAGES = [
    {"priority": 2, "steps": [{"sort": "cost"}, {"select": "first"}]},
    {
        "priority": 1,
        "steps": [
            {"filter": 'region == "eu" and nodes_free >= job.nodes'},
            {"calculate": "total = cost * job.nodes + eta_seconds / 60"},
            {"sort": "-total"},
            {"select": "last"},
        ],
    },
]


def test_steps_are_taken_by_priority_and_change_nothing() -> None:
    before = [dict(option.attributes) for option in OPTIONS]
    assert choose("constraint", STAGES, {"nodes": 1.0}) == "a"
    assert choose("constraint", STAGES, {"nodes": 0.0}) == "a"
    assert choose("constraint", STAGES, {"nodes": 50.0}) == "b", "the second priority decides"
    assert [dict(option.attributes) for option in OPTIONS] == before


def test_dropped_clusters_are_told_why() -> None:
    stages = [{"steps": [{"filter": "nodes_free > 9"}, {"sort": "nothing_such"}]}]
    choice = named("constraint", stages)(OPTIONS, {}, Random(1).randrange)
    assert choice.name == ""
    assert choice.dropped["a"] == "not nodes_free > 9"


@pytest.mark.parametrize(
    "stages",
    [
        [],
        [{"steps": [{}]}],
        [{"steps": [{"filter": "a", "sort": "b"}]}],
        [{"steps": [{"select": "best"}]}],
        [{"steps": [{"calculate": "1 = 2"}]}],
        [{"steps": [{"calculate": "x == 2"}]}],
        [{"steps": [{"filtre": "a"}]}],
        [{"steps": [{"sort": "a"}] * 200}],
        "none",
    ],
)
def test_steps_that_are_wrong_are_refused(stages: Any) -> None:
    with pytest.raises(ExpressionError):
        selector("constraint", stages)


NAMES: dict[str, Value] = {"a": 6.0, "b": 4.0, "text": "x", "yes": True}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", 7.0),
        ("(1 + 2) * 3", 9.0),
        ("a / b - 0.5", 1.0),
        ("-a + 7 % 4", -3.0),
        ("- - a", 6.0),
        ("a-b", 2.0),
        ("min(a, b, 5) + max(1, 2) + abs(-3)", 9.0),
        ("a > b and not a == b or false", True),
        ("not not yes", True),
        ("'x' == text", True),
        ('text != "and"', True),
        ("a >= 6 and b <= 4", True),
        ("1e3", 1000.0),
    ],
)
def test_expressions_compute(text: str, value: object) -> None:
    assert Expression(text).compute(NAMES) == value


UNREADABLE = """\
1 +|(1|1 2|a b|min(|a = 1|a; b|__import__('os')|a[0]|1 < 2 < 3|lambda: 1|a if b else c|f(1)"""


@pytest.mark.parametrize(
    "text", ["", "(" * 100 + "1" + ")" * 100, "1" * 2000, *UNREADABLE.split("|")]
)
def test_expressions_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(ExpressionError):
        Expression(text)


UNCOMPUTABLE = """\
c|1 / 0|1 % 0|text + 1|yes + 1|not 1|a and b|text < 1|abs(1, 2)|1e308 * 10|a.__class__|min(text)"""


@pytest.mark.parametrize("text", UNCOMPUTABLE.split("|"))
def test_what_cannot_be_computed_is_an_error(text: str) -> None:
    with pytest.raises(ExpressionError):
        Expression(text).compute(NAMES)


@given(st.text(alphabet="ab12.+-*/%()<>=! \"'andort,", max_size=40))
def test_no_text_makes_an_expression_crash(text: str) -> None:
    try:
        Expression(text).compute(NAMES)
    except ExpressionError:
        return


def table() -> ClusterTable:
    kinds, clusters = KindTable(), ClusterTable()
    for name, cores in (("small", 2), ("large", 8)):
        data = graph(
            node("0", "cluster"),
            node("1"),
            *(node(f"c{n}", "core") for n in range(cores)),
            edges=[("0", "1"), *(("1", f"c{n}") for n in range(cores))],
        )
        clusters.put(name, read_graph(data, table=kinds), {"cost": float(cores)})
    return clusters


def cores(number: int) -> str:
    return f"nodes: 1\ntask: {{requirements: {{cpu_cores: {number}}}}}"


def test_a_job_goes_where_it_fits_or_is_rejected_with_each_reason() -> None:
    clusters = table()
    cheapest = named("lowest-cost")
    draw = Random(1).randrange

    def decided(number: int, **more: Any) -> Any:
        matches = clusters.match(read_spec(cores(number)), more.pop("tokens", None))
        return decide(clusters, matches, cheapest, draw, **more)

    assert decided(1).cluster == "small"
    assert decided(4).cluster == "large"
    rejected = decided(9)
    assert rejected.cluster == ""
    assert {name: reason.level for name, reason in rejected.refused.items()} == {
        "small": Level.SUMMARY,
        "large": Level.SUMMARY,
    }
    bad = {"small": Reason(Level.TOKEN, "expired"), "large": None, "gone": None}
    assert decided(1, tokens=bad).cluster == "large"
    refused = decided(9, tokens=bad).refused
    assert refused["small"] == Reason(Level.TOKEN, "expired")
    assert refused["gone"].level is Level.TOKEN


def test_who_is_asked_and_says_no_or_nothing_is_out() -> None:
    clusters = table()
    matches = clusters.match(read_spec(cores(1)))
    first = named("earliest-eta")
    draw = Random(1).randrange
    answers = {
        "small": Answer("small", True, eta_seconds=600.0, cost=1.0, eta_from="queue"),
        "large": Answer("large", True, eta_seconds=5.0, cost=9.0, eta_from="test-only"),
    }
    assert decide(clusters, matches, first, draw, answers=answers).cluster == "large"
    late = {"small": answers["small"]}
    assert decide(clusters, matches, first, draw, answers=late).cluster == "small"
    no = {"small": Answer("small", False, reason="the queue is closed")}
    refused = decide(clusters, matches, first, draw, answers=no).refused
    assert refused["small"] == Reason(Level.ANSWER, "the queue is closed")
    assert refused["large"] == Reason(Level.ANSWER, "did not answer in time")


def test_plug_ins_bring_selections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_selection.py").write_text(
        "from mycel.core.federation.cluster_selection import Choice\n"
        "def last(options):\n"
        "    return lambda clusters, job, draw: Choice(max(one.name for one in clusters))\n",
        encoding="utf-8",
    )
    information = tmp_path / "their-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Name: their\nVersion: 1\n", encoding="utf-8")
    (information / "entry_points.txt").write_text(
        "[mycel.cluster_selectors]\nlast = their_selection:last\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert make_selector("last")(OPTIONS, {}, Random(1).randrange).name == "c"
    assert make_selector("lowest-cost")(OPTIONS, {}, Random(1).randrange).name == "b"
    with pytest.raises(UnknownSelector, match="weighted"):
        make_selector("best")
