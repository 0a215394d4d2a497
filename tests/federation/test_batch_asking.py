"""What batch systems are asked for a job, and what becomes of their answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from mycel.batch.batch_system import Submission
from mycel.batch.errors import BatchError
from mycel.core.agent.batch_jobs import BatchEntry, BatchFailure, Capacity, Estimate
from mycel.core.federation.asking import Asking
from mycel.core.federation.errors import SpecError
from mycel.federation.batch_asking import ask, batch_job
from mycel.federation.specs.spec_reader import read_spec

from .test_slots import ask as flux
from .test_slots import slot, want

JOB = read_spec(
    "nodes: 2-4\ntasks_per_node: 3\nexclusive: true\ntime_limit: 90\n"
    "task: {requirements: {cpu_cores: 2, gpus: 1, min_memory: 2GB}}"
)


class System:
    """Says one thing, and keeps what it was asked."""

    def __init__(self, said: Estimate | BatchError | None) -> None:
        self._said = said
        self.asked: list[Submission] = []

    def estimate(self, submission: Submission) -> Estimate | None:
        self.asked.append(submission)
        if isinstance(self._said, BatchError):
            raise self._said
        return self._said

    def capacity(self, partition: str = "") -> Capacity:
        return Capacity(cores=64, idle_cores=64, pending=0)

    def submit(self, submission: Submission) -> str:
        raise AssertionError("nothing is submitted")

    def queue(self, prefix: str) -> Sequence[BatchEntry]:
        raise AssertionError

    def cancel(self, names: Sequence[str]) -> None:
        raise AssertionError


def test_a_job_is_asked_for_with_the_least_that_it_takes() -> None:
    wanted = batch_job(JOB)
    assert (wanted.nodes, wanted.tasks_per_node, wanted.cores_per_task) == (2, 3, 2)
    assert (wanted.gpus_per_node, wanted.memory_mb) == (3, 6000)
    assert (wanted.exclusive, wanted.seconds) == (True, 90)


def test_flux_specs_of_nodes_can_be_asked_for_too() -> None:
    inside = batch_job(flux(want("node", 2, slot(3, want("core", 4)))))
    assert (inside.nodes, inside.tasks_per_node, inside.cores_per_task) == (2, 3, 4)
    around = batch_job(flux(slot(5, want("node", 2, want("core", 4)))))
    assert (around.nodes, around.tasks_per_node, around.cores_per_task) == (10, 1, 4)
    plain = batch_job(flux(want("node", 3, exclusive=True)))
    assert (plain.nodes, plain.exclusive) == (3, True)


@pytest.mark.parametrize(
    "resources",
    [
        (slot(1, want("core", 1)),),
        (want("node", 1, want("socket", 1, want("core", 1))),),
        (want("node", 1, want("core", 1), want("core", 2)),),
        (want("rack", 1, want("node", 1)),),
        (want("node", 1), want("node", 2)),
        (want("node", 4_000_000_000),),
    ],
)
def test_what_batch_systems_have_no_words_for_is_said(resources: tuple[Any, ...]) -> None:
    with pytest.raises(SpecError):
        batch_job(flux(*resources))


def test_each_answer_says_yes_with_a_source_or_no_with_a_reason() -> None:
    systems = {
        "soon": System(Estimate(5.0)),
        "never": System(Estimate(None, "no such partition")),
        "down": System(BatchError(BatchFailure.DOWN, "the controller is down")),
        "idle": System(None),
        "stranger": System(Estimate(0.0)),
    }
    asking = Asking(("soon", "never", "down", "idle", "silent"), 0.0, 3600.0)
    answers = ask(asking, systems, JOB, {"soon": 7.0}, clock=lambda: 0.0)
    assert {name: one.accepts for name, one in answers.items()} == {
        "soon": True,
        "never": False,
        "down": False,
        "idle": True,
    }
    assert (answers["soon"].eta_seconds, answers["soon"].cost) == (5.0, 7.0)
    assert answers["soon"].eta_from != answers["idle"].eta_from
    assert answers["never"].reason == "no such partition"
    assert "down" in answers["down"].reason
    assert not systems["stranger"].asked, "it does not fit there"


def test_a_job_that_cannot_be_said_is_a_no_of_each() -> None:
    system = System(Estimate(0.0))
    answers = ask(
        Asking(("a",), 0.0, 3600.0), {"a": system}, flux(want("rack", 1)), {}, clock=lambda: 0.0
    )
    assert not answers["a"].accepts
    assert "batch systems" in answers["a"].reason
    assert not system.asked
