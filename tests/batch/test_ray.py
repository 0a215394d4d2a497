"""Ray behind the interface: its answers, and a real one where MYCEL_RAY names its program."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from mycel.batch.batch_system import Submission
from mycel.batch.errors import BatchError
from mycel.batch.ray.ray_system import JOBS, STATUS, RaySystem
from mycel.core.agent.batch_jobs import BatchFailure, BatchState, ClusterJob
from tests.end_to_end.swarm import REPOSITORY
from tests.network.namespaces import Machine, why_unavailable


@pytest.mark.skipif("MYCEL_RAY" not in os.environ, reason="MYCEL_RAY names no program of Ray")
def test_a_real_ray_keeps_the_promises() -> None:
    if reason := why_unavailable():
        pytest.skip(reason)
    machine = Machine("ray")
    try:
        # The paths of its sockets have to be short.
        with tempfile.TemporaryDirectory(prefix="r") as folder:
            done = subprocess.run(
                machine.prefixed(
                    sys.executable, "-m", "tests.batch.ray_trial", os.environ["MYCEL_RAY"], folder
                ),
                cwd=REPOSITORY,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=900,
            )
            print(done.stdout)
            assert done.returncode == 0, done.stdout
    finally:
        machine.remove()


USAGE = {
    "data": {"clusterStatus": {"loadMetricsReport": {"usage": {"CPU": [1.0, 4.0], "GPU": [0, 1]}}}}
}
"""As Ray 2.60 answers, without what is not read."""
NEW_STATUS = b'[{"submission_id": "a.1", "status": "NEW"}]'
Answers = dict[str, tuple[int, bytes]]


@pytest.fixture
def answers() -> Iterator[tuple[str, Answers]]:
    """A server that answers by path what the test puts there."""
    found: Answers = {STATUS: (200, json.dumps(USAGE).encode()), JOBS: (200, b"[]")}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = found[self.path]
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"] or 0))
            self.do_GET()

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", found
        server.shutdown()


def submission(folder: Path, **needs: Any) -> Submission:
    job = ClusterJob(command=("true",), **needs).checked()
    return Submission(name="mycel-a", job=job, script="#!/bin/sh\n", folder=folder)


def failure(system: RaySystem, wanted: Submission) -> BatchFailure:
    with pytest.raises(BatchError) as caught:
        system.submit(wanted)
    assert str(caught.value)
    return caught.value.failure


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (400, b"bad entrypoint", BatchFailure.REFUSED),
        (500, b"Traceback: ...", BatchFailure.NONSENSE),
        (302, b"", BatchFailure.NONSENSE),
    ],
)
def test_what_ray_answers_tells_whether_to_ask_again(
    answers: tuple[str, Answers], tmp_path: Path, status: int, body: bytes, expected: BatchFailure
) -> None:
    address, said = answers
    said[JOBS] = (status, body)
    assert failure(RaySystem(address), submission(tmp_path)) is expected


def test_a_submission_that_is_there_already_counts_as_arrived(
    answers: tuple[str, Answers], tmp_path: Path
) -> None:
    address, said = answers
    said[JOBS] = (400, b"ValueError: Job with submission_id mycel-a.0 already exists.")
    assert RaySystem(address).submit(submission(tmp_path)) == "mycel-a"


@pytest.mark.parametrize(
    "needs", [{"cores_per_task": 5}, {"gpus_per_node": 2}, {"nodes": 2}, {"partition": "main"}]
)
def test_what_ray_would_let_wait_for_ever_is_refused(
    answers: tuple[str, Answers], tmp_path: Path, needs: dict[str, Any]
) -> None:
    system, wanted = RaySystem(answers[0]), submission(tmp_path, **needs)
    assert failure(system, wanted) is BatchFailure.REFUSED
    estimate = system.estimate(wanted)
    assert estimate is not None
    assert estimate.refusal


def test_jobs_of_others_are_passed_over(answers: tuple[str, Answers]) -> None:
    address, said = answers
    jobs = [
        {"submission_id": "mycel-a.3", "status": "RUNNING"},
        {"submission_id": "raysubmit_x", "status": "RUNNING"},
        {"submission_id": None, "status": "RUNNING"},
        {"submission_id": "other.1", "status": "PENDING"},
    ]
    said[JOBS] = (200, json.dumps(jobs).encode())
    found = RaySystem(address).queue("mycel-")
    assert [(one.name, one.index, one.state) for one in found] == [
        ("mycel-a", 3, BatchState.RUNNING)
    ]
    assert RaySystem(address).capacity().pending == 1


def test_a_cancel_is_left_for_a_job_that_waits(
    answers: tuple[str, Answers], tmp_path: Path
) -> None:
    """Ray stops a waiting job only when it has started."""
    address, said = answers
    job = {"status": "PENDING", "metadata": {"mycel_folder": str(tmp_path)}}
    jobs = [{"submission_id": f"mycel-{name}.0", **job} for name in "ab"]
    said[JOBS] = (200, json.dumps(jobs).encode())
    said[f"{JOBS}mycel-a.0/stop"] = (200, b'{"stopped": true}')
    RaySystem(address).cancel(["mycel-a"])
    assert [path.name for path in tmp_path.iterdir()] == ["mycel-a.cancelled"]


@pytest.mark.parametrize("body", [b"{}", b"[1]", b"nonsense", b"\xff", NEW_STATUS])
def test_a_list_that_cannot_be_read_is_nonsense(answers: tuple[str, Answers], body: bytes) -> None:
    address, said = answers
    said[JOBS] = (200, body)
    with pytest.raises(BatchError) as caught:
        RaySystem(address).queue("")
    assert caught.value.failure is BatchFailure.NONSENSE


def test_a_ray_that_is_not_there_is_down(tmp_path: Path) -> None:
    with socket.socket() as held:  # bound, and not listening
        held.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{held.getsockname()[1]}"
        assert failure(RaySystem(address), submission(tmp_path)) is BatchFailure.DOWN


def test_a_ray_that_hangs_is_slow(tmp_path: Path) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        address = f"http://127.0.0.1:{held.getsockname()[1]}"
        system = RaySystem(address, seconds=0.2)
        assert failure(system, submission(tmp_path)) is BatchFailure.SLOW


@pytest.mark.parametrize("address", ["", "https://a", "ray://a:1", "http://"])
def test_an_address_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", address or "nonsense")
    with pytest.raises(BatchError):
        RaySystem()
