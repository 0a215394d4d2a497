"""Files when things break: uploads cut off, stores that are full, workers and schedulers killed."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from mycel.blobs import digests
from mycel.client import ApiError

from .conftest import QUICK, SwarmMaker
from .rest import call
from .swarm import Swarm, eventually


def bearer(swarm: Swarm) -> str:
    return f"Authorization: Bearer {swarm.token}\r\n"


class TestUploads:
    def test_one_that_was_cut_off_goes_on(self, swarm: Swarm) -> None:
        data = os.urandom(3 << 20)
        digest = digests.of_bytes(data)
        place = urlsplit(swarm.api)
        with socket.create_connection((place.hostname or "", place.port or 0)) as connection:
            head = f"PUT /api/v1/blobs/{digest} HTTP/1.1\r\nHost: x\r\n{bearer(swarm)}"
            connection.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode())
            connection.sendall(data[: 2 << 20])
        offset = eventually(
            lambda: swarm.client.upload_offset(digest), "what has come is kept for its user"
        )
        assert 0 < offset <= 2 << 20
        assert swarm.client.upload({digest: data}) == len(data)
        answer = call(swarm, "GET", f"/api/v1/blobs/{digest}", headers={"Range": "bytes=5-9"})
        assert (answer.status, answer.body) == (206, data[5:10])

    def test_what_is_not_what_it_is_called_is_refused(self, swarm: Swarm) -> None:
        digest = digests.of_bytes(b"right")
        with pytest.raises(ApiError, match="something else"):
            swarm.client.upload({digest: b"wrong"})
        assert swarm.client.upload_offset(digest) == 0

    def test_names_that_are_no_digests_are_refused(self, swarm: Swarm) -> None:
        for name in ("md5:0", "blake3:..%2f..%2fetc", "blake3:" + "G" * 64):
            assert call(swarm, "PUT", f"/api/v1/blobs/{name}", "x").status == 422, name

    def test_a_full_store_says_so_and_loses_nothing(self, make_swarm: SwarmMaker) -> None:
        swarm = make_swarm(QUICK + '\n[scheduler.files]\nstore_size = "1MB"\n')
        swarm.up(workers=1)
        first, second, large = (os.urandom(size) for size in (600_000, 600_001, 1_100_000))
        swarm.client.upload({digests.of_bytes(first): first})
        for data, status in ((second, 507), (large, 413)):
            with pytest.raises(ApiError) as refused:
                swarm.client.upload({digests.of_bytes(data): data})
            assert refused.value.status == status
        assert swarm.client.upload({digests.of_bytes(first): first}) == 0
        task = swarm.client.submit_task(
            command=["sh", "-c", "head -c 600000 /dev/urandom > out"],
            outputs=["out"],
            retry={"max_attempts": 1},
        )
        ended = swarm.client.wait(task.id, 60)
        assert ended.state == "failed"
        assert "no room" in (ended.error or "")


class TestDeaths:
    def test_a_task_whose_worker_dies_gets_its_files_elsewhere(
        self, make_swarm: SwarmMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        swarm = make_swarm()
        swarm.up(workers=2)
        (tmp_path / "go").write_text("input")
        gate = tmp_path / "gate"
        script = f"test -e {gate} || {{ touch {gate}; sleep 1000; }}; cp go out"
        task = swarm.client.submit_task(
            command=["sh", "-c", script], inputs=["go"], outputs=["out"]
        )
        eventually(gate.exists, "the task runs")
        running = eventually(
            lambda: swarm.client.task(task.id).worker, "the scheduler knows where it runs"
        )
        name = swarm.name_of(running)
        swarm.kill(name)
        ended = swarm.client.wait(task.id, 60)
        assert ended.state == "succeeded", ended
        assert swarm.name_of(ended.worker) != name
        assert [one.read_text() for one in swarm.client.get(task.id, tmp_path / "home")] == [
            "input"
        ]

    def test_outputs_survive_the_death_of_the_scheduler_that_takes_them(
        self, make_swarm: SwarmMaker, tmp_path: Path
    ) -> None:
        swarm = make_swarm()
        swarm.up(workers=1)
        size = 200 << 20
        task = swarm.client.submit_task(
            command=["sh", "-c", f"head -c {size} /dev/zero | tr '\\0' x > out"], outputs=["out"]
        )
        partial = swarm.home / "scheduler" / "blobs" / "partial"
        eventually(lambda: any(partial.iterdir()), "the output is on its way", 60)
        swarm.kill("scheduler", signal.SIGKILL)
        before = [path.stat().st_size for path in partial.iterdir()]
        swarm.up()
        ended = swarm.client.wait(task.id, 60)
        assert ended.state == "succeeded", ended
        assert len(ended.attempts) == 1, "it was done already"
        assert ended.outputs is not None
        assert ended.outputs.size == size
        assert before, "the scheduler died in the middle"
        [found] = swarm.client.get(task.id, tmp_path / "home")
        assert found.stat().st_size == size

    def test_a_worker_that_comes_back_still_has_what_it_had(
        self, make_swarm: SwarmMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        swarm = make_swarm()
        swarm.up(workers=1)
        (tmp_path / "data").write_bytes(os.urandom(100_000))
        body: dict[str, Any] = {"command": ["wc", "-c", "data"], "inputs": ["data"]}
        swarm.client.result(swarm.client.submit_task(**body).id, 60)
        swarm.kill("worker-1")
        eventually(lambda: swarm.worker_state("worker-1") != "healthy", "its death is seen")
        swarm.up()
        sent = _sent(swarm)
        swarm.client.result(swarm.client.submit_task(**body).id, 60)
        assert _sent(swarm) == sent


def _sent(swarm: Swarm) -> str:
    lines = swarm.client.metrics().splitlines()
    return next(line for line in lines if line.startswith('mycel_blob_bytes_total{way="sent"}'))
