"""Landlock behind bubblewrap: with the mounts left open, it holds by itself."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from mycel.drivers.sandbox.detection import SandboxStatus
from tests.adapters.sandbox import subjects
from tests.adapters.sandbox.subjects import (
    needs_bubblewrap,
    needs_landlock,
    standing_in,
)

from .attack import Attack
from .campaign import confinement
from .test_attacks import ALL

pytestmark = [
    needs_landlock,
    pytest.mark.skipif(os.geteuid() != 0, reason="the controls need root: run the tests as root"),
]
READS = {
    "reads the token of the API",
    "reads the owner's key",
    "reads the node's key",
    "reads the file of another task",
    "reads the token through its parent",
    "reads the token through a link",
    "reads the passwords of the machine",
}


def _named(names: set[str]) -> list[Attack]:
    found = [attack for attack in ALL if attack.name in names]
    assert len(found) == len(names), names - {attack.name for attack in found}
    return found


def _opened(status: SandboxStatus, shown: Path, *, by_landlock: bool) -> SandboxStatus:
    """With all that is to be read mounted, and root kept: what is left is Landlock.

    Not with the whole machine: bubblewrap goes through every mount below what it binds, and
    fails if one of them, such as another test's network, goes away meanwhile."""
    too_much = ("--bind", str(shown), str(shown), "--bind", "/etc", "/etc")
    plan = msgspec.structs.replace(
        status.plan,
        wrap=(*status.plan.wrap, *too_much),
        offline=(),
        drop=(),
        user=-1,
        filter=b"",
    )
    if not by_landlock:
        plan = msgspec.structs.replace(plan, rules=None)
    return msgspec.structs.replace(status, plan=plan)


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """Not in /tmp or /var/tmp, which tasks in bubblewrap may write: theirs is another."""
    made = Path(tempfile.mkdtemp(dir="/srv"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@needs_bubblewrap
@pytest.mark.parametrize("attack", _named(READS), ids=lambda attack: attack.name)
def test_behind_mounts_that_show_too_much(
    attack: Attack,
    elsewhere: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    def succeeds(*, by_landlock: bool) -> bool:
        monkeypatch.setattr(
            subjects,
            "standing_in",
            lambda *asked, **settings: _opened(
                standing_in(*asked, **settings), elsewhere, by_landlock=by_landlock
            ),
        )
        return confinement("bubblewrap", [attack], elsewhere / str(by_landlock))[0].escaped

    worked, escaped = succeeds(by_landlock=False), succeeds(by_landlock=True)
    record_property("attack_control", worked)
    record_property("attack_escaped", escaped)
    assert worked
    assert not escaped
