"""Which rules a kernel gets, and what a worker makes of a kernel without."""

from __future__ import annotations

from pathlib import Path

import pytest

from mycel import _native
from mycel.drivers.sandbox import landlock
from mycel.drivers.sandbox.landlock import (
    DEVICE,
    IOCTL_DEVICE,
    READ,
    READ_DIR,
    REFER,
    TRUNCATE,
    WRITE_FILE,
    rule_words,
    rules,
)
from mycel.drivers.sandbox.run_confinement import RunConfinement
from mycel.testing.drivers.conformance import Harness

from .conftest import Play
from .subjects import needs_bubblewrap, needs_landlock, standing_in

EVERYTHING = (1 << 16) - 1
SCOPES = 0b11
TABLE = {
    2: (EVERYTHING & ~TRUNCATE & ~IOCTL_DEVICE, 0),
    3: (EVERYTHING & ~IOCTL_DEVICE, 0),
    4: (EVERYTHING & ~IOCTL_DEVICE, 0),
    5: (EVERYTHING, 0),
    6: (EVERYTHING, SCOPES),
    7: (EVERYTHING, SCOPES),
    99: (EVERYTHING, SCOPES),
}


def _rights(words: list[str] | tuple[str, ...]) -> dict[str, int]:
    """What each path is allowed."""
    assert words[0] == "landlock"
    found: dict[str, int] = {}
    for step, rights, path in zip(words[3::3], words[4::3], words[5::3], strict=True):
        assert step == "path"
        found[path] = found.get(path, 0) | int(rights)
    return found


@pytest.mark.parametrize("kernel", TABLE)
def test_a_kernel_is_asked_for_what_it_knows_and_no_more(kernel: int) -> None:
    made = rules(kernel, ("/data",), wrapped=True)
    assert made is not None
    files, scopes = TABLE[kernel]
    assert made.words[:3] == ("landlock", str(files), str(scopes))
    allowed = _rights(rule_words(made, RunConfinement(), "/folder"))
    assert all(rights & ~files == 0 for rights in allowed.values())
    assert allowed["/folder"] == allowed["/tmp"] == files
    assert files & REFER, "or nothing could be moved between folders"


@pytest.mark.parametrize("kernel", [-1, 0, 1])
def test_a_kernel_without_gets_no_rules(kernel: int) -> None:
    assert rules(kernel, (), wrapped=True) is None
    assert rules(kernel, (), wrapped=False) is None


@pytest.mark.parametrize("wrapped", [True, False])
def test_only_its_own_places_can_be_written(wrapped: bool, tmp_path: Path) -> None:
    made = rules(7, (str(tmp_path),), wrapped=wrapped)
    assert made is not None
    confinement = RunConfinement(readable=("/in",), writable=("/out",), devices=("/dev/nvidia0",))
    allowed = _rights(rule_words(made, confinement, "/folder"))
    writable = {path for path, rights in allowed.items() if rights & WRITE_FILE}
    own = {"/folder", "/out", "/dev/nvidia0", *landlock.DEVICES}
    if wrapped:
        own |= {"/tmp", "/dev/shm", *landlock.TERMINALS}
    assert writable == own
    assert {allowed[path] for path in ("/in", "/usr", str(tmp_path))} == {READ}
    assert ("/proc" in allowed) == wrapped, "without a sandbox everybody's processes are there"
    assert allowed["/dev/nvidia0"] == DEVICE
    assert allowed.get("/") == (READ_DIR if wrapped else None)
    assert "/etc" not in allowed, "of that folder tasks get what they need"


@needs_bubblewrap
def test_a_worker_on_a_kernel_without_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landlock, "version", lambda: 0)
    status = standing_in(tmp_path, "required")
    assert status.sandbox == "bubblewrap"
    assert status.walls == ("bubblewrap", "seccomp")
    assert "kernel" in status.remarks["landlock"]
    own = standing_in(tmp_path, "auto")
    assert own.walls == ("namespaces", "seccomp")
    assert own.remarks["bubblewrap"] == "not installed"


@needs_bubblewrap
@needs_landlock
def test_a_worker_on_a_kernel_with_it_has_both_walls(tmp_path: Path) -> None:
    status = standing_in(tmp_path, "required")
    assert status.walls == ("bubblewrap", "seccomp", f"landlock {landlock.version()}")
    assert not status.remarks.keys() & {"sandbox", "landlock"}


@needs_landlock
@pytest.mark.parametrize("kind", ["confined process", "kept process"])
def test_its_own_places_are_all_it_needs(kind: str, play: Play) -> None:
    script = """
    set -e
    mkdir -p a/b; echo 1 > a/one; mv a/one a/b/two; ln a/b/two a/three; : > a/b/two
    cp /usr/bin/env tool; ./tool true
    t=$(mktemp); echo 1 > $t; mv $t here
    echo 1 > /dev/null; head -c1 /dev/urandom > random; ls /usr /etc/ssl > names; cat /proc/meminfo
    """

    async def scenario(harness: Harness) -> None:
        end = await harness.result_of(harness.run(("sh", "-c", script)))
        assert end.exit_code == 0, end.stderr

    play(kind, scenario)


def test_a_launcher_that_does_not_run_leaves_the_limits_of_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_native, "launcher", lambda: b"no program at all")
    status = standing_in(tmp_path, "auto")
    assert (status.walls, status.plan.cgroups) == ((), None)
    assert "the launcher does not work here" in status.remarks["limits"]
    assert "memory" in status.limits


def test_a_hidden_folder_is_left_out_of_what_is_readable(tmp_path: Path) -> None:
    """A rule cannot be taken back for a part: the folders beside are named one by one."""
    hidden = tmp_path / "a" / "home"
    for name in ("a/home/keys", "a/beside", "b"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "way").symlink_to(hidden)
    (tmp_path / "round").symlink_to(tmp_path)
    made = rules(7, (str(tmp_path),), wrapped=False, hidden=str(hidden))
    assert made is not None
    allowed = {path for path in _rights(made.words) if path.startswith(str(tmp_path))}
    assert allowed == {f"{tmp_path}/a/beside", f"{tmp_path}/b"}
