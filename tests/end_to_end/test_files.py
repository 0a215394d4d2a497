"""Files that go with tasks, over real processes and sockets."""

from __future__ import annotations

import itertools
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mycel.blobs import digests
from mycel.client import Client, Invalid, NotFound, Task

from .conftest import SwarmMaker
from .swarm import Swarm


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the user's own, which is where the client is."""
    folder = tmp_path / "user"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


class TestTasks:
    def test_a_command_reads_its_inputs_and_leaves_outputs(self, swarm: Swarm, place: Path) -> None:
        (place / "data").mkdir()
        (place / "data" / "a.txt").write_text("first ")
        (place / "data" / "b.txt").write_text("second")
        (place / "top.txt").write_text("zeroth ")
        task = swarm.client.submit_task(
            command=["sh", "-c", "mkdir out; cat top.txt data/*.txt > out/all; echo x > rest"],
            inputs=["top.txt", "data"],
            outputs=["out/*"],
        )
        found = swarm.client.get(task.id, place / "home")
        assert found == [place / "home" / "out" / "all"]
        assert found[0].read_text() == "zeroth first second"
        assert not (place / "home" / "rest").exists()
        ended = swarm.client.task(task.id)
        assert ended.outputs is not None
        assert (ended.outputs.files, ended.outputs.size) == (1, 19)

    def test_a_function_comes_along_with_its_data(self, swarm: Swarm, place: Path) -> None:
        (place / "brought.py").write_text(
            "def count(path):\n"
            "    text = open(path).read()\n"
            "    open('copy', 'w').write(text)\n"
            "    return len(text)\n"
        )
        (place / "words").write_text("three")
        argument = swarm.client.file("words")
        task = swarm.client.submit_task(
            python="brought:count", arguments=[argument], inputs=["brought.py"], outputs=["copy"]
        )
        assert swarm.client.result(task.id) == 5
        assert [one.read_text() for one in swarm.client.get(task.id, place / "out")] == ["three"]

    def test_what_was_declared_and_is_not_there_fails_the_task(self, swarm: Swarm) -> None:
        task = swarm.client.submit_task(command=["true"], outputs=["missing/*.npy"], wait=30)
        assert task.state == "failed"
        assert "'missing/*.npy'" in (task.error or "")

    def test_a_link_is_not_taken_for_an_output(self, swarm: Swarm) -> None:
        task = swarm.client.submit_task(
            command=["ln", "-s", "/etc/passwd", "out"], outputs=["out"], wait=30
        )
        assert task.state == "failed"
        assert "link" in (task.error or "")

    def test_outputs_stay_with_their_worker_if_the_task_says_so(
        self, swarm: Swarm, place: Path
    ) -> None:
        task = swarm.client.submit_task(
            command=["sh", "-c", "echo big > big"], outputs=["big"], keep="worker", wait=30
        )
        assert task.outputs is not None
        assert swarm.name_of(task.outputs.worker).startswith("worker-")
        digest = digests.of_bytes(b"big\n")
        assert not _object(swarm, "scheduler", digest).exists()
        assert [one.read_text() for one in swarm.client.get(task.id, place)] == ["big\n"]
        again = swarm.client.submit_task(
            command=["cat", "it"], inputs=[{"path": "it", "digest": digest}], wait=30
        )
        assert again.result is not None
        assert again.result.text == "big\n"

    def test_what_a_worker_does_not_keep_any_more_is_gone_and_said_to_be(
        self, make_swarm: SwarmMaker, place: Path
    ) -> None:
        swarm = make_swarm(
            '[worker]\ncpu_cores = 2\n[worker.files]\ncache_size = "3MB"\n'
            'keep_size = "1MB"\nkeep_hours = 0.0001\n'
        )
        swarm.up(workers=1)

        def leave(size: int) -> Task:
            command = ["sh", "-c", f"head -c {size} /dev/urandom > big"]
            return swarm.client.submit_task(
                command=command, outputs=["big"], keep="worker", wait=30
            )

        task = leave(900_000)
        assert task.state == "succeeded", task.error
        refused = leave(1_100_000)
        assert "keep_size" in (refused.error or refused.attempts[-1].error or "")
        (place / "large").write_bytes(os.urandom(2_900_000))
        swarm.client.submit_task(command=["true"], inputs=["large"], wait=30)
        with pytest.raises(NotFound, match="for as long as it had promised"):
            swarm.client.get(task.id, place)

    def test_tasks_go_where_their_files_are(self, make_swarm: SwarmMaker, place: Path) -> None:
        swarm = make_swarm()
        swarm.up(workers=2)
        shapes = itertools.count(1)

        def run(**fields: Any) -> Task:
            """Each of another shape, so that no lease is there for it already."""
            own = {"cpu_cores": 0.05, "min_memory": next(shapes) << 20}
            return swarm.client.submit_task(command=["true"], requirements=own, **fields)

        (place / "weights").write_bytes(os.urandom(3 << 20))
        usual = Counter(run(wait=30).worker or "" for _ in range(5)).most_common(1)[0][0]
        swarm.client.drain(usual)
        holder = run(inputs=["weights"], wait=30).worker
        swarm.client.resume(usual)
        assert holder != usual
        assert {run(inputs=["weights"], wait=30).worker for _ in range(5)} == {holder}


def _object(swarm: Swarm, role: str, digest: str) -> Path:
    name = digest.removeprefix("blake3:")
    return swarm.home / role / "blobs" / "objects" / name[:2] / name[2:]


class TestBlobs:
    def test_a_job_whose_files_are_missing_is_refused_by_name(self, swarm: Swarm) -> None:
        digest = digests.of_bytes(os.urandom(10))
        with pytest.raises(Invalid, match=digest):
            swarm.client.submit_task(command=["true"], inputs=[{"path": "a", "digest": digest}])
        with pytest.raises(Invalid, match=digest):
            swarm.client.submit_job(
                {"command": ["echo"]}, arguments=[[{"$file": digest, "path": "a"}]]
            )

    def test_another_user_needs_the_content_and_not_the_digest(
        self, swarm: Swarm, place: Path
    ) -> None:
        bob = Client(swarm.api, swarm.mycel("user", "add", "eve").out.strip())
        secret = os.urandom(100)
        (place / "secret").write_bytes(secret)
        digest = swarm.client.file("secret")["$file"]
        with pytest.raises(NotFound):
            bob.get(f"/api/v1/blobs/{digest}")
        with pytest.raises(Invalid, match=digest):
            bob.submit_task(command=["cat", "a"], inputs=[{"path": "a", "digest": digest}])
        assert bob.upload({digest: secret}) == 100
        task = bob.submit_task(
            command=["cat", "a"], inputs=[{"path": "a", "digest": digest}], wait=30
        )
        assert task.state == "succeeded"
        bob.close()

    def test_what_is_there_is_not_sent_again(self, swarm: Swarm, place: Path) -> None:
        data = os.urandom(1000)
        digest = digests.of_bytes(data)
        assert swarm.client.upload({digest: data}) == 1000
        assert swarm.client.upload({digest: data}) == 0


class TestCommands:
    def test_where_outputs_cannot_be_written_it_says_so(self, swarm: Swarm, place: Path) -> None:
        (place / "taken").write_text("a file")
        task = swarm.client.submit_task(command=["touch", "out"], outputs=["out"], wait=30)
        for folder in ("taken", "taken/below", "/proc/nowhere"):
            done = swarm.mycel("get", task.id, folder)
            assert (done.code, done.out) == (1, "")
            assert "Traceback" not in done.err
            assert done.err.startswith("mycel: ")
            assert folder in done.err

    def test_run_takes_files_along_and_brings_them_back(self, swarm: Swarm, place: Path) -> None:
        (place / "in.txt").write_text("hello")
        script = "tr a-z A-Z < in.txt > out.txt"
        options = ("--input", "in.txt", "--output", "out.txt")
        done = swarm.mycel("run", *options, "--", "sh", "-c", script)
        assert done.code == 0, done
        assert (place / "out.txt").read_text() == "HELLO"

    def test_submit_sends_what_the_job_names_and_get_brings_outputs(
        self, swarm: Swarm, place: Path
    ) -> None:
        (place / "texts").mkdir()
        for name in ("a", "b"):
            (place / "texts" / f"{name}.txt").write_text(name * 3)
        (place / "tool.sh").write_text('wc -c < "$1" > "$1.count"')
        (place / "job.toml").write_text(
            """
            inputs = { files = "texts/*.txt" }
            [task]
            command = ["sh", "tool.sh"]
            inputs = ["tool.sh"]
            outputs = ["**/*.count"]
            """
        )
        done = swarm.mycel("submit", "--wait", "--json", str(place / "job.toml"))
        assert done.code == 0, done
        got = swarm.mycel("get", f"{done.json['id']}.1", str(place / "home"), "--json")
        assert got.code == 0, got
        assert (place / "home" / "texts" / "b.txt.count").read_text().strip() == "3"
        again = swarm.mycel("get", f"{done.json['id']}.1", str(place / "home"), "--json")
        assert (got.json["received"] > 0, again.json["received"]) == (True, 0)

    def test_get_says_what_is_wrong(self, swarm: Swarm, place: Path) -> None:
        task = swarm.client.submit_task(command=["true"], wait=30)
        done = swarm.mycel("get", task.id)
        assert done.code == 1
        assert "declares no outputs" in done.err
        other = swarm.client.submit_task(command=["sh", "-c", "echo x > a"], outputs=["a"], wait=30)
        (place / "real").mkdir()
        (place / "home").mkdir()
        sneaky = swarm.client.submit_task(
            command=["sh", "-c", "mkdir d; echo x > d/a"], outputs=["d"], wait=30
        )
        (place / "home" / "d").symlink_to(place / "real")
        refused = swarm.mycel("get", sneaky.id, str(place / "home"))
        assert refused.code == 1, refused
        assert "outside" in refused.err
        assert not list((place / "real").iterdir())
        assert swarm.mycel("get", other.id, str(place / "home")).code == 0


class TestGuide:
    """The examples of the guide run as they are printed."""

    @pytest.fixture
    def blocks(self) -> dict[str, str]:
        guide = Path(__file__).parents[2] / "docs" / "guides" / "files.md"
        found = re.findall(r"^```(\w+)\n(.*?)^```$", guide.read_text(), re.MULTILINE | re.DOTALL)
        return dict(found)

    def test_the_job_runs(self, swarm: Swarm, place: Path, blocks: dict[str, str]) -> None:
        (place / "notes").mkdir()
        (place / "notes" / "a.txt").write_text("abc")
        (place / "count.sh").write_text('wc -c < "$1" > "$1.count"')
        (place / "count.toml").write_text(blocks["toml"])
        done = swarm.mycel("submit", "--wait", "--json", str(place / "count.toml"))
        assert done.code == 0, done
        [found] = swarm.client.get(f"{done.json['id']}.0", place / "home")
        assert found.read_text().strip() == "3"

    def test_the_program_runs(
        self,
        swarm: Swarm,
        place: Path,
        blocks: dict[str, str],
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        (place / "README.md").write_text("two words")
        monkeypatch.setenv("MYCEL_HOME", str(swarm.home))
        exec(blocks["python"], {})  # it is the guide's own
        assert capsys.readouterr().out.split() == ["2", "9"]
