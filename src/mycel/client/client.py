"""`Client`: what programs and the command line ask of a swarm."""

from __future__ import annotations

import base64
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import quote, urlencode

import msgspec

from mycel.core.identifiers import ulid

from .batches import outline, split
from .connection import Connection
from .endpoint import Endpoint, Wanted, of_home
from .endpoint import find as find_endpoint
from .errors import Busy, ClientError, ConnectionLost
from .event_stream import Event, read_events
from .functions.values import MARK, json_arguments, received
from .json_body import encode
from .responses import (
    Explanation,
    Job,
    JobPage,
    LogPiece,
    Logs,
    Preview,
    Result,
    Task,
    TaskPage,
    TaskResult,
    Worker,
    WorkerPage,
)
from .session import ANSWER_SECONDS, WAIT_SECONDS, Session

if TYPE_CHECKING:
    from .blob_transfers import Moved
    from .functions.futures import Future
    from .functions.mapping import Mapping as Mapped
    from .functions.submitter import Submitter
    from .job_inputs import Source

PATIENCE_SECONDS: Final = 600.0
"""So long a batch is offered again while the scheduler's queue is full."""
_decode_lines: Final = msgspec.json.Decoder(Result).decode_lines
Function = str | Callable[..., Any]
Progress = Callable[[int], None]
"""Is told how many tasks have been sent so far."""


class Client:
    """Thread-safe. Ids of jobs and tasks are given in full; `find_jobs` completes prefixes."""

    def __init__(
        self,
        api: str | Endpoint | None = None,
        token: str | None = None,
        *,
        context: str | None = None,
        home: str | Path | None = None,
        ca_file: str | Path | None = None,
    ) -> None:
        """Of the swarm that the command line talks to. What is given here goes first, then
        `MYCEL_API` and `MYCEL_TOKEN`, then the last `mycel login`, then this machine's swarm.

        `ca_file` has the certificates that an https:// address is held against; without it
        `MYCEL_CA_FILE` names it, or the system's are taken."""
        if not isinstance(api, Endpoint):
            api = find_endpoint(Wanted(api, token, context, home, ca_file), os.environ)
        self._session = Session(api.address, api.token)
        self._submitter: Submitter | None = None
        self._starting = threading.Lock()

    @classmethod
    def from_home(cls, home: str | Path | None = None, token: str | None = None) -> Self:
        """Of the swarm that `mycel up` started with this home folder, with the home's token
        unless another is given."""
        return cls(of_home(home, token, os.environ))

    @property
    def api(self) -> str:
        return self._session.address.text

    def close(self) -> None:
        """What was submitted is sent first, and goes on."""
        if self._submitter is not None:
            self._submitter.close()
        self._session.close()

    @property
    def _calls(self) -> Submitter:
        with self._starting:
            if self._submitter is None:
                from .functions.submitter import Submitter

                self._submitter = Submitter(self)
            return self._submitter

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def id_of_key(self, key: str) -> str:
        """Of a job: the same for the same key, wherever the bearer of this token submits it."""
        return ulid(0, self._session.digest(key)[:10])

    # Tasks

    def submit(self, function: Function, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Calls a function on a worker: any function, by value, or `"module:function"`, which the
        worker has to have. `mycel.task` says what it needs there."""
        return self._calls.submit(function, args, kwargs)

    def run(self, function: Function, /, *args: Any, **kwargs: Any) -> Any:
        """Calls a function on a worker, and returns its value."""
        return self._calls.run(function, args, kwargs)

    def map(self, function: Function, /, *iterables: Iterable[Any]) -> Mapped:
        """Calls a function on the workers, once for each element; yields the values in the
        elements' order, and raises the first failure in its place. Submission begins at once;
        closing the iterator cancels what is left.

        For `"module:function"` an element that is a list or tuple is positional arguments, and a
        dict named ones.
        """
        from .functions.mapping import Mapping as Mapped
        from .functions.options import parted

        bare, options = parted(function)
        if isinstance(bare, str) and len(iterables) == 1:
            return Mapped(self._calls, bare, options, iterables[0])
        return Mapped(self._calls, bare, options, zip(*iterables, strict=False))

    def submit_task(
        self, *, wait: float | None = None, idempotency_key: str | None = None, **task: Any
    ) -> Task:
        """Submits one task, named by the fields of the REST API:
        `submit_task(python="module:function", arguments=[1])`,
        `submit_task(command=["echo", "a"])`. `environment` may be a `Path`: the file's content
        travels.

        `inputs` are files and folders of this machine, `outputs` patterns of what comes back:
        `submit_task(command=[…], inputs=["data.csv"], outputs=["*.png"])`; `get` brings them here.
        The `input` of a model may be a `Path`: the model gets what is in that file.

        With `wait` it answers when the task has ended, or after so many seconds (at most 60)
        with the task as it then is.
        """
        if task.get("inputs") or isinstance(task.get("input"), Path):
            task = self._bring_inputs(task, Path.cwd())
        if "arguments" in task:
            task["arguments"] = json_arguments(task["arguments"])
        target = "/api/v1/tasks" if not wait else f"/api/v1/tasks?wait={wait:g}"
        headers = f"Idempotency-Key: {idempotency_key}\r\n" if idempotency_key else ""
        body = encode(_with_text(task))
        return self._session.ask(Task, "POST", target, body, headers, (wait or 0) + ANSWER_SECONDS)

    def submit_task_body(self, body: Mapping[str, Any], wait: float) -> Task:
        """A task exactly as the REST API takes it; with an `id`, again changes nothing."""
        target = f"/api/v1/tasks?wait={wait:g}"
        return self._session.ask(Task, "POST", target, encode(body), "", wait + ANSWER_SECONDS)

    def received(self, value: Any) -> Any:
        """A value of an answer, with numbers as numbers, and nothing unpickled."""
        return received(value, self._read_blob)

    def task(self, task_id: str) -> Task:
        return self._session.ask(Task, "GET", f"/api/v1/tasks/{task_id}")

    def tasks(
        self,
        *,
        job: str | None = None,
        state: str | None = None,
        limit: int | None = None,
        **filters: str | None,
    ) -> Iterator[Task]:
        """The newest job's first. `filters` are `stage`, and of their jobs `name`, in which `*`
        and `?` stand for others, `user`, `since` and `until`, such as "2030-01-31T12:00:00Z"."""
        query = {"job": job, "state": state, **filters}
        return self._session.pages(TaskPage, "/api/v1/tasks", query, limit)

    def wait(self, task_id: str, timeout: float | None = None) -> Task:
        """Until the task has ended."""
        return self._session.wait(Task, f"/api/v1/tasks/{task_id}", f"task {task_id}", timeout)

    def result(self, task_id: str, timeout: float | None = None) -> Any:
        """The value of a task, when it has ended; raises `TaskFailed` if it has none."""
        return self._value_of(self.wait(task_id, timeout))

    def _value_of(self, task: Task) -> Any:
        value = task.value
        if value is None and task.result is not None and task.result.size:
            return self.long_value(task.id)
        return received(value, self._read_blob)

    def long_value(self, task_id: str) -> Any:
        """One that is too long for a line of results."""
        found = self._session.ask(TaskResult, "GET", f"/api/v1/tasks/{task_id}/result")
        return received(found.json, self._read_blob)

    def _read_blob(self, digest: str) -> bytes:
        from .blob_transfers import Transfers

        return Transfers(self).read(digest)

    def logs(self, task_id: str) -> Logs:
        return self._session.ask(Logs, "GET", f"/api/v1/tasks/{task_id}/logs")

    def log(self, task_id: str, stream: str) -> bytes:
        """`stdout` or `stderr`, exactly as it was written."""
        return self._session.request("GET", f"/api/v1/tasks/{task_id}/logs?stream={stream}").body

    def follow_logs(self, identifier: str) -> Iterator[LogPiece]:
        """What a task writes, as it comes, until it has ended; of a job, all its tasks that
        take longer than a moment. Breaks off with `ConnectionLost` if the scheduler does."""
        kind = "tasks" if "." in identifier else "jobs"
        for event in read_events(self._session.stream(f"/api/v1/{kind}/{identifier}/logs?follow")):
            if isinstance(event, Event) and event.kind == "log":
                yield _log_piece(event.data)
            elif isinstance(event, Event):
                return
        raise ConnectionLost(f"{self.api} broke off")

    def explain(self, task_id: str) -> Explanation:
        return self._session.ask(Explanation, "GET", f"/api/v1/tasks/{task_id}/explain")

    def cancel(self, identifier: str) -> Task | Job:
        """A task or a whole job; again is fine."""
        if "." in identifier:
            return self._session.ask(Task, "DELETE", f"/api/v1/tasks/{identifier}")
        return self._session.ask(Job, "DELETE", f"/api/v1/jobs/{identifier}")

    def chat(
        self, model: str, messages: Iterable[dict[str, Any]], **parameters: Any
    ) -> Iterator[str]:
        """A chat model's answer, piece by piece; `parameters` are OpenAI's, such as
        `max_tokens`."""
        from .chat import answer

        return answer(self._session, model, messages, parameters)

    # Files

    def file(self, path: str | Path, place: str | None = None) -> dict[str, Any]:
        """Uploads a file or folder, as an argument of tasks: they get its path instead."""
        from .job_inputs import LocalFiles

        local = LocalFiles(Path.cwd())
        argument = local.file(path, place)
        self.upload(local.sources)
        return argument

    def upload(self, sources: Mapping[str, Source], tell: Moved | None = None) -> int:
        """Blobs by their digests; only what the scheduler lacks is sent: so many bytes."""
        from .blob_transfers import Transfers

        return Transfers(self).upload(sources, tell)

    def outputs(self, task_id: str, directory: Path, tell: Moved | None = None) -> list[Path]:
        """Waits for a task, and lays what it has left below a folder."""
        from .blob_transfers import Transfers

        return Transfers(self).outputs(self.wait(task_id), directory, tell)

    def upload_offset(self, digest: str) -> int:
        """How much of a blob has come before an upload broke off."""
        answer = self._session.exchange("HEAD", f"/api/v1/blobs/{digest}", timeout=WAIT_SECONDS)
        return int(answer.headers.get("upload-offset", "0"))

    def connection(self) -> AbstractContextManager[Connection]:
        """For one exchange that is read to its end; one that fails closes it."""
        return self._session.connection()

    def with_files(self, task: Mapping[str, Any]) -> Mapping[str, Any]:
        """The task with the content of the file that its environment names."""
        return _with_text(task)

    def _bring_inputs(self, task: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        from .job_inputs import LocalFiles

        local = LocalFiles(folder)
        brought = local.brought(task)
        self.upload(local.sources)
        return brought

    # Jobs

    def submit_job(
        self,
        task: Mapping[str, Any] | None = None,
        *,
        arguments: Iterable[Any] | None = None,
        count: int | None = None,
        name: str = "",
        progress: Progress | None = None,
        **job: Any,
    ) -> Job:
        """One task for each element of `arguments`, or `count` tasks alike; `matrix`, `inputs`,
        `overrides` and `stages` are as in the REST API. Jobs that are too big for one request
        are opened, sent in batches and closed; `progress` hears of each."""
        body: dict[str, Any] = {"name": name, **job}
        if task is not None:
            body["task"] = _with_text(self._bring_inputs(task, Path.cwd()))
            if "arguments" in task:
                body["task"] = {**body["task"], "arguments": json_arguments(task["arguments"])}
        if arguments is not None:
            body["arguments"] = arguments
        elif count is not None or not job:
            body["count"] = count or 0
        return self.submit_job_in_parts(body, progress)

    def submit_job_in_parts(self, body: Mapping[str, Any], progress: Progress | None = None) -> Job:
        """A job as the REST API takes it, in as many requests as its size asks for. If they
        come to no end, the job is cancelled, unless its id is the caller's, who may go on."""
        identifier = body.get("id") or ulid(time.time_ns() // 1_000_000, os.urandom(10))
        head, parts = split({**body, "id": identifier})
        job = self.submit_job_body(head)
        if parts is None:
            return job
        sent = 0
        try:
            for number, (part, tasks) in enumerate(parts):
                self.append(identifier, {"batch": number + job.batches, **part})
                sent += tasks
                if progress is not None:
                    progress(sent)
            return self.close_job(identifier)
        except BaseException:
            if "id" not in body:
                with suppress(ClientError):
                    self.cancel(identifier)
            raise

    def submit_job_body(self, body: Mapping[str, Any]) -> Job:
        """A job exactly as the REST API takes it, in one request."""
        return self._session.ask_again(Job, "POST", "/api/v1/jobs", encode(body))

    def preview_job(self, body: Mapping[str, Any]) -> Preview:
        """What would come of a job; nothing is changed."""
        target = "/api/v1/jobs?dry_run=true"
        return self._session.ask(Preview, "POST", target, encode(outline(body)))

    def rerun(self, job_id: str, *, only_failed: bool = False) -> Job:
        """Submits a job once more, as a new one; or what has not succeeded of it."""
        query = "?only=failed" if only_failed else ""
        key = f"Idempotency-Key: {os.urandom(16).hex()}\r\n"
        return self._session.ask_again(
            Job, "POST", f"/api/v1/jobs/{job_id}/rerun{query}", None, key
        )

    def append(self, job_id: str, batch: Mapping[str, Any]) -> None:
        """Appends a numbered batch, such as `{"batch": 0, "arguments": [[1], [2]]}`, to an
        open job. The same one again changes nothing; a full queue is waited for."""
        body = encode(batch)
        patience_ends = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                self._session.ask_again(Any, "POST", f"/api/v1/jobs/{job_id}/tasks", body)
                return
            except Busy as busy:
                if time.monotonic() > patience_ends:
                    raise
                time.sleep(busy.retry_after_seconds)

    def close_job(self, job_id: str) -> Job:
        return self._session.ask_again(Job, "POST", f"/api/v1/jobs/{job_id}/close", None)

    def job(self, job_id: str) -> Job:
        return self._session.ask(Job, "GET", f"/api/v1/jobs/{job_id}")

    def jobs(self, *, limit: int | None = None, **filters: str | None) -> Iterator[Job]:
        """Newest first; `filters` are `state`, and those of `tasks`."""
        return self._session.pages(JobPage, "/api/v1/jobs", filters, limit)

    def wait_job(self, job_id: str, timeout: float | None = None) -> Job:
        return self._session.wait(Job, f"/api/v1/jobs/{job_id}", f"job {job_id}", timeout)

    def results(self, job_id: str, *, follow: bool = True, after: int = 0) -> Iterator[Result]:
        """Results as they are committed; with `follow` until the job has ended. A stream that
        breaks is taken up where it broke, once without a new line."""
        failures = 0
        while True:
            try:
                for result in self._result_stream(job_id, follow, after):
                    after, failures = result.sequence, 0
                    yield result
                return
            except ConnectionLost:
                failures += 1
                if failures > 1:
                    raise

    def events(
        self,
        *,
        follow: bool = True,
        after: int | None = None,
        job: str | None = None,
        task: str | None = None,
        kinds: str | None = None,
    ) -> Iterator[Event]:
        """What happens, as it happens; without `follow`, how tasks and jobs have ended so far.

        `kinds` are such as `task.failed,worker.*`. A stream that breaks is taken up where it
        broke, once without a new event; only ends of tasks and jobs are never missed.
        """
        failures = 0
        while True:
            query = {"job": job, "task": task, "kinds": kinds, "follow": str(follow).lower()}
            query["after"] = None if after is None else str(after)
            text = urlencode({name: value for name, value in query.items() if value is not None})
            try:
                for event in read_events(self._session.stream(f"/api/v1/events?{text}")):
                    failures = 0
                    if isinstance(event, int):
                        after = event
                    else:
                        after = after if event.id is None else event.id
                        yield event
                if not follow:
                    return
            except ConnectionLost:
                failures += 1
                if failures > 1:
                    raise

    # The swarm

    def workers(self) -> list[Worker]:
        return self._session.ask(WorkerPage, "GET", "/api/v1/workers").items

    def drain(self, worker: str, hand_back_after: float | None = None) -> Worker:
        """Lets a worker, by its name or peer id, take no new work. What still runs after so
        many seconds goes back to the queue, without counting; None lets it finish."""
        query = "" if hand_back_after is None else f"?hand_back_after={hand_back_after:g}"
        target = f"/api/v1/workers/{quote(worker, safe='')}/drain{query}"
        return self._session.ask(Worker, "POST", target)

    def resume(self, worker: str) -> Worker:
        return self._session.ask(Worker, "POST", f"/api/v1/workers/{quote(worker, safe='')}/resume")

    def stats(self) -> dict[str, Any]:
        return self._session.ask(dict[str, Any], "GET", "/api/v1/stats")

    def revoke(self, records: list[bytes]) -> int:
        """Spreads what the swarm's owner has signed; how many were news to the scheduler."""
        body = encode({"records": records})
        answer = self._session.ask(dict[str, int], "POST", "/api/v1/revocations", body)
        return answer["taken"]

    def metrics(self) -> str:
        return self._session.request("GET", "/metrics").body.decode()

    def get(self, path: str, directory: str | Path | None = None) -> Any:
        """With a directory: brings the outputs of a task there, and says where they are. Without
        one: any other answer of the API, as JSON says it."""
        if directory is not None:
            return self.outputs(path, Path(directory))
        return self._session.ask(Any, "GET", path)

    def post(self, path: str, body: object) -> Any:
        """Likewise, with a body."""
        return self._session.ask(Any, "POST", path, encode(body))

    def find_jobs(self, prefix: str, limit: int = 2, ending: str = "") -> list[Job]:
        """Those whose ids begin and end with these."""
        query = urlencode({"prefix": prefix, "ending": ending, "limit": limit})
        return self._session.ask(JobPage, "GET", f"/api/v1/jobs?{query}").items

    # Below

    def _result_stream(self, job_id: str, follow: bool, after: int) -> Iterator[Result]:
        target = f"/api/v1/jobs/{job_id}/results?after={after}" + ("&follow" if follow else "")
        rest = b""
        for piece in self._session.stream(target):
            whole, newline, rest = (rest + piece).rpartition(b"\n")
            if not newline:
                continue
            lines = _decode_lines(whole)
            if MARK in whole:
                for line in lines:
                    line.value = received(line.value, self._read_blob)
            yield from lines


def _log_piece(data: dict[str, Any]) -> LogPiece:
    encoded = data.get("base64")
    text = data.get("text", "").encode() if encoded is None else base64.b64decode(encoded)
    left_out = data.get("left_out_bytes", 0)
    return LogPiece(data["task_id"], data["attempt"], data["stream"], text, left_out)


def _with_text(task: Mapping[str, Any]) -> Mapping[str, Any]:
    """The task with the content of the file that its environment names."""
    if not isinstance(task.get("environment"), Path):
        return task
    from .job_files import read_environment

    return {**task, "environment": read_environment(task["environment"])}
