"""Containers through a real swarm, with a podman of the test's own."""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mycel.drivers.container.container_engine import Engine
from tests.adapters.drivers import podman
from tests.adapters.drivers.podman import IMAGE

from .conftest import QUICK, SwarmMaker
from .swarm import REPOSITORY, Swarm, eventually

SOURCES = REPOSITORY / "src"
REASON = podman.missing()
pytestmark = pytest.mark.skipif(bool(REASON), reason=REASON)


@pytest.fixture
def engine() -> Iterator[Engine]:
    with tempfile.TemporaryDirectory(prefix="mycel-") as name:
        made = podman.private_engine(Path(name))
        podman.import_image(made, Path(name))
        yield made


@pytest.fixture
def swarm(make_swarm: SwarmMaker, engine: Engine, tmp_path: Path) -> Swarm:
    options = ", ".join(f'"{option}"' for option in engine.options)
    allowed = ", ".join(f'"{path}"' for path in (tmp_path, "/usr", sys.base_prefix, SOURCES))
    made = make_swarm(
        f"{QUICK}allow_mounts = [{allowed}]\n[worker.containers]\noptions = [{options}]\n"
    )
    made.up(workers=1)
    return made


def test_a_container_from_its_submission_to_its_result(
    swarm: Swarm, engine: Engine, tmp_path: Path
) -> None:
    assert "container" in swarm.worker("worker-1").capabilities["drivers"]
    done = swarm.mycel("run", "--image", IMAGE, "--env", "A=b", "--", "sh", "-c", "echo $A; exit 3")
    assert (done.code, done.out) == (3, "b\n"), done
    (tmp_path / "seen").mkdir()
    mounts = [f"{tmp_path}/seen:/seen"]
    # It sleeps until its worker and everything that could end it in order are gone.
    script = "echo $MYCEL_ATTEMPT >> /seen/attempts; test $MYCEL_ATTEMPT = 2 || sleep 1000"
    task = swarm.client.submit_task(image=IMAGE, command=["sh", "-c", script], mounts=mounts)
    eventually((tmp_path / "seen" / "attempts").exists, "it runs")
    swarm.kill("worker-1", signal.SIGKILL)
    swarm.up()
    task = swarm.client.wait(task.id, 60)
    assert (task.state, task.image) == ("succeeded", IMAGE), task.error
    assert podman.call(engine, "ps", "--all", "--quiet") == ""
    missing = swarm.client.submit_task(image="localhost/nothing:1", command=["true"], wait=30)
    assert missing.state in ("failed", "queued")
    eventually(
        lambda: "cannot be fetched" in str(swarm.client.task(missing.id).attempts), "it says why"
    )


def test_a_container_reports_and_finds_its_checkpoint(swarm: Swarm, engine: Engine) -> None:
    script = """
import mycel.task, os, sys
left = mycel.task.restore()
mycel.task.progress(0.5, "half", tries=int(os.environ["MYCEL_ATTEMPT"]))
mycel.task.checkpoint(b"so far", wait=True)
print(left)
sys.exit(left is None)
"""
    # The machine's Python, and what it is linked with: the image has none.
    mounts = [f"{path}:{path}:ro" for path in ("/usr", "/lib", "/lib64", sys.base_prefix)]
    task = swarm.client.submit_task(
        image=IMAGE,
        command=[f"{sys.base_prefix}/bin/python3", "-c", script],
        env={"PYTHONPATH": str(SOURCES)},
        mounts=[*dict.fromkeys(mounts), f"{SOURCES}:{SOURCES}:ro"],
        retry={"max_attempts": 2, "on_error": True},
        wait=60,
    )
    assert task.state == "succeeded", (task.error, swarm.client.logs(task.id))
    assert [one.state for one in task.attempts] == ["failed", "succeeded"]
    assert (task.progress, task.message, task.metrics) == (0.5, "half", {"tries": 2.0})
    assert swarm.client.logs(task.id).stdout == "b'so far'\n"
