"""Why a model's process ended, in words."""

from __future__ import annotations

import pytest

from mycel.drivers.helper.helper_messages import ProgramEnded
from mycel.drivers.model.server_process import why_ended


@pytest.mark.parametrize(
    ("exit_code", "output", "limit", "said"),
    [
        (1, b"Traceback\nRuntimeError: no weights", "", "exit code 1: RuntimeError: no weights"),
        (137, b"", "", "no memory left"),
        (
            137,
            b"loading",
            "it used more than its 2 GB of memory",
            "killed: it used more than its 2",
        ),
    ],
)
def test_the_end_of_a_model_is_told(exit_code: int, output: bytes, limit: str, said: str) -> None:
    assert said in why_ended(ProgramEnded(-1, exit_code, output, limit))
