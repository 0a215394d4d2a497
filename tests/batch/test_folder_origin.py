"""Jobs as folders: what users put there, and what they get back."""

from __future__ import annotations

from pathlib import Path

import pytest

from mycel.batch.shared_folder import SharedFolder
from mycel.core.agent import agent_events as events
from mycel.core.agent.attempts import AttemptName, Outcome, OutcomeState
from mycel.core.agent.batch_jobs import ClusterJob, JobRefused
from mycel.roles.cluster.folder_origin import FolderOrigin, Unsent, cancel, look, send

A = AttemptName("a")
JOB = ClusterJob(command=("true",))
DONE = Outcome(OutcomeState.SUCCEEDED, exit_codes=(0,))


class Place:
    def __init__(self, folder: Path) -> None:
        self.jobs = folder / "jobs"
        self.share = SharedFolder(folder / "shared")
        self.origin = FolderOrigin(self.jobs, self.share)

    def news(self) -> list[events.Event]:
        return [one for one in self.origin.news(1.0) if not isinstance(one, events.Renewed)]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_job_is_told_once_and_again_after_a_restart(place: Place, tmp_path: Path) -> None:
    send(place.jobs, "a", JOB)
    assert place.news() == [events.Assigned(A, JOB)]
    assert place.news() == []
    assert Place(tmp_path).news() == [events.Assigned(A, JOB)]


def test_a_cancel_is_told_once(place: Place) -> None:
    send(place.jobs, "a", JOB)
    assert cancel(place.jobs, "a")
    assert place.news() == [events.Assigned(A, JOB), events.Cancel(A)]
    assert place.news() == []
    assert not cancel(place.jobs, "b")
    assert not cancel(place.jobs, "../jobs/a")


def test_a_job_that_was_removed_counts_no_more(place: Place) -> None:
    send(place.jobs, "a", JOB)
    place.news()
    assert place.origin.current() == {A}
    (place.jobs / "a" / "job.json").unlink()
    (place.jobs / "a").rmdir()
    assert place.news() == [events.Connected()]
    assert place.origin.current() == frozenset()
    place.origin.report(A, JOB, DONE)
    assert not (place.jobs / "a").exists()


def test_a_name_is_taken_once(place: Place) -> None:
    send(place.jobs, "a", JOB)
    with pytest.raises(Unsent, match="a cannot be made"):
        send(place.jobs, "a", JOB)
    assert [path.name for path in place.jobs.iterdir()] == ["a"]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a.b", "-a", "a" * 101, "ä", "a'b", "%s"])
def test_a_name_that_is_no_folder_of_ours_is_refused(place: Place, name: str) -> None:
    with pytest.raises(Unsent):
        send(place.jobs, name, JOB)


def test_a_job_that_nothing_could_run_is_not_sent(place: Place) -> None:
    with pytest.raises(JobRefused):
        send(place.jobs, "a", ClusterJob(command=("true",), nodes=0))
    assert not (place.jobs / "a").exists()


def test_results_are_there_before_the_outcome_and_twice_is_the_same(place: Place) -> None:
    send(place.jobs, "a", JOB)
    place.news()
    claim = place.share.claim(A, JOB, 0)
    (claim / "work" / "sub").mkdir(parents=True)
    (claim / "work" / "sub" / "file").write_text("x")
    (claim / "work" / "link").symlink_to("/etc/shadow")
    (claim / "stdout").write_text("out")
    folder = place.jobs / "a"
    for _ in range(2):  # the first time without an end, as if it had been killed there
        place.origin.report(A, JOB, DONE)
        assert look(folder).outcome == DONE
        assert (folder / "work" / "sub" / "file").read_text() == "x"
        assert (folder / "work" / "link").is_symlink(), "it is not followed"
        assert (folder / "stdout").read_text() == "out"
        (folder / "outcome.json").unlink()
    place.origin.report(A, JOB, DONE)
    assert place.news() == []
    place.share.remove(A, JOB)
    assert (folder / "work" / "sub" / "file").read_text() == "x"
    assert place.origin.current() == frozenset()


def test_a_job_without_a_file_ends_with_the_reason(place: Place) -> None:
    (place.jobs / "a").mkdir()
    assert place.news() == []
    outcome = look(place.jobs / "a").outcome
    assert outcome is not None
    assert outcome.state is OutcomeState.RETURNED
    assert "job.json" in outcome.text
    assert place.origin.current() == frozenset()
