"""Files of tasks that run in the sandbox, where they see nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from .conftest import QUICK, SwarmMaker
from .swarm import Swarm

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


@pytest.fixture
def confined(make_swarm: SwarmMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Swarm:
    """One worker, which shares a folder."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "corpus").write_text("shared text")
    (tmp_path / "user").mkdir()
    monkeypatch.chdir(tmp_path / "user")
    swarm = make_swarm(f"{QUICK}shared_paths = ['{tmp_path}/shared']\n")
    swarm.environment["MYCEL_WORKER__SANDBOX"] = "required"
    swarm.up(workers=1)
    return swarm


def test_a_command_and_a_function_get_their_files(confined: Swarm, tmp_path: Path) -> None:
    user = tmp_path / "user"
    (user / "data").mkdir()
    (user / "data" / "in").write_text("input")
    script = user / "tool"
    script.write_text("#!/bin/sh\nmkdir out && tr a-z A-Z < data/in > out/result && rm data/in\n")
    script.chmod(0o755)
    task = confined.client.submit_task(
        command=["./tool"], inputs=["data", "tool"], outputs=["out"], sandbox="required"
    )
    assert [one.read_text() for one in confined.client.get(task.id, user / "home")] == ["INPUT"]
    (user / "brought.py").write_text(
        "def work(path):\n"
        "    text = open(path).read()\n"
        "    open('left', 'w').write(text[::-1])\n"
        "    return text\n"
    )
    call = confined.client.submit_task(
        python="brought:work",
        arguments=[confined.client.file("data/in")],
        inputs=["brought.py"],
        outputs=["left"],
        sandbox="required",
    )
    assert confined.client.result(call.id, 60) == "input"
    assert [one.read_text() for one in confined.client.get(call.id, user / "home")] == ["tupni"]


def test_what_a_task_does_to_its_copy_of_an_input_nobody_else_sees(
    confined: Swarm, tmp_path: Path
) -> None:
    user = tmp_path / "user"
    (user / "book").write_text("first\n")
    append = ["sh", "-c", "echo more >> book && chmod 600 book && cat book"]
    for _ in range(2):
        task = confined.client.submit_task(command=append, inputs=["book"], wait=60)
        assert task.result is not None, task
        assert task.result.text == "first\nmore\n", task.error
    (user / "writer.py").write_text(
        "def write(path):\n"
        "    with open(path, 'a') as file:\n"
        "        file.write('more')\n"
        "    return open(path).read()\n"
    )
    for _ in range(2):
        call = confined.client.submit_task(
            python="writer:write", arguments=[confined.client.file("book")], inputs=["writer.py"]
        )
        assert confined.client.result(call.id, 60) == "first\nmore"


def test_a_shared_path_can_be_read_and_others_cannot_be_named(
    confined: Swarm, tmp_path: Path
) -> None:
    shared = {"path": "corpus", "shared": str(tmp_path / "shared" / "corpus")}
    task = confined.client.submit_task(command=["cat", "corpus"], inputs=[shared], wait=60)
    assert task.result is not None, task
    assert task.result.text == "shared text"
    private = {"path": "key", "shared": str(confined.home / "owner.key")}
    refused = confined.client.submit_task(
        command=["cat", "key"], inputs=[private], retry={"max_attempts": 1}, wait=60
    )
    assert refused.state == "failed"
    assert "shared_paths" in (refused.error or "")


def test_a_function_by_value_in_the_sandbox(
    confined: Swarm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path / "user")
    (tmp_path / "user" / "walled.py").write_text("def length(data): return len(data)\n")
    import walled  # type: ignore[import-not-found]

    content = bytes(3_000_000)  # by blob, there and back
    assert confined.client.run(walled.length, content) == len(content)
    assert confined.client.run(lambda data: data + b"!", content) == content + b"!"
    secret = tmp_path / "home" / "token"
    assert secret.exists()
    assert confined.client.run(lambda path: Path(path).exists(), str(secret)) is False
