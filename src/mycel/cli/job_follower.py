"""Following a job at a terminal: results, output and how far it is, until it ends.

It goes on when the scheduler was away and is back; Ctrl-C leaves the job running, or cancels it.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

import msgspec

from mycel.client import Client, Job
from mycel.client.errors import ClientError
from mycel.client.functions.values import as_sent
from mycel.client.responses import Result
from mycel.console.tables import duration, parse_time, print_json_line, size, terminal_width

from .id_prefixes import shown_id
from .job_progress import JobProgress
from .output_follower import Shown
from .patience import AWAY, patiently
from .screen import Screen

LOOK_SECONDS: Final = 0.5
OUTPUT_SECONDS: Final = 5.0
"""So long the last output is waited for, once the last result is there."""
FAILURES_SHOWN: Final = 5
INDEXES_SHOWN: Final = 5
INTERRUPTED: Final = 130

_Item = TypeVar("_Item")


def follow_job(client: Client, job_id: str, *, results: bool = True, as_json: bool = False) -> int:
    """Until it ends; the exit code. Without `results` it only says how far it is."""
    follower = _Follower(client, job_id, as_json=as_json)
    try:
        job = follower.follow(results=results)
    except KeyboardInterrupt:
        return _interrupted(client, job_id, follower)
    finally:
        follower.close()
    if not as_json:
        follower.tell_end(job, in_output=not results)
    return 0 if job.state == "succeeded" else 1


class _Follower:
    def __init__(self, client: Client, job_id: str, *, as_json: bool) -> None:
        self._client = client
        self._job_id = job_id
        self._as_json = as_json
        self.screen = Screen()
        self._progress = JobProgress()
        self._failures = Failures(job_id)
        self._over = threading.Event()

    def follow(self, *, results: bool) -> Job:
        if self.screen.is_live:
            threading.Thread(target=self._look, daemon=True).start()
        if not results:
            return self._waited()
        output = threading.Thread(target=self._show_output, daemon=True)
        if not self._as_json:
            output.start()
        for result in self._results():
            self._failures.take(result)
            if self._as_json:
                print_json_line(msgspec.structs.replace(result, value=as_sent(result.value)))
            else:
                said = said_of(result).partition("\n")[0]
                task = shown_id(f"{self._job_id}.{result.index}")
                self.screen.line(f"{task}  {result.state}  {said}")
        if not self._as_json:
            output.join(OUTPUT_SECONDS)
        return self._waited()

    def close(self) -> None:
        self._over.set()
        self.screen.clear()

    def tell_end(self, job: Job, *, in_output: bool) -> None:
        """For people: how it went, and what failed; beside the results if there were any."""
        if job.tasks.failed and not self._failures.count:
            listed = self._client.tasks(job=job.id, state="failed", limit=FAILURES_SHOWN * 4)
            for task in listed:
                index = int(task.id.rpartition(".")[2])
                self._failures.take(Result(index, "failed", error=task.error))
        first, *rest = summary(job, self._failures)
        self.screen.line(first) if in_output else self.screen.note(first)
        for line in rest:
            self.screen.note(line)

    def _waited(self) -> Job:
        def wait() -> Iterator[Job]:
            yield self._client.wait_job(self._job_id)

        return next(self._patiently(wait))

    def _results(self) -> Iterator[Result]:
        after = 0

        def stream() -> Iterator[Result]:
            return self._client.results(self._job_id, after=after)

        for result in self._patiently(stream):
            after = result.sequence
            yield result

    def _show_output(self) -> None:
        shown = Shown(prefixed=True, raw=True, screen=self.screen)

        def pieces() -> Iterator[None]:
            shown.begin_again()
            for piece in self._client.follow_logs(self._job_id):
                if self._over.is_set():
                    return
                shown.show(piece)
                yield

        # What went wrong the results say.
        with contextlib.suppress(ClientError, BrokenPipeError):
            for _ in self._patiently(pieces):
                pass

    def _patiently(self, stream: Callable[[], Iterator[_Item]]) -> Iterator[_Item]:
        return patiently(stream, self._say_away, self._over)

    def _say_away(self, error: ClientError) -> None:
        if not self._progress.trouble:
            self._progress.trouble = "the scheduler is away: trying again"
            if not self.screen.is_live:
                self.screen.note(f"{error}; trying again")

    def _look(self) -> None:
        while not self._over.is_set():
            with contextlib.suppress(*AWAY):
                self._progress.take(self._client.job(self._job_id), time.monotonic())
            if not self._over.is_set():
                self.screen.show(self._progress.text(terminal_width() - 1))
            self._over.wait(LOOK_SECONDS)


def said_of(result: Result) -> str:
    """In a line: what went wrong, the value, or a process' exit code."""
    if result.error:
        return result.error
    if result.size:
        return f"{size(result.size)}; Client.result brings it"
    if result.value is None and result.exit_code is not None:
        return f"exit code {result.exit_code}"
    return msgspec.json.encode(as_sent(result.value)).decode()


class Failures:
    """What went wrong, each said once."""

    def __init__(self, job_id: str) -> None:
        self._job_id = job_id
        self.count = 0
        self._by_error: dict[str, list[int]] = {}
        """The first tasks of each."""
        self._counts: dict[str, int] = {}

    def take(self, result: Result) -> None:
        if result.state != "failed":
            return
        self.count += 1
        error = (result.error or f"exit code {result.exit_code}").strip().splitlines()[-1]
        if error not in self._counts and len(self._counts) >= 1000:
            return
        self._counts[error] = self._counts.get(error, 0) + 1
        indexes = self._by_error.setdefault(error, [])
        if len(indexes) < INDEXES_SHOWN:
            indexes.append(result.index)

    def lines(self) -> Iterator[str]:
        """The most frequent first."""
        ranked = sorted(self._counts, key=lambda error: -self._counts[error])
        for error in itertools.islice(ranked, FAILURES_SHOWN):
            count, indexes = self._counts[error], self._by_error[error]
            which = ", ".join(f".{index}" for index in indexes)
            more = f" and {count - len(indexes)} more" if count > len(indexes) else ""
            yield f"  {count} × {error}  ({which}{more})"
        if len(ranked) > FAILURES_SHOWN:
            yield f"  and {len(ranked) - FAILURES_SHOWN} other errors"


def summary(job: Job, failures: Failures) -> Iterator[str]:
    counts = job.tasks
    parts = [f"{counts.succeeded:,} succeeded"]
    parts += [f"{counts.failed:,} failed"] if counts.failed else []
    parts += [f"{counts.cancelled:,} cancelled"] if counts.cancelled else []
    took = ""
    if job.finished_at is not None:
        took = f" in {duration(parse_time(job.finished_at) - parse_time(job.created_at))}"
    yield f"{job.id}  {job.state}: {', '.join(parts)}{took}"
    if counts.failed:
        yield from failures.lines()
        yield f"'mycel logs {job.id} --failed' has what they wrote"
        yield f"'mycel rerun {job.id} --failed' runs them again"


def _interrupted(client: Client, job_id: str, follower: _Follower) -> int:
    """The job is the scheduler's: it goes on, unless somebody says otherwise."""
    follower.close()
    if sys.stdin.isatty() and sys.stderr.isatty() and _wants_cancelled(job_id):
        cancelled = client.cancel(job_id)
        print(f"mycel: {job_id} is {cancelled.state}", file=sys.stderr)
        return INTERRUPTED
    print(
        f"mycel: job {job_id} goes on: 'mycel follow {job_id}' shows it again, "
        f"'mycel cancel {job_id}' ends it",
        file=sys.stderr,
    )
    return INTERRUPTED


def _wants_cancelled(job_id: str) -> bool:
    """Ctrl-C again, or the end of the input, leaves it running."""
    print(f"\njob {job_id} is running.", file=sys.stderr)
    try:
        print("[l]eave it running, or [c]ancel it? (l) ", end="", file=sys.stderr, flush=True)
        return input().strip().lower().startswith("c")
    except (KeyboardInterrupt, EOFError):
        print(file=sys.stderr)
        return False
