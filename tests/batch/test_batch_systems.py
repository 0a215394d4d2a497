"""Every batch system keeps the same promises."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mycel.batch.batch_system import BatchSystem
from mycel.batch.slurm.slurm_system import SlurmSystem
from mycel.testing.batch.conformance import PROMISES, Harness, Promise
from mycel.testing.batch.memory_batch import MemoryBatch


@pytest.fixture(params=["memory", "slurm"])
def system(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[BatchSystem]:
    monkeypatch.setenv("MYCEL_SECRET_OF_THE_TEST", "not for jobs")
    if request.param == "slurm":
        yield SlurmSystem(request.getfixturevalue("slurm").settings_of_commands)
    else:
        memory = MemoryBatch(nodes=2)
        yield memory
        memory.close()


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_it_keeps_its_promises(system: BatchSystem, promise: Promise, tmp_path: Path) -> None:
    promise(Harness(system, tmp_path))
