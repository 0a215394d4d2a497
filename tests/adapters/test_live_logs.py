"""What tasks write while they run: kept in bounded files, and followed over the API."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any

from mycel.client import Client
from mycel.core.effects import TaskWrote
from mycel.core.identifiers import JobId
from mycel.core.messages import Text
from mycel.drivers.python.live_output import LIVE_BYTES_MAX, LiveOutput
from mycel.roles.worker.output_allowance import BYTES_AT_ONCE, BYTES_PER_SECOND, Allowance
from mycel.store.live_logs import LiveLogs, Stretch, joined

from .api_access import TOKEN
from .api_calls import AUTHORIZED, call, submit
from .api_scheduler import SETTINGS
from .api_server import Served


def logs_in(folder: Path, **limits: int) -> LiveLogs:
    return LiveLogs(folder / "journal.db", **limits)


def text(data: bytes, offset: int = 0, number: int = 1, stream: int = 1) -> Stretch:
    return Stretch(number, stream, offset, data)


# The files


def test_what_was_written_is_there_after_a_restart(tmp_path: Path) -> None:
    logs = logs_in(tmp_path)
    logs.write("job", 3, text(b"one "))
    logs.write("job", 3, text(b"oh", stream=2))
    logs.write("job", 3, text(b"two", 4))
    again = logs_in(tmp_path)
    assert joined(again.read("job", 3), 1) == b"one two"
    assert joined(again.read("job", 3), 2) == b"oh"
    assert again.indices("job") == [3]


def test_a_gap_is_said(tmp_path: Path) -> None:
    logs = logs_in(tmp_path)
    logs.write("job", 0, text(b"begin"))
    logs.write("job", 0, text(b"end", 1005))
    assert joined(logs.read("job", 0), 1) == b"begin\n... 1000 bytes left out ...\nend"


def test_each_attempt_has_its_own(tmp_path: Path) -> None:
    logs = logs_in(tmp_path)
    logs.write("job", 0, text(b"first"))
    logs.write("job", 0, text(b"second", number=2))
    assert joined(logs.read("job", 0), 1) == b"second"
    assert joined(logs.read("job", 0, 1), 1) == b"first"
    assert logs.read("job", 0, 7) == []


def test_a_task_that_writes_too_much_is_not_kept_further(tmp_path: Path) -> None:
    logs = logs_in(tmp_path, task_bytes_max=100)
    assert logs.write("job", 0, text(b"x" * 50))
    assert not logs.write("job", 0, text(b"y" * 50, 50))
    assert joined(logs.read("job", 0), 1) == b"x" * 50


def test_all_together_are_bounded_and_the_oldest_go_first(tmp_path: Path) -> None:
    logs = logs_in(tmp_path, all_bytes_max=150)
    for index in range(3):
        logs.write("job", index, text(b"x" * 50))
    assert logs.indices("job") == [1, 2]
    assert len(list(tmp_path.rglob("0.1"))) == 0


def test_what_is_dropped_or_forgotten_leaves_no_file(tmp_path: Path) -> None:
    logs = logs_in(tmp_path)
    logs.write("job", 0, text(b"x"))
    logs.write("job", 1, text(b"x"))
    logs.write("other", 0, text(b"x"))
    logs.drop("job", 0)
    logs.forget("other")
    assert logs.read("job", 0) == []
    logs.forget("job")
    assert list((tmp_path / "journal.db.live").iterdir()) == []


def test_a_file_that_a_crash_has_cut_ends_before_the_cut(tmp_path: Path) -> None:
    logs = logs_in(tmp_path)
    logs.write("job", 0, text(b"whole"))
    logs.write("job", 0, text(b"cut off", 5))
    path = tmp_path / "journal.db.live" / "job" / "0.1"
    path.write_bytes(path.read_bytes()[:-3])
    assert joined(logs_in(tmp_path).read("job", 0), 1) == b"whole"


# How much is told


def test_what_is_too_much_at_once_is_left_out() -> None:
    output = LiveOutput(b"before", 6)
    output.write(b"x" * (LIVE_BYTES_MAX - 6))
    output.write(b"more")
    assert output.take() == (0, b"before" + b"x" * (LIVE_BYTES_MAX - 6))
    output.write(b"again")
    assert output.take() == (LIVE_BYTES_MAX + 4, b"again")
    assert output.take()[1] == b""


def test_a_worker_tells_so_much_a_second() -> None:
    allowance = Allowance()
    much = Text(1, 1, 0, b"x" * BYTES_AT_ONCE)  # type: ignore[arg-type]
    little = Text(1, 1, 0, b"x")  # type: ignore[arg-type]
    assert allowance.allowed([much, little], 100.0) == [much]
    assert allowance.allowed([much, little], 100.0 + 2 / BYTES_PER_SECOND) == [little]


# Over the API


class Following:
    def __init__(self, server: Served, path: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        self._connection.request("GET", path, headers=AUTHORIZED)
        self.response = self._connection.getresponse()
        assert self.response.status == 200, self.response.read()

    def next(self) -> tuple[str, Any]:
        kind = self.response.readline().decode().removeprefix("event: ").strip()
        data = self.response.readline().decode().removeprefix("data: ")
        self.response.readline()
        return kind, json.loads(data)


def live_task(server: Served, *stretches: Stretch) -> tuple[str, JobId]:
    task = submit(server, {"python": "waits:here"})
    job = JobId(task["job_id"])
    for stretch in stretches:
        write(server, job, stretch)
    return task["id"], job


def write(server: Served, job: JobId, stretch: Stretch) -> None:
    place = (stretch.number, stretch.stream, stretch.offset)
    server.call(lambda: server.backend.wrote(TaskWrote(job, 0, *place, stretch.data)))


def end(server: Served, job: JobId) -> None:
    held = server.backend.jobs_by_id[job]
    server.call(lambda: server.backend.end(held, 0))


def test_logs_of_a_running_task_are_what_has_come_so_far(server: Served) -> None:
    task, _ = live_task(server, text(b"so far\n"), text(b"oh\n", stream=2))
    logs = call(server, "GET", f"/api/v1/tasks/{task}/logs").json
    assert logs == {"stdout": "so far\n", "stderr": "oh\n", "complete": False}
    assert call(server, "GET", f"/api/v1/tasks/{task}/logs?stream=stdout").body == b"so far\n"


def test_logs_of_a_task_whose_worker_was_lost_are_what_was_heard(server: Served) -> None:
    task, _ = live_task(server, text(b"last words\n"))
    for _ in range(SETTINGS.retry.max_attempts):
        server.call(server.backend.lose_worker)
    logs = call(server, "GET", f"/api/v1/tasks/{task}/logs").json
    assert logs == {"stdout": "last words\n", "stderr": ""}


def test_logs_are_followed_from_the_beginning_to_the_end(server: Served) -> None:
    task, job = live_task(server, text(b"one\n"))
    following = Following(server, f"/api/v1/tasks/{task}/logs?follow")
    about = {"task_id": task, "attempt": 1, "stream": "stdout"}
    assert following.next() == ("log", {**about, "text": "one\n"})
    write(server, job, text(b"ne\ntwo\n", 1))
    assert following.next() == ("log", {**about, "text": "two\n"})
    write(server, job, text(b"three\n", 18))
    assert following.next() == ("log", {**about, "left_out_bytes": 10})
    assert following.next() == ("log", {**about, "text": "three\n"})
    write(server, job, text(b"anew\n", number=2))
    assert following.next() == ("log", {**about, "attempt": 2, "text": "anew\n"})
    end(server, job)
    kind, ended = following.next()
    assert (kind, ended["state"], ended["task_id"]) == ("end", "succeeded", task)
    assert following.response.read() == b""


def test_text_is_cut_between_characters_and_bytes_come_exactly(server: Served) -> None:
    task, job = live_task(server)
    following = Following(server, f"/api/v1/tasks/{task}/logs?follow")
    letter = "é".encode()
    write(server, job, text(b"caf" + letter[:1]))
    assert following.next()[1]["text"] == "caf"
    write(server, job, text(letter[1:], 4))
    assert following.next()[1]["text"] == "é"
    write(server, job, text(b"\xff\xfe", 5))
    assert following.next()[1]["base64"] == "//4="
    end(server, job)


def test_one_stream_is_followed_as_it_is(server: Served) -> None:
    task, job = live_task(server, text(b"one "), text(b"oh", stream=2))
    following = Following(server, f"/api/v1/tasks/{task}/logs?follow&stream=stdout")
    assert following.response.read(4) == b"one "
    write(server, job, text(b"\xfftwo", 4))
    end(server, job)
    assert following.response.read() == b"\xfftwo"


def test_a_client_follows_a_job(server: Served) -> None:
    task, job = live_task(server, text(b"one\n"))
    with Client(f"http://127.0.0.1:{server.port}", TOKEN) as client:
        pieces = client.follow_logs(job)
        first = next(pieces)
        end(server, job)
        assert list(pieces) == []
    assert (first.task_id, first.data) == (task, b"one\n")


def test_a_job_without_follow_is_refused(server: Served) -> None:
    _, job = live_task(server)
    answer = call(server, "GET", f"/api/v1/jobs/{job}/logs")
    assert answer.status == 422
    assert "?follow" in answer.json["detail"]


def test_unknown_tasks_and_jobs_cannot_be_followed(server: Served) -> None:
    unknown = "01arz3ndektsv4rrffq69g5fav"
    assert call(server, "GET", f"/api/v1/tasks/{unknown}.0/logs?follow").status == 404
    assert call(server, "GET", f"/api/v1/jobs/{unknown}/logs?follow").status == 404
