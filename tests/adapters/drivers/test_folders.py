"""Working folders that were made ready for a task before it runs."""

from __future__ import annotations

import json
from pathlib import Path

from mycel.testing.drivers.conformance import Stage

from .conftest import Play
from .subjects import deed


def _ready(stage: Stage, name: str) -> Path:
    folder = stage.folder / "ready" / name
    folder.mkdir(parents=True)
    return folder


def test_a_process_works_in_the_folder_that_was_made_ready_for_it(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        folder = _ready(stage, "one")
        (folder / "input").write_text("here")
        copying = stage.run(("sh", "-c", 'cp input "$MYCEL_WORKDIR/output"'), folder=str(folder))
        plain = stage.run(("sh", "-c", "test ! -e input"))
        ends = await stage.results_of(copying, plain)
        assert [end.state for end in ends] == ["succeeded", "succeeded"], ends
        assert (folder / "output").read_text() == "here"

    play("process", scenario)


def test_a_call_finds_its_module_and_files_in_the_folder_made_ready_for_it(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        ends = []
        for word in ("one", "two"):
            folder = _ready(stage, word)
            (folder / "brought.py").write_text(
                f"def call():\n    open('output', 'w').write('{word}')\n    return '{word}'\n"
            )
            ends.append(
                await stage.result_of(stage.run(function="brought:call", folder=str(folder)))
            )
            assert (folder / "output").read_text() == word
        assert [end.value for end in ends] == [b'"one"', b'"two"']
        gone = await stage.result_of(stage.run(function="brought:call"))
        assert gone.state == "failed"
        assert "brought" in gone.error

    play("python", scenario)


def test_several_calls_that_wait_in_one_lane_have_their_own_folders(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.result_of(deed(stage, "value", 1))
        folders = [_ready(stage, str(number)) for number in range(5)]
        runs = [deed(stage, "litter", folder=str(folder)) for folder in folders]
        await stage.results_of(*runs)
        assert all((folder / "folder" / "file").exists() for folder in folders)
        where = await stage.result_of(deed(stage, "where"))
        found = json.loads(where.value)
        assert found[0] == found[1]
        assert found[2] == []

    play("python", scenario)
