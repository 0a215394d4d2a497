"""Where control groups may be made, in both versions: below the worker's own, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from mycel.drivers.sandbox.cgroup_paths import NoCgroups, make_places


def _unified(tmp_path: Path, controllers: str, *members: int) -> tuple[Path, Path, Path]:
    """A tree of version 2 as plain files: what the kernel would refuse, nobody does here."""
    root, membership = tmp_path / "cgroup", tmp_path / "membership"
    home = root / "system.slice" / "mycel.service"
    home.mkdir(parents=True)
    membership.write_text("0::/system.slice/mycel.service\n")
    (home / "cgroup.controllers").write_text(controllers)
    (home / "cgroup.procs").write_text("".join(f"{one}\n" for one in members))
    return root, membership, home


def test_version_2_is_limited_as_a_whole(tmp_path: Path) -> None:
    root, membership, home = _unified(tmp_path, "cpu memory pids\n", 7)
    plan = make_places("mark", 10**9, (7,), root, membership)
    assert (plan.version, plan.places) == (2, {"": str(home / "mycel-mark")})
    assert (home / "cgroup.subtree_control").read_text() == "+memory +pids +cpu"
    assert (home / "mycel-mark" / "cgroup.subtree_control").read_text() == "+memory +pids +cpu"
    assert (home / "mycel-mark" / "memory.max").read_text() == str(10**9)


def test_version_2_without_the_controllers_says_so(tmp_path: Path) -> None:
    root, membership, _ = _unified(tmp_path, "cpu\n", 7)
    with pytest.raises(NoCgroups, match="memory, pids are not given"):
        make_places("mark", 10**9, (7,), root, membership)


def test_a_worker_that_shares_its_group_is_told_what_to_do(tmp_path: Path) -> None:
    root, membership, home = _unified(tmp_path, "cpu memory pids\n", 7, 8)
    (home / "cgroup.subtree_control").mkdir()  # as the kernel does: it cannot be written
    with pytest.raises(NoCgroups, match="Delegate=yes"):
        make_places("mark", 10**9, (7,), root, membership)


def test_version_1_has_a_place_for_each_controller(tmp_path: Path) -> None:
    root, membership = tmp_path / "cgroup", tmp_path / "membership"
    membership.write_text("4:memory:/box\n2:pids:/\n1:cpu,cpuacct:/\n0::/\n")
    for path in ("memory/box", "pids", "cpu"):
        (root / path).mkdir(parents=True)
    plan = make_places("mark", 10**9, (7,), root, membership)
    assert plan.places == {
        "memory": str(root / "memory/box/mycel-mark"),
        "pids": str(root / "pids/mycel-mark"),
        "cpu": str(root / "cpu/mycel-mark"),
    }
    assert (root / "memory/box/mycel-mark/memory.limit_in_bytes").read_text() == str(10**9)
