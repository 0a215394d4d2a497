"""What other people's tasks and machines say does not reach the terminal as commands to it."""

from __future__ import annotations

import io
import os
import pty
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from mycel.access.home import Home, write_state
from mycel.cli.main import main
from mycel.console.terminal import Output, clean, clean_output, escaped_json
from mycel.core.errors import Unprocessable
from tests.adapters.api_access import TOKEN
from tests.adapters.api_scheduler import CAPABILITIES, ApiScheduler
from tests.adapters.api_server import Served, served

NASTY = (
    "a\x1b[2Jb\x1b]52;c;cm0=\x07c\x1b]8;;http://evil\x1b\\d\re\x08f\x9b31mg\x90h\x9di"
    "\u202ej\u2066k\u200el\x00m\x7fn\u2028o"
)


HOSTILE = msgspec.structs.replace(
    CAPABILITIES, labels=((NASTY, NASTY),), models=(NASTY,), arch=NASTY
)


@pytest.fixture
def server() -> Iterator[Served]:
    with served(worker_name=NASTY, capabilities=HOSTILE) as made:
        yield made


@pytest.fixture
def task(server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A waiting task, beside a failed one, in a swarm where everything has a nasty name."""
    home = Home(tmp_path / "home")
    home.create()
    home.token_path.write_text(f"{TOKEN}\n")
    home.token_path.chmod(0o600)
    monkeypatch.setenv("MYCEL_HOME", str(home.path))
    folder = home.role("scheduler")
    with folder.lock():
        state = {"name": "scheduler", "pid": os.getpid(), "peer": "p", "api": server.api}
        write_state(folder.state_path, state)
        from mycel.client import Client

        with Client(server.api, TOKEN) as client:
            client.submit_task(python="waits:here", name=NASTY, labels={NASTY: NASTY})
            server.call(lambda: fail_and_close(server.backend))
            sent = client.submit_task(python="a:b", name=NASTY, labels={NASTY: NASTY})
        yield sent.id


def fail_and_close(backend: ApiScheduler) -> None:
    (job,) = backend.jobs_by_id.values()
    backend.end(job, 0, "failed", error=NASTY)
    backend.close_worker(NASTY)


COMMANDS = [
    ["explain", "TASK"],
    ["tasks"],
    ["jobs"],
    ["workers"],
    ["models"],
    ["events"],
    ["cancel", "TASK"],
    ["swarm", "status"],
    ["peers"],
    ["run", "--", "true"],
    ["explain", NASTY],
    [NASTY],
]


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
@pytest.mark.parametrize("command", COMMANDS, ids=[f"{place}" for place in range(len(COMMANDS))])
def test_nothing_that_a_terminal_obeys_is_printed(
    command: list[str],
    as_json: bool,
    task: str,
    server: Served,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if command[0] == "run":

        def refuse() -> None:
            server.backend.refusal = Unprocessable(NASTY)

        server.call(refuse)
    words = [task if one == "TASK" else one for one in command]
    place = words.index("--") if "--" in words else len(words)
    main([*words[:place], *(["--json"] if as_json else []), *words[place:]])
    said = "".join(capsys.readouterr())
    found = {one for one in said if not one.isprintable()} - {"\n", "\t"}
    assert not found
    assert said


def test_the_tests_texts_reach_the_commands(task: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What is printed is the same text, without its controls."""
    for command in (["explain", task], ["tasks"], ["workers"]):
        main(command)
        assert "a?[2Jb" in capsys.readouterr().out


def test_json_says_the_same_escaped() -> None:
    text = msgspec.json.encode([NASTY, "\U000e0001"]).decode()
    assert msgspec.json.decode(escaped_json(text)) == [NASTY, "\U000e0001"]
    assert escaped_json(text).isprintable()
    assert clean(NASTY).isprintable()


def through_a_terminal(data: bytes, raw: bool) -> bytes:
    """What comes out at the other end."""
    master, slave = pty.openpty()
    with io.TextIOWrapper(io.FileIO(slave, "w")) as stream:
        Output(raw=raw).write(stream, data)
        stream.flush()
        got = os.read(master, 4096)
    os.close(master)
    return got


def test_a_tasks_output_is_exact_but_on_a_terminal(tmp_path: Path) -> None:
    data = b"\x1b[1;31mred\x1b[0m \x1b]52;c;cm0=\x07 10%\r20% \xff \x1b[2J\xc2\x9b31m\n"
    with (tmp_path / "file").open("w", encoding="utf-8") as stream:
        Output().write(stream, data)
    assert (tmp_path / "file").read_bytes() == data
    shown = through_a_terminal(data, raw=False)
    assert shown == clean_output(data).replace(b"\n", b"\r\n")
    assert b"\x1b[1;31mred\x1b[0m" in shown
    assert b"\x1b]" not in shown
    assert b"\x1b[2J" not in shown
    assert b"\x07" not in shown
    assert b"\xc2\x9b" not in shown
    assert b"\x1b]52" in through_a_terminal(data, raw=True)
