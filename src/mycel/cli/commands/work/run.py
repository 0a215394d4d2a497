"""`mycel run -- CMD…`: one command on some worker, as if it ran here."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any, Final

from mycel.cli import task_input
from mycel.cli.arguments import connect, parser
from mycel.cli.output_follower import Shown
from mycel.cli.patience import patiently
from mycel.cli.screen import Screen
from mycel.cli.task_status import TaskStatus
from mycel.client import Client, Task
from mycel.client.errors import ClientError
from mycel.client.responses import LogPiece
from mycel.console.errors import UsageError, explain
from mycel.console.tables import print_json

TIMED_OUT: Final = 124
OUR_FAULT: Final = 125
SIGNALLED: Final = 128
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(given: list[str]) -> int:
    options = _parse(given)
    body = _body(options)
    if options.stdin:
        body = task_input.with_input(body)
    else:
        task_input.refuse_unread()
    try:
        with connect(options) as client:
            return _run(client, options, body)
    except Exception as error:
        text = explain(error)
        if text is None:
            raise
        print(f"mycel: {text}", file=sys.stderr)
        return OUR_FAULT


def _parse(given: list[str]) -> argparse.Namespace:
    options = parser("run", "Run a command on a worker and wait for it.")
    options.usage = "mycel run [OPTIONS] -- CMD…"
    options.add_argument("--name", default="", help="for people")
    options.add_argument("--timeout", type=float, metavar="S", help="seconds it may take")
    options.add_argument("--cores", type=float, metavar="N", help="CPU cores (1)")
    options.add_argument("--memory", metavar="SIZE", help="such as 16GB")
    options.add_argument("--gpus", type=float, metavar="N", help="whole ones, or a fraction")
    options.add_argument("--network", action="store_true", help="only where the worker allows it")
    options.add_argument(
        "--sandbox", choices=("required", "auto"), help="required: in a sandbox or not at all"
    )
    options.add_argument("--env", action="append", default=[], metavar="K=V")
    options.add_argument("--image", metavar="NAME", help="run it in a container of this image")
    options.add_argument(
        "--mount",
        action="append",
        default=[],
        metavar="PATH:PATH[:ro]",
        help="a path of the worker, if it allows that, and where the container has it",
    )
    options.add_argument(
        "--environment", metavar="FILE", help="a requirements or lock file of what it imports"
    )
    options.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="FILE",
        help="a file or folder that it needs; again for more",
    )
    options.add_argument(
        "--output",
        action="append",
        default=[],
        metavar="PATTERN",
        help="files that it leaves, written here when it has succeeded; again for more",
    )
    options.add_argument(
        "--stdin", action="store_true", help="it reads what comes here, to its end"
    )
    options.add_argument("--detach", action="store_true", help="print the id and return")
    cut = given.index("--") if "--" in given else len(given)
    chosen = argparse.Namespace()
    _, rest = options.parse_known_args(given[:cut], chosen)
    chosen.command = [*rest, *given[cut + 1 :]]
    if rest and rest[0].startswith("-"):
        raise UsageError(f"unknown option {rest[0]}; put '--' before the command")
    if not chosen.command:
        raise UsageError("give a command to run, such as: mycel run -- echo hello")
    return chosen


def _body(options: argparse.Namespace) -> dict[str, Any]:
    requirements: dict[str, Any] = {}
    if options.cores is not None:
        requirements["cpu_cores"] = options.cores
    if options.memory is not None:
        requirements["min_memory"] = options.memory
    if options.gpus is not None:
        requirements["gpus"] = {"count": options.gpus}
    env = {}
    for pair in options.env:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise UsageError(f"--env is NAME=VALUE, not {pair!r}")
        env[name] = value
    body: dict[str, Any] = {"command": options.command, "name": options.name, "env": env}
    if requirements:
        body["requirements"] = requirements
    if options.image is not None:
        body["image"] = options.image
    if options.mount:
        body["mounts"] = options.mount
    if options.environment is not None:
        body["environment"] = Path(options.environment)
    if options.network:
        body["network"] = True
    if options.sandbox is not None:
        body["sandbox"] = options.sandbox
    if options.output:
        body["outputs"] = options.output
    if options.timeout is not None:
        body["timeout"] = options.timeout
    return body


def _bring(client: Client, folder: Path, names: list[str]) -> list[dict[str, Any]]:
    """The files that it needs go to the scheduler first."""
    from mycel.client.job_inputs import LocalFiles

    from .get import Moving

    local = LocalFiles(folder)
    inputs = local.inputs(names)
    moving = Moving("sent")
    client.upload(local.sources, moving)
    moving.end()
    return inputs


def _bring_input(client: Client) -> list[dict[str, Any]]:
    with TemporaryDirectory(prefix="mycel-stdin-") as folder:
        kept = task_input.keep(Path(folder))
        return _bring(client, kept.parent, [kept.name])


def _run(client: Client, options: argparse.Namespace, body: dict[str, Any]) -> int:
    body["inputs"] = _bring(client, Path.cwd(), options.input) if options.input else []
    if options.stdin:
        body["inputs"] += _bring_input(client)
    if options.detach:
        sent = client.submit_task(**body)
        print_json({"id": sent.id, "job_id": sent.job_id}) if options.json else print(sent.id)
        return 0
    task: Task | None = None
    try:
        with _signals_wait():
            task = client.submit_task(**body)
        if task.reason == "no_match":
            waits = f"it waits for a worker that can run it; 'mycel explain {task.id}' says more"
            print(f"mycel: {waits}", file=sys.stderr)
        task = _watched(client, task.id, shows=not options.json)
    except KeyboardInterrupt as interrupt:
        if task is not None:
            _cancel(client, task.id)
        return SIGNALLED + int(interrupt.args[0])
    if options.json:
        answer = client.get(f"/api/v1/tasks/{task.id}")
        logs = client.logs(task.id)
        print_json({**answer, "stdout": logs.stdout, "stderr": logs.stderr})
    if options.output and task.state == "succeeded":
        client.outputs(task.id, Path.cwd())
    return _exit_code(task)


def _watched(client: Client, task_id: str, *, shows: bool) -> Task:
    """Until it has ended, whatever becomes of the scheduler meanwhile."""
    screen = Screen()
    shown = Shown(raw=True, screen=screen)

    def pieces() -> Iterator[LogPiece]:
        shown.begin_again()
        yield from client.follow_logs(task_id)

    def ended() -> Iterator[Task]:
        yield client.wait(task_id)

    def say_away(error: ClientError) -> None:
        screen.note(f"{error}; trying again")

    with TaskStatus(client, task_id, screen) as status:
        if shows:
            for piece in patiently(pieces, say_away):
                status.heard()
                shown.show(piece)
        return next(patiently(ended, say_away))


@contextmanager
def _signals_wait() -> Iterator[None]:
    """Until the task is known: it may run before its id is here, and nobody could cancel it
    then. A second signal does not wait."""
    came: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        if came:
            _interrupt(number, frame)
        came.append(number)

    for number in _ENDING:
        signal.signal(number, remember)
    try:
        yield
    finally:
        for number in _ENDING:
            signal.signal(number, _interrupt)
    if came:
        _interrupt(came[0], None)


def _interrupt(number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt(number)


def _cancel(client: Client, task_id: str) -> None:
    try:
        client.cancel(task_id)
    except ClientError as error:  # it has just ended, or the scheduler has
        print(f"mycel: {error}", file=sys.stderr)
    else:
        print(f"mycel: task {task_id} is cancelled", file=sys.stderr)


def _exit_code(task: Task) -> int:
    attempt = task.attempts[-1] if task.attempts else None
    if task.state == "succeeded":
        return 0
    if attempt is not None and attempt.state == "timed_out":
        print(f"mycel: task {task.id} took too long", file=sys.stderr)
        return TIMED_OUT
    if task.state == "cancelled":
        print(f"mycel: task {task.id} was cancelled", file=sys.stderr)
        return OUR_FAULT
    if attempt is not None and attempt.exit_code:
        if attempt.error and attempt.exit_code >= 126:
            print(f"mycel: {attempt.error.splitlines()[0]}", file=sys.stderr)
        return attempt.exit_code
    print(f"mycel: task {task.id} failed: {task.error or 'no reason given'}", file=sys.stderr)
    return OUR_FAULT
