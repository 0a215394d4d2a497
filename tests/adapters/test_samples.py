"""What a job would run, told before it is submitted."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mycel.api.http.problems import Problem
from mycel.api.submission import plans
from mycel.api.submission.bodies import decode_job
from mycel.api.submission.samples import SampleAnswer, samples_of
from mycel.core.events import Submit
from mycel.core.identifiers import RequestId, ulid


def samples(body: dict[str, Any]) -> list[SampleAnswer]:
    derived = plans.derived_from(decode_job(msgspec.json.encode(body)), 1 << 20)
    submit = Submit(
        RequestId(0), ulid(0, bytes(10)), "", "owner", derived.groups[0][0], 0, b"", True,
        derived=derived,
    )  # fmt: skip
    return samples_of(submit)


def test_the_first_task_of_a_sweep_is_filled_in() -> None:
    task = {
        "command": ["./train", "--lr={lr}", "${seed}", "${HOME}", "${needs.x}"],
        "env": {"RATE": "${lr}", "SECRET": "xyz"},
    }
    [sample] = samples({"task": task, "matrix": {"lr": [0.1, 0.2], "seed": [7]}})
    assert sample.command == ("./train", "--lr=0.1", "7", "${HOME}", "${needs.x}")
    assert sample.env == {"RATE": "0.1"}, "what no parameter fills may be a secret"
    assert sample.parameters == ["lr", "seed"]
    assert sample.unfilled == ["HOME"]


def test_each_stage_and_override_has_its_own() -> None:
    stages = [
        {"name": "make", "task": {"python": "m:f"}, "arguments": [[1], [2]]},
        {
            "name": "use",
            "task": {"command": ["use", "${input}", "${imput.x}"]},
            "needs": ["make"],
            "arguments": [{"input": "a"}],
        },
    ]
    make, use = samples({"stages": stages})
    assert (make.stage, make.python, bytes(make.arguments or b"")) == ("make", "m:f", b"[1]")
    assert (use.stage, use.command) == ("use", ("use", "a", "${imput.x}"))
    assert use.unfilled == ["imput.x"]


@pytest.mark.parametrize(
    ("task", "way"),
    [
        ({"command": ["./train", "${learning_rte}"]}, {"matrix": {"learning_rate": [1]}}),
        ({"command": ["a"], "env": {"X": "${sede}"}}, {"matrix": {"seed": [1, 2]}}),
        ({"command": ["cat", "${inptu}"]}, {"inputs": [{"input": "a"}]}),
    ],
)
def test_a_name_that_is_almost_a_parameter_is_refused(
    task: dict[str, Any], way: dict[str, Any]
) -> None:
    with pytest.raises(Problem, match="did you mean") as caught:
        samples({"task": task, **way})
    assert caught.value.path in ("$.task.command", "$.task.env")


def test_what_may_be_the_shells_is_left_alone() -> None:
    words = ["sh", "-c", "for f in a b; do echo ${f} ${seed} ${PATH} $sede; done"]
    [sample] = samples({"task": {"command": words}, "matrix": {"seed": [1]}})
    assert sample.unfilled == ["PATH", "f"]
