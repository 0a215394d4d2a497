"""What the agent writes down, and reads after it was killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from mycel.core.agent.agent_effects import Closing, Ended, Entry, Forgotten, Intended
from mycel.core.agent.attempts import AttemptName, Outcome, OutcomeState
from mycel.core.agent.batch_jobs import ClusterJob
from mycel.roles.cluster.agent_journal import AgentJournal, JournalUnusable

JOB = ClusterJob(command=("echo", "ü\n"), environment={"A": '"'})
A, B, C, D = (AttemptName(name) for name in "abcd")
OUTCOME = Outcome(OutcomeState.PARTIAL, exit_codes=(0, None))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def written(path: Path, *entries: Entry) -> AgentJournal:
    journal = AgentJournal(path)
    for entry in entries:
        journal.append(entry)
    journal.close()
    return journal


def test_what_was_written_is_read_without_what_is_over(path: Path) -> None:
    first = written(
        path,
        Intended(A, JOB), Intended(B, JOB), Closing(B, "cancelled", "why"), Intended(C, JOB),
        Ended(C, JOB, OUTCOME), Intended(D, JOB), Ended(D, JOB, OUTCOME), Forgotten(D),
    )  # fmt: skip
    second = written(path)
    assert second.entries == (
        Intended(A, JOB), Intended(B, JOB), Closing(B, "cancelled", "why"),
        Ended(C, JOB, OUTCOME), Forgotten(D),
    )  # fmt: skip
    assert second.agent == first.agent, "its jobs are found by it"
    assert (first.boot, second.boot) == (1, 2)


def test_a_second_cause_replaces_the_first(path: Path) -> None:
    written(path, Intended(A, JOB), Closing(A, "lease_ended"), Closing(A, "cancelled"))
    assert written(path).entries == (Intended(A, JOB), Closing(A, "cancelled"))


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_line_that_was_being_written_is_dropped(path: Path, cut: int) -> None:
    written(path, Intended(A, JOB), Intended(B, JOB))
    path.write_bytes(path.read_bytes()[:-cut])
    assert written(path).entries == (Intended(A, JOB),)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data.replace(b'"attempt"', b'"attempt', 1),
        lambda data: data.replace(b'"version":1', b'"version":2'),
        lambda data: data.split(b"\n", 1)[1],
        lambda data: data + data,
        lambda data: b"\xff\n" + data,
    ],
)
def test_a_journal_that_was_changed_is_not_taken_for_an_empty_one(
    path: Path, spoil: object
) -> None:
    assert callable(spoil)
    written(path, Intended(A, JOB), Intended(B, JOB))
    changed = spoil(path.read_bytes())
    path.write_bytes(changed)
    with pytest.raises(JournalUnusable, match="journal"):
        AgentJournal(path)
    assert path.read_bytes() == changed, "it is left as it was"
