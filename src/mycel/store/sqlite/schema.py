"""The tables of a scheduler's journal.

    jobs ─┬─ groups          further specifications, of jobs that have more than one
          ├─ blocks          one appended batch; its tasks are arithmetic over it
          ├─ results         one row per finished task, numbered in the order of commits
          └─ ended_attempts  of attempts that left their task unfinished
    leases                   workers' registrations that have not ended
    workers                  what was measured of each
    pruned_jobs              forgotten jobs of which rows are still to be deleted
    profiles                 what kinds of tasks were seen to use, the latest thousand
    meta                     one row: boot number, the secret of authenticators, and what pruning
                             took away: the highest numbers and how many tasks had ended how

A commit writes whole pages, so a table or index less in it is felt: totals are counted when
they are asked for, and no index stands where a rule can be checked without one. No table has a
foreign key: pruning takes a job's row at once and the rest in steps.
"""

from __future__ import annotations

from typing import Final

from .database import Format

SCHEMA_VERSION: Final = 9
APPLICATION_ID: Final = 0x4D59434A  # "MYCJ"

_GROUPS: Final = """
CREATE TABLE groups (
    job INTEGER NOT NULL,
    number INTEGER NOT NULL,
    stage INTEGER NOT NULL,
    specification BLOB NOT NULL,
    PRIMARY KEY (job, number)
) WITHOUT ROWID
"""

_WORKERS: Final = """
CREATE TABLE workers (
    worker TEXT PRIMARY KEY,
    succeeded REAL NOT NULL,
    failed REAL NOT NULL,
    busy_seconds REAL NOT NULL,
    consecutive_failures INTEGER NOT NULL,
    last_seen_at REAL
) WITHOUT ROWID
"""

# It has no entry for a common row, and finds the others without reading them.
_IN_FILES: Final = """
CREATE INDEX results_in_files ON results (job, task_index, attempt, value_size)
WHERE value_size > 0
"""

_PROFILES: Final = """
CREATE TABLE profiles (
    kind TEXT PRIMARY KEY,
    memory INTEGER NOT NULL,
    cpu_cores INTEGER NOT NULL,
    seen_at REAL NOT NULL
) WITHOUT ROWID
"""

# `results_by_job` also orders by sequence, since an index ends with the row's key.
# `results_unsuccessful` costs the common row nothing, and spares a restart from reading rows:
# what is in `results_by_task` and not in it has succeeded.
_SCRIPT: Final = """
CREATE TABLE meta (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    swarm TEXT NOT NULL,
    boot INTEGER NOT NULL,
    pruned_sequence INTEGER NOT NULL,
    pruned_job INTEGER NOT NULL,
    pruned_succeeded INTEGER NOT NULL,
    pruned_failed INTEGER NOT NULL,
    pruned_cancelled INTEGER NOT NULL,
    secret BLOB NOT NULL DEFAULT x''
);
INSERT INTO meta VALUES (1, '', 0, 0, 0, 0, 0, 0, x'');

CREATE TABLE jobs (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    user TEXT NOT NULL,
    created_at REAL NOT NULL,
    idempotency_key TEXT NOT NULL,
    body_digest BLOB NOT NULL,
    closed INTEGER NOT NULL DEFAULT 0,
    state TEXT NOT NULL DEFAULT '',
    ended_at REAL,
    specification BLOB NOT NULL,
    stages BLOB NOT NULL DEFAULT x''
);

CREATE TABLE blocks (
    number INTEGER PRIMARY KEY,
    job INTEGER NOT NULL,
    batch INTEGER NOT NULL,
    first INTEGER NOT NULL,
    count INTEGER NOT NULL,
    owner TEXT NOT NULL DEFAULT '',
    owner_epoch INTEGER NOT NULL,
    appended_at REAL NOT NULL,
    arguments BLOB NOT NULL,
    group_number INTEGER NOT NULL DEFAULT 0,
    digest BLOB NOT NULL DEFAULT x''
);
CREATE UNIQUE INDEX blocks_by_task ON blocks (job, first, count, owner_epoch);

CREATE TABLE results (
    sequence INTEGER PRIMARY KEY,
    job INTEGER NOT NULL,
    task_index INTEGER NOT NULL,
    owner_epoch INTEGER NOT NULL,
    state TEXT NOT NULL,
    reason TEXT NOT NULL,
    attempt INTEGER,
    attempt_state TEXT NOT NULL,
    number INTEGER NOT NULL,
    worker TEXT,
    exit_code INTEGER,
    value BLOB NOT NULL,
    digest BLOB NOT NULL,
    error TEXT NOT NULL,
    stdout BLOB NOT NULL,
    stderr BLOB NOT NULL,
    started_at REAL,
    ended_at REAL NOT NULL,
    value_size INTEGER NOT NULL DEFAULT 0,
    cost REAL NOT NULL DEFAULT 0,
    progress BLOB NOT NULL DEFAULT x'',
    code TEXT NOT NULL DEFAULT ''
);
CREATE UNIQUE INDEX results_by_task ON results (job, task_index);
CREATE INDEX results_by_job ON results (job);
CREATE INDEX results_unsuccessful ON results (job, task_index, state) WHERE state <> 'succeeded';

CREATE TABLE ended_attempts (
    job INTEGER NOT NULL,
    task_index INTEGER NOT NULL,
    owner_epoch INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    state TEXT NOT NULL,
    counts INTEGER NOT NULL,
    number INTEGER NOT NULL,
    worker TEXT NOT NULL,
    exit_code INTEGER,
    error TEXT NOT NULL,
    started_at REAL,
    ended_at REAL NOT NULL,
    cause TEXT NOT NULL DEFAULT '',
    cost REAL NOT NULL DEFAULT 0,
    code TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (job, task_index, attempt)
) WITHOUT ROWID;

CREATE TABLE leases (
    worker TEXT PRIMARY KEY,
    lease INTEGER NOT NULL,
    addresses TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE pruned_jobs (number INTEGER PRIMARY KEY)
"""

_FROM_1: Final = f"""
{_GROUPS};
ALTER TABLE blocks ADD COLUMN group_number INTEGER NOT NULL DEFAULT 0;
ALTER TABLE blocks ADD COLUMN digest BLOB NOT NULL DEFAULT x'';
ALTER TABLE jobs ADD COLUMN stages BLOB NOT NULL DEFAULT x''
"""

_FROM_2: Final = f"""
{_WORKERS};
ALTER TABLE ended_attempts ADD COLUMN cause TEXT NOT NULL DEFAULT ''
"""

_FROM_3: Final = f"""
ALTER TABLE results ADD COLUMN value_size INTEGER NOT NULL DEFAULT 0;
{_IN_FILES}
"""

_FROM_5: Final = """
ALTER TABLE results ADD COLUMN cost REAL NOT NULL DEFAULT 0;
ALTER TABLE results ADD COLUMN progress BLOB NOT NULL DEFAULT x'';
ALTER TABLE ended_attempts ADD COLUMN cost REAL NOT NULL DEFAULT 0
"""

# Empty until the journal is opened: SQLite's own random numbers are not meant for secrets.
_FROM_6: Final = "ALTER TABLE meta ADD COLUMN secret BLOB NOT NULL DEFAULT x''"

_FROM_7: Final = """
ALTER TABLE results ADD COLUMN code TEXT NOT NULL DEFAULT '';
ALTER TABLE ended_attempts ADD COLUMN code TEXT NOT NULL DEFAULT ''
"""

# A worker had a lease for each shape; the latest tells where it may still run something.
_FROM_8: Final = """
ALTER TABLE leases RENAME TO leases_of_shapes;
CREATE TABLE leases (
    worker TEXT PRIMARY KEY,
    lease INTEGER NOT NULL,
    addresses TEXT NOT NULL
) WITHOUT ROWID;
INSERT OR REPLACE INTO leases
    SELECT worker, lease, addresses FROM leases_of_shapes ORDER BY worker, lease;
DROP TABLE leases_of_shapes
"""

JOURNAL_FORMAT: Final = Format(
    what="a scheduler's journal",
    application_id=APPLICATION_ID,
    version=SCHEMA_VERSION,
    script=f"{_SCRIPT};{_GROUPS};{_WORKERS};{_IN_FILES};{_PROFILES}",
    migrations=(_FROM_1, _FROM_2, _FROM_3, _PROFILES, _FROM_5, _FROM_6, _FROM_7, _FROM_8),
)
