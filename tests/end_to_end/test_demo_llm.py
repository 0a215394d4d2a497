"""`mycel demo llm`, where its packages are; how they are installed, and what if they cannot be."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mycel.console.errors import CommandError
from mycel.demo import demo_packages, llm


@pytest.mark.skipif(
    not demo_packages.folder_of("language-model", llm.LOCKS).is_dir(),
    reason=f"it needs {llm.SIZE} of packages: 'mycel demo llm' installs them once",
)
def test_a_language_model_on_two_workers_survives_the_loss_of_one() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mycel", "demo", "llm", "--json"],
        stdout=subprocess.PIPE,
        timeout=300,
    )
    assert done.returncode == 0
    story = json.loads(done.stdout)
    assert story["workers"] == ["worker-1", "worker-2"]
    assert len(story["text"].split()) > 10
    assert 10 < story["streamed_tokens"] <= 64
    assert all(len(answer.split()) > 5 for answer in story["answers"])
    assert len(story["answers"]) == len(llm.QUESTIONS)
    assert story["workers_left"] == ["worker-2"]
    assert story["streamed_after_the_kill"] > 0


def test_packages_that_cannot_be_installed_leave_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in ("UV_OFFLINE", "UV_NO_CACHE", "PIP_NO_INDEX"):
        monkeypatch.setenv(name, "1")
    said: list[str] = []
    with pytest.raises(CommandError, match="could not be installed"):
        demo_packages.installed("language-model", llm.LOCKS, llm.SIZE, said.append)
    assert len(said) == 1
    assert llm.SIZE in said[0]
    assert list(demo_packages.cache_folder().iterdir()) == []
