"""Every attempt succeeds where nothing holds it, if it can; none does behind any of the walls; and
the worker goes on serving. The counts are printed at the end of the run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.adapters.sandbox.subjects import has_bubblewrap, has_landlock

from .attack import Attack
from .campaign import SUBJECTS, Outcome, attacks_of, confinement, environment, read
from .somebody import CHECKOUT, SOMEBODY, start

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="attempts on the sandbox need root, also to become somebody else"
)
Record = Callable[[str, object], None]
ALL = [attack for subject in SUBJECTS for attack in attacks_of(subject)]
CAMPAIGN_SECONDS = 300.0
NEEDS_ROOT = {
    # Without root these succeed nowhere.
    "becomes root",
    "becomes root by a setuid program",
    "binds the root over its folder",
    "borrows the kernel's ciphers",
    "calls the socket of another lane in its packets",
    "can change the system",
    "changes its root",
    "clones itself into a new namespace",
    "counts events of the processor",
    "enters the namespace of another process",
    "gives its file to root",
    "handles its own page faults",
    "has capabilities",
    "has descriptors that nobody gave it",
    "is more important than others",
    "is root",
    "leaves a daemon behind",
    "leaves its control group",
    "listens to all packets",
    "listens to all packets of IPv6",
    "listens to everybody's files",
    "loads a program into the kernel",
    "looks into the home of root",
    "makes a device",
    "makes a new mount namespace",
    "makes a new network namespace",
    "makes packets by hand",
    "mounts a file system",
    "opens a disk",
    "opens a setting of the kernel for writing",
    "opens a tree of mounts",
    "opens the messages of the kernel",
    "reads the passwords of the machine",
    "reads the token through the first process",
    "renames the machine",
    "runs before all others",
    "takes packets by the old way",
    "types into a terminal",
}


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where anybody can reach it, and not in a place that tasks have for themselves."""
    made = Path(tempfile.mkdtemp(prefix="mycel-attacks-", dir="/srv"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def skip_if_missing(walls: str) -> None:
    if walls == "bubblewrap" and not has_bubblewrap:
        pytest.skip("bubblewrap is not installed: make test-tools")
    if walls == "landlock" and not has_landlock:
        pytest.skip("this kernel has no Landlock")


def by_somebody(walls: str, subject: str, folder: Path) -> list[Outcome]:
    """As a user without rights; where Landlock is to hold, on a kernel that refuses namespaces."""
    os.chown(folder, SOMEBODY, SOMEBODY)
    process = start(
        [sys.executable, "-m", "tests.attacks.campaign", walls, subject, str(folder)],
        refuse_namespaces=walls == "landlock",
        cwd=CHECKOUT,
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    said, errors = process.communicate(timeout=CAMPAIGN_SECONDS)
    assert process.returncode == 0, errors
    return read(said)


def check(attacks: list[Attack], outcomes: list[Outcome], record: Record) -> None:
    assert [one.name for one in outcomes] == [one.name for one in attacks]
    record("attacks_tried", len(outcomes))
    record("attacks_escaped", sum(one.escaped for one in outcomes))
    assert not [one for one in outcomes if not one.tried], "they did not even begin"
    assert not [one for one in outcomes if one.escaped], "they broke out"


def check_controls(attacks: list[Attack], outcomes: list[Outcome], record: Record) -> None:
    record("attacks_controls", sum(one.escaped for one in outcomes))
    failed = [
        outcome
        for attack, outcome in zip(attacks, outcomes, strict=True)
        if not outcome.escaped and not attack.no_control
    ]
    assert not failed, "where nothing holds them they should succeed"


@pytest.mark.parametrize("subject", SUBJECTS)
@pytest.mark.parametrize("walls", ["bubblewrap", "namespaces"])
def test_attempts_on_a_worker_that_is_root(
    walls: str, subject: str, folder: Path, record_property: Record
) -> None:
    skip_if_missing(walls)
    attacks = attacks_of(subject)
    check(attacks, confinement(walls, attacks, folder), record_property)


@pytest.mark.parametrize("subject", SUBJECTS)
@pytest.mark.parametrize("walls", ["namespaces", "landlock"])
def test_attempts_on_a_worker_that_is_not(
    walls: str, subject: str, folder: Path, record_property: Record
) -> None:
    skip_if_missing(walls)
    check(attacks_of(subject), by_somebody(walls, subject, folder), record_property)


@pytest.mark.parametrize("subject", SUBJECTS)
def test_they_succeed_where_nothing_holds_them(
    subject: str, folder: Path, record_property: Record
) -> None:
    attacks = attacks_of(subject)
    check_controls(attacks, confinement("off", attacks, folder), record_property)


@pytest.mark.parametrize("subject", SUBJECTS)
def test_they_succeed_without_root_too(subject: str, folder: Path, record_property: Record) -> None:
    outcomes = by_somebody("off", subject, folder)
    kept = [
        (attack, outcome)
        for attack, outcome in zip(attacks_of(subject), outcomes, strict=True)
        if attack.name not in NEEDS_ROOT
    ]
    check_controls([one for one, _ in kept], [one for _, one in kept], record_property)


def test_there_are_enough_attempts() -> None:
    names = [attack.name for attack in ALL]
    assert len(names) == len(set(names)) >= 100
    assert sum(not attack.no_control for attack in ALL) >= 100
    assert set(names) >= NEEDS_ROOT
