"""How long a message becomes by what its tasks run."""

from __future__ import annotations

import msgspec
import pytest

from mycel.core.model.task_files import Input, Outputs
from mycel.core.model.work import Environment, Work, work_bytes

LONG = "ä" * 50_000


@pytest.mark.parametrize(
    "work",
    [
        Work("process", command=(LONG, LONG)),
        Work("process", env=(("A", LONG),)),
        Work("container", mounts=(LONG,)),
        Work("process", inputs=(Input(LONG), Input("a", digest=LONG), Input("b", shared=LONG))),
        Work("process", outputs=Outputs((LONG,))),
        Work("model", input=LONG.encode(), parameters=LONG.encode()),
        Work("python", environment=Environment("key", LONG)),
    ],
)
def test_all_that_can_be_long_is_counted(work: Work) -> None:
    assert 0 <= len(msgspec.msgpack.encode(work)) - work_bytes(work) < 200
