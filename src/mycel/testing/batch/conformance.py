"""What every batch system promises. For whoever writes one:

    @pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
    def test_it_keeps_its_promises(promise, tmp_path):
        promise(Harness(MySystem(), tmp_path))

`tmp_path` has to be a folder that the nodes see too. Jobs wait for conditions and end by
themselves; nothing here takes longer than the batch system does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from mycel.batch.batch_system import BatchSystem, Submission
from mycel.batch.errors import BatchError
from mycel.core.agent.batch_jobs import BatchEntry, BatchFailure, BatchState, ClusterJob

WAIT_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 0.05
ELEMENT: Final = "$MYCEL_ELEMENT"
SMALL: Final = ClusterJob(command=("true",), memory_mb=10, seconds=120)


class Harness:
    """`cores` is what one node has."""

    def __init__(self, system: BatchSystem, folder: Path, *, cores: int = 4) -> None:
        self.system = system
        self.folder = folder
        self.cores = cores
        self._prefix = f"c{time.monotonic_ns():x}-"

    def submission(self, name: str, body: str, **needs: int) -> Submission:
        job = msgspec.structs.replace(SMALL, **needs).checked()
        return Submission(
            name=self._prefix + name, job=job, script=f"#!/bin/sh\n{body}\n", folder=self.folder
        )

    def blocked(self, name: str) -> Submission:
        """It runs until somebody makes `name`.go."""
        return self.submission(
            name, f"echo >> {self.folder}/{name}.began\n"
            f"while [ ! -e {self.folder}/{name}.go ]; do sleep 0.1; done",
        )  # fmt: skip

    def entries(self, name: str) -> Sequence[BatchEntry]:
        return [one for one in self.system.queue(self._prefix) if one.name == self._prefix + name]

    def states(self, name: str) -> set[BatchState]:
        return {one.state for one in self.entries(name)}

    def wait(self, look: Callable[[], object], what: str) -> None:
        ends_at = time.monotonic() + WAIT_SECONDS
        while not look():
            assert time.monotonic() < ends_at, f"not within {WAIT_SECONDS:g} s: {what}"
            time.sleep(LOOK_SECONDS)

    def wait_for_end(self, name: str) -> None:
        self.wait(lambda: not any(one.is_active for one in self.states(name)), f"{name} ends")

    def refused(self, submission: Submission) -> BatchError:
        try:
            number = self.system.submit(submission)
        except BatchError as error:
            return error
        raise AssertionError(f"it was accepted as {number}")


Promise = Callable[[Harness], None]


def a_script_runs_once_in_its_folder(harness: Harness) -> None:
    assert harness.system.submit(harness.submission("one", "pwd >> one.out"))
    harness.wait_for_end("one")
    assert (harness.folder / "one.out").read_text().split() == [str(harness.folder)]
    assert harness.states("one") == {BatchState.COMPLETED}


def a_failed_script_is_shown_as_failed(harness: Harness) -> None:
    harness.system.submit(harness.submission("bad", "exit 7"))
    harness.wait_for_end("bad")
    assert harness.states("bad") == {BatchState.FAILED}


def each_element_of_an_array_runs_with_its_index(harness: Harness) -> None:
    harness.system.submit(harness.submission("many", f"echo >> many.{ELEMENT}", elements=5))
    assert {one.index for one in harness.entries("many")} == set(range(5))
    harness.wait_for_end("many")
    found = {path.name: path.read_text() for path in harness.folder.glob("many.*")}
    assert found == {f"many.{index}": "\n" for index in range(5)}


def a_job_that_is_no_array_is_element_zero(harness: Harness) -> None:
    harness.system.submit(harness.submission("single", f"echo {ELEMENT} > single.out"))
    harness.wait_for_end("single")
    assert (harness.folder / "single.out").read_text() == "0\n"


def a_running_job_is_cancelled_by_its_name(harness: Harness) -> None:
    harness.system.submit(harness.blocked("stop"))
    harness.system.submit(harness.blocked("other"))
    for name in ("stop", "other"):
        harness.wait((harness.folder / f"{name}.began").exists, f"{name} begins")
    harness.system.cancel([harness.blocked("stop").name])
    harness.wait_for_end("stop")
    assert harness.states("stop") == {BatchState.CANCELLED}
    assert harness.states("other") == {BatchState.RUNNING}
    (harness.folder / "other.go").touch()
    harness.wait_for_end("other")


def a_waiting_job_is_cancelled_and_never_runs(harness: Harness) -> None:
    """It waits behind jobs that take whole nodes."""
    system, folder = harness.system, harness.folder
    body = f"while [ ! -e {folder}/fill.go ]; do sleep 0.1; done"
    nodes = system.capacity().idle_cores // harness.cores
    for number in range(nodes):
        name = f"fill{number}"
        system.submit(harness.submission(name, body, cores_per_task=harness.cores))
    harness.wait(lambda: system.capacity().idle_cores < harness.cores, "all nodes are taken")
    wide = harness.submission("wide", "echo > wide.out", cores_per_task=harness.cores)
    system.submit(wide)
    assert harness.states("wide") == {BatchState.PENDING}
    assert system.capacity().pending >= 1
    system.cancel([wide.name])
    (folder / "fill.go").touch()
    for name in (*(f"fill{number}" for number in range(nodes)), "wide"):
        harness.wait_for_end(name)
    assert not (folder / "wide.out").exists()


def to_cancel_what_is_unknown_is_no_error(harness: Harness) -> None:
    harness.system.cancel([harness.submission("nobody", "").name])


def what_can_never_run_is_refused(harness: Harness) -> None:
    huge = harness.submission("huge", "echo > huge.out", cores_per_task=harness.cores + 1)
    error = harness.refused(huge)
    assert error.failure is BatchFailure.REFUSED
    assert str(error)
    estimate = harness.system.estimate(huge)
    assert estimate is not None
    assert estimate.starts_in is None
    assert estimate.refusal
    assert not (harness.folder / "huge.out").exists()


def an_estimate_submits_nothing(harness: Harness) -> None:
    small = harness.submission("small", "echo > small.out")
    estimate = harness.system.estimate(small)
    if estimate is not None:
        assert estimate.starts_in is not None
        assert 0 <= estimate.starts_in < 86_400
    assert not harness.entries("small")
    assert not (harness.folder / "small.out").exists()


def other_prefixes_are_not_shown(harness: Harness) -> None:
    harness.system.submit(harness.submission("mine", "true"))
    assert harness.entries("mine")
    assert not harness.system.queue("somebody-elses-")
    harness.wait_for_end("mine")


def our_environment_stays_here(harness: Harness) -> None:
    harness.system.submit(harness.submission("env", "env > env.out"))
    harness.wait_for_end("env")
    assert "MYCEL_SECRET_OF_THE_TEST" not in (harness.folder / "env.out").read_text()


PROMISES: Final[tuple[Promise, ...]] = (
    a_script_runs_once_in_its_folder,
    a_failed_script_is_shown_as_failed,
    each_element_of_an_array_runs_with_its_index,
    a_job_that_is_no_array_is_element_zero,
    a_running_job_is_cancelled_by_its_name,
    a_waiting_job_is_cancelled_and_never_runs,
    to_cancel_what_is_unknown_is_no_error,
    what_can_never_run_is_refused,
    an_estimate_submits_nothing,
    other_prefixes_are_not_shown,
    our_environment_stays_here,
)
