"""What only a store with a file can do: survive a kill, be damaged, be full."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from mycel.core.authenticators import SECRET_BYTES
from mycel.core.identifiers import AttemptId, JobNumber
from mycel.core.journal import Entry, JobsPruned, PartKept
from mycel.store.errors import (
    JournalBroken,
    StoreCorrupt,
    StoreError,
    StoreForeign,
    StoreMissing,
    StoreTooNew,
)
from mycel.store.long_values import ValueFiles
from mycel.store.sqlite.commit_pace import AT_ONCE_BEFORE_COPY, ENTRIES_AT_ONCE_MAX, Pace
from mycel.store.sqlite.database import WAL_BYTES
from mycel.store.sqlite.sqlite_journal import SqliteStore

from .store_harness import (
    SqliteHarness,
    block,
    commit_at_once,
    commit_soundly,
    job_id,
    lease,
    opened,
    task_ended,
)

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 60.0


def child(path: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", f"{__package__}.store_child", str(path), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
    )


class TestSqliteFile:
    @pytest.mark.parametrize("groups", [1, 50, 400])
    def test_what_was_done_survives_a_kill(self, tmp_path: Path, groups: int) -> None:
        path = tmp_path / "journal.db"
        process = child(path)
        assert process.stdout is not None
        with process:
            lines = [process.stdout.readline() for _ in range(groups + 1)]
            process.send_signal(signal.SIGKILL)
            lines += process.stdout.readlines()
        whole = [line for line in lines if line.endswith("\n") and line.startswith("done")]
        done = len(whole)
        assert done >= groups
        store = SqliteStore(path, lambda call: None)
        restored = store.restore()
        assert store.raise_boot() == 2
        store.close()
        assert len(restored.jobs) >= done
        assert len(restored.jobs) == len(restored.blocks)
        assert {stored.succeeded for stored in restored.blocks} == {b"\x1f"}
        assert restored.tasks_succeeded == 5 * len(restored.jobs)

    def test_a_full_disk_stops_the_journal(self, tmp_path: Path) -> None:
        path = tmp_path / "journal.db"
        process = child(path, str(10 << 20))
        output, _ = process.communicate(timeout=PATIENCE_SECONDS)
        lines = [line.split(maxsplit=3) for line in output.splitlines()]
        done = sum(line[0] == "done" for line in lines)
        errors = [line[2] for line in lines if line[0] == "error"]
        assert "DiskRefused" in errors
        assert set(errors[errors.index("DiskRefused") + 1 :]) <= {"DiskRefused", "JournalBroken"}
        store = SqliteStore(path, lambda call: None)
        assert len(store.restore().jobs) == done
        store.close()

    def test_reads_of_many_threads_beside_the_writer(self, tmp_path: Path) -> None:
        harness = SqliteHarness(tmp_path / "journal.db")
        commit_soundly(harness, [opened(1), block(1, count=1000)])

        def read(_: int) -> int:
            return len(harness.store.results(job_id(1), after=0, limit=1000))

        with ThreadPoolExecutor(16) as threads:
            counts = threads.map(read, range(64))
            for index in range(100):
                commit_soundly(harness, [task_ended(index=index)])
            assert all(count <= 100 for count in counts)
        assert read(0) == 100
        harness.close()
        with pytest.raises(JournalBroken):
            harness.store.job(job_id(1))

    def test_pruning_goes_on_after_a_restart(self, tmp_path: Path) -> None:
        path = tmp_path / "journal.db"
        harness = SqliteHarness(path)
        tasks = [task_ended(1, index, attempt=9) for index in range(3000)]
        commit_soundly(harness, [opened(1), block(1, count=3000), *tasks])
        commit_soundly(harness, [JobsPruned((JobNumber(1),))])
        harness.reopen()
        while True:
            # Each commit is a moment in which the writer goes on; how many there are to
            # be is its own business.
            commit_soundly(harness, [lease()])
            with sqlite3.connect(path) as connection:
                tables = ("results", "blocks", "ended_attempts", "pruned_jobs")
                counts = [
                    connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
                    for table in tables
                ]
            connection.close()
            if not any(counts):
                break
        harness.close()

    def test_files_of_values_go_with_their_job_and_orphans_at_the_start(
        self, tmp_path: Path
    ) -> None:
        path = tmp_path / "journal.db"
        harness = SqliteHarness(path)
        kept = PartKept(JobNumber(1), 0, AttemptId(100), 0, b"0123")
        orphan = PartKept(JobNumber(1), 1, AttemptId(101), 0, b"45")
        ended = msgspec.structs.replace(task_ended(1, value=b""), value_size=4)
        commit_soundly(harness, [opened(), block(), kept, orphan, ended])
        files = ValueFiles(path)
        assert files.path(1, 1, 101).exists()
        harness.reopen()
        assert not files.path(1, 1, 101).exists()
        assert files.path(1, 0, 100).read_bytes() == b"0123"
        commit_soundly(harness, [JobsPruned((JobNumber(1),))])
        harness.close()
        harness = SqliteHarness(path)
        commit_soundly(harness, [opened(2), block(2)])
        while files.path(1, 0, 100).exists():
            commit_soundly(harness, [])
        harness.close()

    def test_the_preallocated_wal_is_reused(self, tmp_path: Path) -> None:
        harness = SqliteHarness(tmp_path / "journal.db")
        wal = tmp_path / "journal.db-wal"
        before = wal.stat().st_size
        assert before > 8 << 20
        commit_soundly(harness, [opened(1), block(1, count=10_000)])
        for start in range(0, 400, 10):
            value = b"x" * 50_000
            tasks = [task_ended(1, index, value=value) for index in range(start, start + 10)]
            commit_soundly(harness, tasks)
        assert wal.stat().st_size < before + (4 << 20)
        harness.close()


class TestPace:
    def test_many_commits_at_once_neither_grow_the_wal_nor_stop(self, tmp_path: Path) -> None:
        path = tmp_path / "journal.db"
        harness = SqliteHarness(path)
        count = 4 * AT_ONCE_BEFORE_COPY
        for number in range(1, count + 1):
            entries: list[Entry] = [opened(number), block(number, count=1)]
            if not harness.store.commit_at_once(entries):
                commit_soundly(harness, entries)
        wal_bytes = path.with_name("journal.db-wal").stat().st_size
        assert wal_bytes < 1.1 * WAL_BYTES
        harness.reopen()
        assert len(harness.store.restore().jobs) == count
        harness.close()

    def test_pruning_begins_after_a_commit_at_once(self, tmp_path: Path) -> None:
        path = tmp_path / "journal.db"
        harness = SqliteHarness(path)
        commit_soundly(harness, [opened(1), block(1, count=1)], [task_ended()])
        commit_at_once(harness, [JobsPruned((JobNumber(1),))])
        with closing(sqlite3.connect(path)) as database:
            ends_at = time.monotonic() + PATIENCE_SECONDS
            while database.execute("SELECT count(*) FROM blocks").fetchone() != (0,):
                assert time.monotonic() < ends_at, "nobody has told the writer's thread"
        harness.close()

    def test_a_slow_disk_is_left_to_the_thread_until_it_is_quick_again(self) -> None:
        pace = Pace()
        assert pace.allows(ENTRIES_AT_ONCE_MAX)
        assert not pace.allows(ENTRIES_AT_ONCE_MAX + 1)
        pace.took(0.02)
        assert not pace.allows(1)
        for _ in range(20):
            pace.took(0.0002)
        assert pace.allows(1)

    def test_copying_is_left_to_the_thread(self) -> None:
        pace = Pace()
        told = []
        for _ in range(AT_ONCE_BEFORE_COPY):
            assert pace.allows(1)
            pace.took(0.0001)
            told.append(pace.committed_at_once())
        assert told == [True] + [False] * (AT_ONCE_BEFORE_COPY - 1)
        assert not pace.allows(1)
        assert pace.copying_is_overdue
        pace.copied()
        assert pace.allows(1)
        assert not pace.copying_is_due


class TestOpening:
    def make(self, path: Path) -> None:
        harness = SqliteHarness(path)
        tasks = [task_ended(1, index) for index in range(200)]
        commit_soundly(harness, [opened(1), block(1, count=200), *tasks])
        harness.close()

    def refused(self, path: Path, kind: type[StoreError], swarm: str = "") -> str:
        with pytest.raises(kind) as caught:
            SqliteStore(path, lambda call: None, swarm=swarm).restore()
        assert str(path) in str(caught.value) or str(path.parent) in str(caught.value)
        return str(caught.value)

    def test_garbage(self, tmp_path: Path) -> None:
        path = tmp_path / "journal.db"
        path.write_bytes(b"this is my shopping list. " * 100)
        assert "not an SQLite database" in self.refused(path, StoreForeign)
        assert path.read_bytes().startswith(b"this is my")

    def test_somebody_elses_database(self, tmp_path: Path) -> None:
        path = tmp_path / "journal.db"
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE photos (name)")
        connection.close()
        assert "not a scheduler's journal" in self.refused(path, StoreForeign)

    @pytest.mark.parametrize("page", [1, 3, 5])
    def test_damaged_page(self, tmp_path: Path, page: int) -> None:
        path = tmp_path / "journal.db"
        self.make(path)
        content = bytearray(path.read_bytes())
        content[page * 4096 : (page + 1) * 4096] = b"\xa5" * 4096
        path.write_bytes(content)
        message = self.refused(path, StoreCorrupt)
        assert "move it" in message
        assert "backup" in message

    def test_truncated(self, tmp_path: Path) -> None:
        path = tmp_path / "journal.db"
        self.make(path)
        path.write_bytes(path.read_bytes()[:9000])
        self.refused(path, StoreCorrupt)

    def test_newer_schema(self, tmp_path: Path) -> None:
        path = tmp_path / "journal.db"
        self.make(path)
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA user_version = 99")
        connection.close()
        assert "99" in self.refused(path, StoreTooNew)

    def test_a_journal_of_the_first_version_is_taken_over(self, tmp_path: Path) -> None:
        path = tmp_path / "journal.db"
        self.make(path)
        old = SqliteStore(path, lambda call: None)
        before = old.restore()
        old.close()
        connection = sqlite3.connect(path)
        connection.executescript(
            """DROP TABLE groups; DROP TABLE workers; DROP TABLE profiles;
            DROP INDEX results_in_files; ALTER TABLE results DROP COLUMN value_size;
            ALTER TABLE results DROP COLUMN code;
            ALTER TABLE ended_attempts DROP COLUMN code;
            ALTER TABLE results DROP COLUMN cost; ALTER TABLE results DROP COLUMN progress;
            ALTER TABLE ended_attempts DROP COLUMN cost;
            ALTER TABLE ended_attempts DROP COLUMN cause;
            ALTER TABLE blocks DROP COLUMN group_number;
            ALTER TABLE blocks DROP COLUMN digest; ALTER TABLE jobs DROP COLUMN stages;
            ALTER TABLE meta DROP COLUMN secret;
            PRAGMA user_version = 1"""
        )
        connection.close()
        store = SqliteStore(path, lambda call: None)
        after = store.restore()
        secret = store.secret()
        store.close()
        assert len(secret) == SECRET_BYTES, "one from before the secret gets one"
        assert len(after.jobs) == len(before.jobs) > 0
        assert [one.appended.first for one in after.blocks] == [0]
        assert {one.appended.group for one in after.blocks} == {0}
        SqliteStore(path, lambda call: None).close()

    def test_it_is_for_its_owner_alone(self, tmp_path: Path) -> None:
        path = tmp_path / "journal.db"
        self.make(path)
        path.chmod(0o644)  # as an earlier version left it
        store = SqliteStore(path, lambda call: None)
        try:
            rights = {one.name: one.stat().st_mode & 0o777 for one in tmp_path.glob("journal.db*")}
        finally:
            store.close()
        assert set(rights) >= {"journal.db", "journal.db-wal"}
        assert {mode for name, mode in rights.items() if "." in name} == {0o600}, rights

    def test_missing_folder(self, tmp_path: Path) -> None:
        self.refused(tmp_path / "nowhere" / "journal.db", StoreMissing)

    def test_a_folder_in_its_place(self, tmp_path: Path) -> None:
        self.refused(tmp_path, StoreForeign)

    def test_journal_of_another_swarm(self, tmp_path: Path) -> None:
        path = tmp_path / "journal.db"
        SqliteStore(path, lambda call: None, swarm="home").close()
        SqliteStore(path, lambda call: None).close()
        assert "'home'" in self.refused(path, StoreForeign, swarm="work")
        SqliteStore(path, lambda call: None, swarm="home").close()
