"""A journal as a whole: checked, exported and taken in again."""

from __future__ import annotations

import io
import sqlite3
from pathlib import Path

import msgspec
import pytest
from blake3 import blake3

from mycel.cli.commands.store import main
from mycel.console.errors import CommandError
from mycel.core.identifiers import AttemptId, JobNumber
from mycel.core.journal import Entry, JobClosed, JobEnded, JobOpened, PartKept, TaskEnded
from mycel.core.journal_codec import encode_specification
from mycel.core.model.jobs import Specification
from mycel.core.model.resources import Requirements
from mycel.core.model.work import Work
from mycel.store.errors import (
    ExportUnusable,
    StoreError,
    StoreForeign,
    StoreMissing,
    StoreTooNew,
)
from mycel.store.export import export, import_journal
from mycel.store.journal_check import check
from mycel.store.journal_repair import repair
from mycel.store.long_values import ValueFiles

from .store_harness import (
    SqliteHarness,
    attempt_ended,
    block,
    commit_soundly,
    job_id,
    lease,
    opened,
    task_ended,
)

LONG = b'"' + b"x" * 3_000_000 + b'"'


def real(number: int) -> JobOpened:
    specification = Specification(Work("process", command=("true",)), Requirements())
    return msgspec.structs.replace(
        opened(number), specification=encode_specification(specification)
    )


def ended(number: int, index: int, value: bytes = b"42", size: int = 0) -> TaskEnded:
    whole = LONG if size else value
    bare = task_ended(number, index, value=b"" if size else value, attempt=100 + index)
    return msgspec.structs.replace(bare, digest=blake3(whole).digest(), value_size=size)


def entries() -> list[Entry]:
    half = len(LONG) // 2
    return [
        real(1),
        block(1, count=2, arguments=b"[[1],[2]]"),
        attempt_ended(1, 0, attempt=50),
        ended(1, 0),
        PartKept(JobNumber(1), 1, AttemptId(101), 0, LONG[:half]),
        PartKept(JobNumber(1), 1, AttemptId(101), half, LONG[half:]),
        ended(1, 1, size=len(LONG)),
        JobClosed(JobNumber(1)),
        JobEnded(JobNumber(1), "succeeded", 2000.0),
        real(2),
        block(2, count=3),
        lease(),
    ]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    folder = tmp_path / "scheduler"
    folder.mkdir()
    harness = SqliteHarness(folder / "journal.db")
    commit_soundly(harness, entries())
    harness.close()
    return folder / "journal.db"


def change(journal: Path, statement: str) -> None:
    connection = sqlite3.connect(journal)
    connection.execute(statement)
    connection.commit()
    connection.close()


def test_a_sound_journal_has_no_complaint(journal: Path) -> None:
    verdict = check(journal)
    assert verdict.complaints == []
    assert (verdict.jobs, verdict.results, verdict.values_in_files) == (2, 2, 1)


@pytest.mark.parametrize(
    ("statement", "complaint"),
    [
        ("UPDATE results SET value = x'3133' WHERE task_index = 0", "does not fit its digest"),
        ("UPDATE results SET owner_epoch = 7 WHERE task_index = 0", "owner epoch 7"),
        ("UPDATE results SET task_index = 9 WHERE task_index = 0", "no job or block"),
        ("UPDATE results SET state = 'dreaming' WHERE task_index = 0", "'dreaming'"),
        ("UPDATE ended_attempts SET attempt = 100", "had ended before"),
        ("UPDATE ended_attempts SET task_index = 77", "no block has such a task"),
        ("UPDATE blocks SET first = 1 WHERE job = 2", "begins at task 1 instead of 0"),
        ("DELETE FROM results WHERE task_index = 0", "1 of its 2 tasks"),
        ("UPDATE jobs SET state = '' WHERE number = 1", "and it has not"),
        ("UPDATE jobs SET specification = x'ff' WHERE number = 2", "cannot be read"),
    ],
)
def test_what_must_not_be_is_found(journal: Path, statement: str, complaint: str) -> None:
    change(journal, statement)
    [found, *_] = check(journal).complaints
    assert complaint in found


def test_files_of_values_are_looked_into(journal: Path) -> None:
    path = ValueFiles(journal).path(1, 1, 101)
    path.with_name("8.8").write_bytes(b"stray")
    assert check(journal).stray_files == 1
    path.write_bytes(LONG[:-2] + b'y"')
    assert "does not fit its digest" in check(journal).complaints[0]
    path.write_bytes(LONG[:-1])
    assert f"instead of {len(LONG)}" in check(journal).complaints[0]
    path.unlink()
    assert "cannot be read" in check(journal).complaints[0]


def test_what_is_no_journal_is_refused(tmp_path: Path, journal: Path) -> None:
    with pytest.raises(StoreMissing):
        check(tmp_path / "journal.db")
    other = tmp_path / "other.db"
    change(other, "CREATE TABLE photos (name)")
    with pytest.raises(StoreForeign):
        check(other)
    change(journal, "PRAGMA user_version = 99")
    with pytest.raises(StoreTooNew):
        check(journal)


def exported(journal: Path) -> bytes:
    out = io.BytesIO()
    export(journal, out)
    return out.getvalue()


def test_an_export_taken_in_is_the_same_journal(tmp_path: Path, journal: Path) -> None:
    lines = exported(journal)
    copy = tmp_path / "copy" / "journal.db"
    copy.parent.mkdir()
    counts = import_journal(copy, io.BytesIO(lines), swarm="")
    assert counts.files == 1
    assert check(copy).complaints == []
    assert exported(copy) == lines
    both = [SqliteHarness(journal), SqliteHarness(copy)]
    restored = [harness.store.restore() for harness in both]
    secrets = [harness.store.secret() for harness in both]
    values = [harness.store.value(job_id(1), 1, offset=0, length=len(LONG) + 1) for harness in both]
    for harness in both:
        harness.close()
    assert restored[0] == restored[1]
    assert secrets[0] == secrets[1], "workers' results are taken by the copy, too"
    assert values == [LONG, LONG]


def _head(lines: bytes, **fields: object) -> bytes:
    first, _, rest = lines.partition(b"\n")
    changed = msgspec.json.decode(first) | fields
    return msgspec.json.encode(changed) + b"\n" + rest


@pytest.mark.parametrize(
    ("spoil", "kind", "text"),
    [
        (lambda lines: b"shopping list\n" + lines, ExportUnusable, "line 1"),
        (lambda lines: b"{}\n" + lines, ExportUnusable, "no export"),
        (lambda lines: lines[: len(lines) // 2], ExportUnusable, ""),
        (lambda lines: lines.rpartition(b"\n{")[0] + b"\n", ExportUnusable, "cut off"),
        (lambda lines: lines.replace(b"job 2", b"job 3"), ExportUnusable, "changed"),
        (lambda lines: b"", ExportUnusable, "cut off"),
        (lambda lines: _head(lines, schema=99), StoreTooNew, "99"),
        (lambda lines: _head(lines, mycel_journal=9), StoreTooNew, "newer"),
        (lambda lines: _head(lines, swarm="work"), StoreForeign, "'work'"),
    ],
)
def test_a_bad_export_leaves_nothing_behind(
    tmp_path: Path, journal: Path, spoil: object, kind: type[StoreError], text: str
) -> None:
    lines = spoil(exported(journal))  # type: ignore[operator]
    copy = tmp_path / "copy" / "journal.db"
    copy.parent.mkdir()
    with pytest.raises(kind) as caught:
        import_journal(copy, io.BytesIO(lines), swarm="home")
    assert text in str(caught.value)
    assert list(copy.parent.iterdir()) == []


def test_a_journal_is_not_overwritten(journal: Path) -> None:
    with pytest.raises(StoreForeign) as caught:
        import_journal(journal, io.BytesIO(exported(journal)), swarm="")
    assert "exists" in str(caught.value)


def test_an_export_that_fails_leaves_the_earlier_one(tmp_path: Path) -> None:
    folder = tmp_path / "home" / "scheduler"
    folder.mkdir(parents=True)
    (folder / "journal.db").write_bytes(b"no database at all" * 100)
    place = tmp_path / "backup" / "journal.jsonl"
    place.parent.mkdir()
    place.write_text("the last good one")
    with pytest.raises(StoreError):
        main(["export", "--force", "--home", str(tmp_path / "home"), str(place)])
    assert place.read_text() == "the last good one"
    with pytest.raises(CommandError, match="--force"):
        main(["export", "--home", str(tmp_path / "home"), str(place)])
    assert place.read_text() == "the last good one"
    assert list(place.parent.iterdir()) == [place]


def test_a_failed_import_leaves_no_folder_behind(tmp_path: Path) -> None:
    bad = tmp_path / "journal.jsonl"
    bad.write_text("no export\n")
    home = tmp_path / "home"
    for source in (bad, tmp_path / "nothing"):
        with pytest.raises((StoreError, CommandError)):
            main(["import", "--home", str(home), str(source)])
        assert not home.exists()
    (home / "scheduler").mkdir(parents=True)
    with pytest.raises(StoreError):
        main(["import", "--home", str(home), str(bad)])
    assert (home / "scheduler").is_dir()


class TestRepair:
    """Attempts that an earlier version took over from whoever made them up."""

    MADE_UP = 1 << 61

    @pytest.fixture
    def poisoned(self, tmp_path: Path) -> Path:
        """Of a scheduler's folder in a home."""
        folder = tmp_path / "scheduler"
        folder.mkdir()
        harness = SqliteHarness(folder / "journal.db")
        harness.store.raise_boot()
        half = msgspec.structs.replace(ended(2, 0, size=len(LONG)), attempt=AttemptId(self.MADE_UP))
        kept = PartKept(JobNumber(2), 0, AttemptId(self.MADE_UP), 0, LONG)
        commit_soundly(
            harness,
            [real(1), block(1, count=2), attempt_ended(attempt=self.MADE_UP), ended(1, 1)],
            [real(2), block(2, count=1), kept, half, JobClosed(JobNumber(2))],
            [JobEnded(JobNumber(2), "succeeded", 9.0)],
            [lease("worker", 8), lease("worker", 9)],
        )
        harness.close()
        return folder / "journal.db"

    def test_what_nobody_has_given_is_found(self, poisoned: Path) -> None:
        complaints = "\n".join(check(poisoned).complaints)
        assert f"attempt {self.MADE_UP} of task 0 of job 1 has ended, and no boot" in complaints
        assert f"task 0 of job 2 took the result of attempt {self.MADE_UP}" in complaints
        assert len(check(poisoned).complaints) == 2

    def test_it_is_mended_and_nothing_else_is_touched(self, poisoned: Path) -> None:
        mended = repair(poisoned)
        assert len(mended) == 2
        verdict = check(poisoned)
        assert verdict.is_sound, verdict.complaints
        assert repair(poisoned) == []
        harness = SqliteHarness(poisoned)
        try:
            assert harness.store.value(job_id(2), 0, offset=0, length=len(LONG)) == LONG
            assert [one.lease for one in harness.store.restore().leases] == [9]
            assert harness.store.restore().ended_attempts == []
            commit_soundly(harness, [ended(1, 0)])
        finally:
            harness.close()

    def test_the_command_mends_and_says_what(
        self, poisoned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        home = ["--home", str(tmp_path)]
        assert main(["check", *home]) == 1
        assert "--repair" in capsys.readouterr().out
        assert main(["check", "--repair", *home]) == 0
        said = capsys.readouterr().out
        assert said.count("mended: ") == 2
        assert "is sound" in said

    def test_there_is_nothing_to_mend_where_nothing_is(self, tmp_path: Path) -> None:
        with pytest.raises(StoreMissing):
            main(["check", "--repair", "--home", str(tmp_path)])
        assert not (tmp_path / "scheduler").exists()
