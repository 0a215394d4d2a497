"""How a task's arguments become part of its command."""

from __future__ import annotations

import json

import pytest

from mycel.core.model.work import Work
from mycel.drivers.process.command_arguments import BadArguments, fill_command, fill_environment


@pytest.mark.parametrize(
    ("command", "arguments", "filled"),
    [
        (("echo",), ["a", 1, None, {"b": [True]}], ("echo", "a", "1", "null", '{"b":[true]}')),
        (("run", "--x={x}", "{y}{x}"), {"x": 1.5, "y": "é"}, ("run", "--x=1.5", "é1.5")),
        (("awk", "{print $1} {missing}"), {"x": 1}, ("awk", "{print $1} {missing}")),
        (("echo", "{a}"), {"a": "{b}", "b": "no"}, ("echo", "{b}")),
        (("echo", "{{a}}"), {"a": 1}, ("echo", "{1}")),
        (("echo",), {}, ("echo",)),
        (
            ("run", "--lr=${lr}", "${a.b[1]}"),
            {"lr": 0.1, "a": {"b": [0, 7]}},
            ("run", "--lr=0.1", "7"),
        ),
        (("sh", "${HOME} ${x:-1} $${lr}"), {"lr": 1}, ("sh", "${HOME} ${x:-1} ${lr}")),
    ],
)
def test_arguments_fill_the_command(
    command: tuple[str, ...], arguments: object, filled: tuple[str, ...]
) -> None:
    assert fill_command(command, json.dumps(arguments).encode()) == filled


@pytest.mark.parametrize("arguments", [b"3", b"{", b'"text"', b"null"])
def test_arguments_of_another_kind_are_the_tasks_fault(arguments: bytes) -> None:
    with pytest.raises(BadArguments):
        fill_command(("echo",), arguments)


def test_a_long_value_is_not_repeated_without_end() -> None:
    given = json.dumps({"a": "x" * 100_000}).encode()
    with pytest.raises(BadArguments, match="million characters"):
        fill_command(("echo", *("${a}",) * 1000), given)
    work = Work("process", command=("true",), env=(("A", "${a}" * 1000),))
    with pytest.raises(BadArguments, match="million characters"):
        fill_environment(work, given)
