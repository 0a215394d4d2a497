"""Many attempts against the same walls: one worker, one task after another, a scene for each.

    python -m tests.attacks.campaign WALLS SUBJECT FOLDER      the outcomes, as lines of JSON

`off`, `bubblewrap`, `namespaces` and `landlock` are walls; as whom and on which kernel it runs is
up to who starts it (`somebody`). It fails if the worker finds other walls than these.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any, Final

import msgspec

from mycel.drivers.sandbox.run_confinement import Limits
from mycel.testing.drivers.conformance_harness import Harness, open_harness
from tests.adapters.sandbox.subjects import ConfinedProcesses, KeptProcesses, LimitedProcesses

from .attack import LIMITS, Attack, set_scene

SUBJECTS: Final = (
    "on_files",
    "on_processes",
    "on_the_kernel",
    "on_the_network",
    "on_neighbours",
    "on_resources",
)
KINDS: Final[dict[str, type[ConfinedProcesses]]] = {
    "off": LimitedProcesses,
    "bubblewrap": ConfinedProcesses,
    "namespaces": KeptProcesses,
    "landlock": KeptProcesses,
}


class Outcome(msgspec.Struct):
    name: str
    tried: bool
    escaped: bool
    said: str


def attacks_of(subject: str) -> list[Attack]:
    found: list[Attack] = importlib.import_module(f"tests.attacks.{subject}").ATTACKS
    return found


def confinement(walls: str, attacks: list[Attack], folder: Path) -> list[Outcome]:
    """All of them, in turn; raises if the worker does not go on after one."""
    (folder / "modules").mkdir(parents=True, exist_ok=True)
    subject = KINDS[walls](folder, limits=Limits() if walls == "off" else LIMITS)

    async def perform() -> list[Outcome]:
        async with open_harness(subject, folder) as harness:
            status = subject.status
            assert status is not None
            found = status.sandbox or ("landlock" if status.plan.is_kept else "off")
            assert found == walls, f"{found} and not {walls}: {status.remarks}"
            return [await _one(harness, attack, folder) for attack in attacks]

    return asyncio.run(perform())


async def _one(harness: Harness, attack: Attack, folder: Path) -> Outcome:
    scene = set_scene(folder)
    try:
        if attack.prepare is not None:
            attack.prepare(scene)
        run = harness.run(attack.command(), env=attack.environment(scene), timeout=20.0)
        end = await harness.result_of(run)
        escaped = attack.succeeded(scene, end)
        again = await harness.result_of(harness.quick())
        assert again.state == "succeeded", f"after {attack.name} it does not go on: {again}"
        said = end.stdout + end.stderr + end.error.encode()
        return Outcome(attack.name, b"tried" in said, escaped, said.decode(errors="replace"))
    finally:
        scene.close()


def main(walls: str, subject: str, folder: str) -> None:
    for outcome in confinement(walls, attacks_of(subject), Path(folder)):
        print(json.dumps(msgspec.to_builtins(outcome)), flush=True)


def read(lines: str) -> list[Outcome]:
    return [msgspec.json.decode(line, type=Outcome) for line in lines.splitlines()]


def environment(folder: Path) -> dict[str, Any]:
    """For a process of somebody else's: nothing of root's home."""
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}


if __name__ == "__main__":
    main(*sys.argv[1:])
