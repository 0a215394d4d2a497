"""A driver that another package brings, through a real swarm."""

from __future__ import annotations

import os
import re
from pathlib import Path

from .conftest import QUICK, SwarmMaker
from .swarm import REPOSITORY, eventually

GUIDE = REPOSITORY / "docs" / "guides" / "drivers.md"


def install(folder: Path) -> None:
    """As a package manager would."""
    blocks = re.findall(r"```(python|toml)\n(# [\w.]+)\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    files = {name.removeprefix("# "): text for _, name, text in blocks}
    (folder / "shouting.py").write_text(files["shouting.py"])
    (folder / "shout.toml").write_text(files["shout.toml"])
    about = folder / "shouting-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: shouting\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[mycel.drivers]\nshout = shouting:Shout\n")


def test_a_task_runs_on_a_worker_that_has_its_driver(
    make_swarm: SwarmMaker, tmp_path: Path
) -> None:
    install(tmp_path)
    swarm = make_swarm()
    path = os.pathsep.join((str(REPOSITORY), str(tmp_path)))
    swarm.environment["PYTHONPATH"] = path
    swarm.up(workers=1)
    done = swarm.mycel("submit", "--wait", str(tmp_path / "shout.toml"))
    assert done.code == 0, done
    task = next(iter(swarm.client.tasks()))
    assert (task.driver, task.command) == ("shout", ["hello", "world"])
    assert task.value == "HELLO WORLD\n"
    assert "shout" in swarm.worker("worker-1").capabilities["drivers"]
    waiting = swarm.client.submit_task(driver="teleport", arguments=["home"])
    explained = eventually(lambda: swarm.client.explain(waiting.id).obstacles, "it is explained")
    assert "needs the driver teleport" in explained[0].reason
    swarm.client.cancel(waiting.id)


def test_a_broken_driver_keeps_its_worker_from_starting(
    make_swarm: SwarmMaker, tmp_path: Path
) -> None:
    install(tmp_path)
    (tmp_path / "shouting.py").write_text("import no_such_module\n")
    swarm = make_swarm(QUICK + 'drivers = ["process", "shout"]\n')
    swarm.environment["PYTHONPATH"] = os.pathsep.join((str(REPOSITORY), str(tmp_path)))
    done = swarm.mycel("up", "--detach", "--workers", "1", "--port", "0")
    assert done.code != 0
    assert "the driver 'shout'" in done.err
    assert "No module named 'no_such_module'" in done.err
