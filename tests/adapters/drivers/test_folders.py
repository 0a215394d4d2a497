"""Working folders that were made ready for a task before it runs."""

from __future__ import annotations

import json
from pathlib import Path

from mycel.testing.drivers.conformance import Harness

from .conftest import Play
from .subjects import deed


def _ready(harness: Harness, name: str) -> Path:
    folder = harness.folder / "ready" / name
    folder.mkdir(parents=True)
    return folder


def test_a_process_works_in_the_folder_that_was_made_ready_for_it(play: Play) -> None:
    async def scenario(harness: Harness) -> None:
        folder = _ready(harness, "one")
        (folder / "input").write_text("here")
        copying = harness.run(("sh", "-c", 'cp input "$MYCEL_WORKDIR/output"'), folder=str(folder))
        plain = harness.run(("sh", "-c", "test ! -e input"))
        ends = await harness.results_of(copying, plain)
        assert [end.state for end in ends] == ["succeeded", "succeeded"], ends
        assert (folder / "output").read_text() == "here"

    play("process", scenario)


def test_a_call_finds_its_module_and_files_in_the_folder_made_ready_for_it(play: Play) -> None:
    async def scenario(harness: Harness) -> None:
        ends = []
        for word in ("one", "two"):
            folder = _ready(harness, word)
            (folder / "brought.py").write_text(
                f"def call():\n    open('output', 'w').write('{word}')\n    return '{word}'\n"
            )
            ends.append(
                await harness.result_of(harness.run(function="brought:call", folder=str(folder)))
            )
            assert (folder / "output").read_text() == word
        assert [end.value for end in ends] == [b'"one"', b'"two"']
        gone = await harness.result_of(harness.run(function="brought:call"))
        assert gone.state == "failed"
        assert "brought" in gone.error

    play("python", scenario)


def test_several_calls_that_wait_in_one_lane_have_their_own_folders(play: Play) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.result_of(deed(harness, "value", 1))
        folders = [_ready(harness, str(number)) for number in range(5)]
        runs = [deed(harness, "litter", folder=str(folder)) for folder in folders]
        await harness.results_of(*runs)
        assert all((folder / "folder" / "file").exists() for folder in folders)
        where = await harness.result_of(deed(harness, "where"))
        found = json.loads(where.value)
        assert found[0] == found[1]
        assert found[2] == []

    play("python", scenario)
