"""Every attempt succeeds without the sandbox, where it can; none does in it; and the worker goes
on serving. The counts are printed at the end of the run."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mycel.drivers.conformance_stage import staged
from mycel.drivers.sandbox.holding import Limits
from tests.adapters.sandbox.subjects import ConfinedProcesses, LimitedProcesses, needs_bubblewrap

from . import on_files, on_processes, on_resources, on_the_kernel, on_the_network
from .attack import LIMITS, Attack, set_scene

ALL = [
    attack
    for subject in (on_files, on_processes, on_the_kernel, on_the_network, on_resources)
    for attack in subject.ATTACKS
]


def outcome(attack: Attack, folder: Path, kind: type[ConfinedProcesses]) -> tuple[bool, bytes]:
    """Whether it succeeded, and what it said."""
    (folder / "modules").mkdir(parents=True)
    scene = set_scene(folder)
    if attack.prepare is not None:
        attack.prepare(scene)
    subject = kind(folder, limits=Limits() if kind is LimitedProcesses else LIMITS)

    async def perform() -> tuple[bool, bytes]:
        async with staged(subject, folder) as stage:
            run = stage.run(attack.command(), env=attack.environment(scene), timeout=20.0)
            end = await stage.result_of(run)
            succeeded = attack.succeeded(scene, end)
            again = await stage.result_of(stage.quick())
            assert again.state == "succeeded", f"the worker does not go on: {again}"
            return succeeded, end.stdout + end.stderr + end.error.encode()

    try:
        return asyncio.run(perform())
    finally:
        scene.close()


@needs_bubblewrap
@pytest.mark.skipif(os.geteuid() != 0, reason="the controls need root: run the tests as root")
@pytest.mark.parametrize("attack", ALL, ids=lambda attack: attack.name)
def test_attack(
    attack: Attack, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    tmp_path.chmod(0o755)
    worked, said = outcome(attack, tmp_path / "control", LimitedProcesses)
    record_property("attack_control", worked)
    escaped, said_held = outcome(attack, tmp_path / "held", ConfinedProcesses)
    record_property("attack_escaped", escaped)
    assert b"tried" in said_held, f"it did not even begin: {said_held!r}"
    assert not escaped, f"it broke out: {said_held!r}"
    if not attack.no_control:
        assert worked, f"without the sandbox it should succeed: {said!r}"


def test_there_are_enough_attempts() -> None:
    names = [attack.name for attack in ALL]
    assert len(names) == len(set(names)) >= 50
    assert sum(not attack.no_control for attack in ALL) >= 40
