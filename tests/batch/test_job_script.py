"""The script of an attempt, run by a plain shell: it runs once, and says how it ended."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from mycel.batch.job_script import NO_CLAIM, job_script
from mycel.batch.shared_folder import SharedFolder, ShareGone
from mycel.core.agent.attempts import ElementSeen
from mycel.core.agent.batch_jobs import ClusterJob, JobRefused
from tests.end_to_end.swarm import eventually


def job(*command: str, elements: int = 0, **environment: str) -> ClusterJob:
    return ClusterJob(command=command, elements=elements, environment=environment).checked()


def run(shared: Path, wanted: ClusterJob, attempt: str = "a1", element: int = 0) -> int:
    script = job_script(attempt, wanted, shared)
    environment = {"PATH": "/usr/bin:/bin", "MYCEL_ELEMENT": str(element)}
    return subprocess.run(["/bin/sh", "-c", script], env=environment, cwd=shared).returncode


def test_output_exit_code_and_files_are_left(tmp_path: Path) -> None:
    shared = SharedFolder(tmp_path / "shared")
    wanted = job("sh", "-c", 'echo "$WORD"; echo oh >&2; echo x > made; exit 7', WORD="it's $HOME")
    assert run(shared.path, wanted) == 7
    assert shared.look("a1", wanted) == (ElementSeen(claimed=True, exit_code=7),)
    claim = shared.claim("a1", wanted, 0)
    assert (claim / "stdout").read_text() == "it's $HOME\n"
    assert (claim / "stderr").read_text() == "oh\n"
    assert (claim / "work" / "made").read_text() == "x\n"
    assert [name for name, _ in shared.files("a1", wanted)] == ["stdout", "stderr", "work"]


def test_a_second_copy_stops_and_touches_nothing(tmp_path: Path) -> None:
    wanted = job("sh", "-c", f"echo ran >> {tmp_path}/log; exit 3")
    assert run(tmp_path, wanted) == 3
    assert run(tmp_path, wanted) == 0
    assert (tmp_path / "log").read_text() == "ran\n"
    assert (tmp_path / "a1" / "exit_code").read_text() == "3\n"


def test_elements_of_an_array_have_claims_of_their_own(tmp_path: Path) -> None:
    shared = SharedFolder(tmp_path)
    wanted = job("sh", "-c", "exit $MYCEL_ELEMENT", elements=3)
    for element in (2, 0):
        run(tmp_path, wanted, element=element)
    assert [seen.exit_code for seen in shared.look("a1", wanted)] == [0, None, 2]


@pytest.mark.parametrize("word", ["FOO=bar", "if", "a;b", "$(touch oops)", "it's", "*"])
def test_a_command_is_no_shell_text(tmp_path: Path, word: str) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / word).write_text('#!/bin/sh\necho "$1"\n')
    (folder / word).chmod(0o755)
    wanted = job(word, "$HOME; `id`", PATH=f"{folder}:/usr/bin:/bin")
    assert run(tmp_path, wanted) == 0
    assert (tmp_path / "a1" / "stdout").read_text() == "$HOME; `id`\n"


def test_a_fenced_attempt_never_runs(tmp_path: Path) -> None:
    shared = SharedFolder(tmp_path / "shared")
    wanted = job("sh", "-c", f"echo ran >> {tmp_path}/log")
    assert shared.fence("a1", wanted) == {0}
    assert shared.fence("a1", wanted) == {0}, "a fence is still known for one after a crash"
    assert run(shared.path, wanted) == 0
    assert not (tmp_path / "log").exists()
    assert shared.look("a1", wanted) == (ElementSeen(claimed=False),)


def test_what_has_begun_cannot_be_fenced(tmp_path: Path) -> None:
    shared = SharedFolder(tmp_path / "shared")
    wanted = job("true", elements=2)
    run(shared.path, wanted, element=1)
    assert shared.fence("a1", wanted) == {0}
    shared.remove("a1", wanted)
    assert not list(shared.files("a1", wanted))
    assert run(shared.path, job("false", elements=2), element=1) == 0, "the claim is still there"


def test_a_shared_folder_that_is_not_mounted_says_nothing_of_claims(tmp_path: Path) -> None:
    wanted = job("true")
    shared = SharedFolder(tmp_path / "shared", "mark")
    assert run(shared.path, wanted) == 0
    shared.path.rename(tmp_path / "elsewhere")
    shared.path.mkdir()  # the place where it would be mounted
    for ask in (shared.look, shared.fence):
        with pytest.raises(ShareGone):
            ask("a1", wanted)
    with pytest.raises(ShareGone):
        SharedFolder(shared.path, "mark", is_new=False)
    shared.path.rmdir()
    (tmp_path / "elsewhere").rename(shared.path)
    assert shared.fence("a1", wanted) == frozenset()


def test_a_shared_folder_that_is_not_there_is_no_claim(tmp_path: Path) -> None:
    assert run(tmp_path, job("true"), attempt="no/such") == NO_CLAIM


def test_a_command_that_is_told_to_end_still_leaves_its_exit_code(tmp_path: Path) -> None:
    wanted = job(
        "sh", "-c", "trap 'sleep 0.3; exit 9' TERM; echo > began; while :; do sleep 0.1; done"
    )
    script = job_script("a1", wanted, tmp_path)
    with subprocess.Popen(["/bin/sh", "-c", script], env={"PATH": "/usr/bin:/bin"}) as process:
        eventually((tmp_path / "a1" / "work" / "began").exists, "it begins")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 9
    assert (tmp_path / "a1" / "exit_code").read_text() == "9\n"


@pytest.mark.parametrize(
    ("field", "wanted"),
    [
        ("command", ClusterJob(command=())),
        ("command", ClusterJob(command=("-x",))),
        ("command", ClusterJob(command=("a\0b",))),
        ("command", ClusterJob(command=("\ud800",))),
        ("command", ClusterJob(command=("x" * (1 << 20), "y"))),
        ("environment", ClusterJob(command=("a",), environment={"A B": "c"})),
        ("environment", ClusterJob(command=("a",), environment={"1": "c"})),
        ("environment", ClusterJob(command=("a",), environment={"": "c"})),
        ("nodes", ClusterJob(command=("a",), nodes=0)),
        ("seconds", ClusterJob(command=("a",), seconds=10**12)),
        ("elements", ClusterJob(command=("a",), elements=-1)),
        ("partition", ClusterJob(command=("a",), partition="--wrap=x")),
        ("account", ClusterJob(command=("a",), account="a b")),
        ("qos", ClusterJob(command=("a",), qos="q\n")),
    ],
)
def test_a_job_that_nothing_could_run_is_refused_with_the_field(
    field: str, wanted: ClusterJob
) -> None:
    with pytest.raises(JobRefused) as caught:
        wanted.checked()
    assert caught.value.field == field
