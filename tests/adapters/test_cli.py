"""What people at a terminal may rely on: texts, exit codes, errors that say what to do."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mycel import __version__
from mycel.access.home import Home, write_state
from mycel.cli.command_parser import Parsed, parsers_only
from mycel.cli.commands.completion import candidates
from mycel.cli.commands.roles import parse
from mycel.cli.main import COMMANDS, main
from mycel.cli.task_texts import what_runs
from mycel.cli.worker_names import names_of
from mycel.client import Task, Worker
from mycel.console.tables import Column, duration, fitted, print_table, size
from mycel.core.events import Event
from mycel.core.identifiers import RequestId
from mycel.local import toml_writer

from .api_access import TOKEN
from .api_server import Served


def environment() -> dict[str, str]:
    """Of a child: it finds what this process has found."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


@pytest.fixture
def home(tmp_path: Path, server: Served, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home in which a scheduler seems to run: this process has its lock."""
    home = Home(tmp_path / "home")
    home.create()
    home.token_path.write_text(f"{TOKEN}\n")
    home.token_path.chmod(0o600)
    folder = home.role("scheduler")
    monkeypatch.setenv("MYCEL_HOME", str(home.path))
    with folder.lock():
        state = {"name": "scheduler", "pid": os.getpid(), "peer": "p", "api": server.api}
        write_state(folder.state_path, state)
        yield home.path


class Terminal:
    """Runs commands in this process and keeps what they printed."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture
        self.out = ""
        self.err = ""

    def __call__(self, *arguments: str) -> int:
        code = main(list(arguments))
        self.out, self.err = self._capture.readouterr()
        return code

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def mycel(capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(capsys)


# Without a swarm


def test_help_names_every_command(mycel: Terminal) -> None:
    assert mycel("--help") == 0
    assert all(f"\n  {name} " in mycel.out for name in COMMANDS)
    assert mycel() == 2


def test_help_and_version_import_nothing_heavy() -> None:
    for option in ("--help", "--version"):
        code = f"import sys; from mycel.cli.main import main; main(['{option}']); "
        code += "print([m for m in sys.modules if m.split('.')[0] in "
        code += "('msgspec', 'argparse', 'asyncio', 'rich', 'socket')])"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=environment()
        )
        assert done.stdout.endswith("[]\n"), done.stderr


def test_a_spawn_helper_is_forked_before_anything_that_it_does_not_need_is_imported() -> None:
    code = "import os, sys; from mycel.cli.commands import roles\n"
    code += "from mycel.drivers.helper import spawn_helper as helper\n"
    code += "def fork():\n"
    code += "    print([m for m in sys.modules if m.split('.')[0] in ('asyncio', 'ssl', 'sqlite3')"
    code += " or m.startswith('mycel.roles')]); raise SystemExit\n"
    code += "helper.start_helper = fork; roles.worker([])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment()
    )
    assert done.stdout == "[]\n", done.stderr


def test_the_version_is_told(mycel: Terminal) -> None:
    assert mycel("--version") == 0
    assert mycel.out == f"mycel {__version__}\n"


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {"demo"}))
def test_every_command_has_help(mycel: Terminal, command: str) -> None:
    assert mycel(command, "--help") == 0
    assert f"mycel {command}" in mycel.out


ACTIONS = {
    "model": ("serve", "list", "stop"),
    "token": ("create", "inspect", "narrow", "revoke", "key"),
    "user": ("add", "list", "disable"),
    "store": ("check", "export", "import"),
    "config": ("check", "show"),
}


@pytest.mark.parametrize(
    ("command", "action"), [(name, one) for name, every in ACTIONS.items() for one in every]
)
def test_every_action_has_help(mycel: Terminal, command: str, action: str) -> None:
    assert mycel(command, action, "--help") == 0
    assert f"mycel {command}" in mycel.out


@pytest.mark.parametrize(
    "arguments",
    [
        ("rum",),
        ("tasks", "--nonsense"),
        ("run",),
        ("run", "--nonsense", "--", "true"),
        ("run", "--env", "novalue", "--", "true"),
        ("up", "--workers", "0", "--detach"),
        ("up", "--port", "70000", "--detach"),
        ("up", "--workers", "many"),
        ("submit",),
        ("config", "destroy", "x"),
    ],
)
def test_wrong_usage_is_2(mycel: Terminal, arguments: tuple[str, ...]) -> None:
    assert mycel(*arguments) == 2
    assert mycel.err
    assert "Traceback" not in mycel.err


def test_a_misspelt_command_gets_a_hint(mycel: Terminal) -> None:
    mycel("explian")
    assert "did you mean 'mycel explain'" in mycel.err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("tasks",), 1),
        (("workers", "--json"), 1),
        (("run", "--", "true"), 125),
        (("explain", "01j"), 1),
    ],
)
def test_without_a_swarm_it_says_how_to_start_one(
    mycel: Terminal, tmp_path: Path, arguments: tuple[str, ...], code: int
) -> None:
    command, *rest = arguments
    assert mycel(command, "--home", str(tmp_path), *rest) == code
    assert mycel.err == f"mycel: no swarm is running at {tmp_path}: start one with 'mycel up'\n"


def test_down_without_a_swarm_is_fine(mycel: Terminal, tmp_path: Path) -> None:
    assert mycel("down", "--home", str(tmp_path / "none")) == 0
    assert mycel("down", "--home", str(tmp_path), "--json") == 0
    assert mycel.json == {"stopped": []}


def test_a_configuration_is_checked(mycel: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "mycel.toml"
    file.write_text("[scheduler]\ntask_timeout = 3\n")
    assert mycel("config", "check", str(file)) == 0
    file.write_text("[scheduler]\ntask_timeout = 3\ncolour = 'red'\n")
    assert mycel("config", "check", str(file)) == 1
    assert "line 3" in mycel.err
    assert mycel("config", "check", str(file), "--json") == 1
    assert mycel.json["valid"] is False


def test_a_role_gets_its_options() -> None:
    options = parse("worker", ["--home", "/h", "--name", "worker-1", "--ready-fd", "7"])
    assert (options.name, options.home, options.ready_fd) == ("worker-1", Path("/h"), 7)
    assert parse("scheduler", ["--port", "0"]).port == 0


def test_nothing_in_a_table_commands_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("PEER", "VERSION"), [("12D3", "mycel\x1b[2J\n\u202eevil"), ("é", "ü")])
    assert capsys.readouterr().out == "PEER  VERSION\n12D3  mycel?[2J??evil\né     ü\n"


# With one


@pytest.mark.usefixtures("home")
def test_run_gives_the_tasks_output_and_exit_code(mycel: Terminal) -> None:
    assert mycel("run", "--", "true", "--flag") == 0
    assert (mycel.out, mycel.err) == ("out\n", "err\n")
    assert mycel("run", "--", "false") == 1
    assert mycel("run", "--json", "--", "true") == 0
    assert (mycel.json["state"], mycel.json["stdout"]) == ("succeeded", "out\n")


@pytest.mark.usefixtures("home")
def test_run_passes_its_options_on(mycel: Terminal, server: Served) -> None:
    options = ["--name", "n", "--timeout", "5", "--cores", "2", "--memory", "1GB", "--gpus", "1"]
    assert mycel("run", *options, "--env", "A=b=c", "--detach", "--", "echo", "--x") == 0
    [job] = server.backend.jobs_by_id.values()
    assert mycel.out == f"{job.submit.job_id}.0\n"
    work, needs = job.specification.work, job.specification.requirements
    assert (work.command, work.env, work.timeout_seconds) == (
        ("echo", "--x"),
        (("A", "b=c"),),
        5.0,
    )
    assert (needs.cpu_cores, needs.min_memory) == (2, 1_000_000_000)
    assert needs.gpus is not None


def run_what_waits() -> subprocess.Popen[str]:
    # Processes end at once here, so this one is a function that waits.
    code = (
        "import mycel.cli.commands.work.run as run; "
        "run._body = lambda options: {'python': 'waits:here'}; "
        "from mycel.cli.main import main; import sys; sys.exit(main(['run', '--', 'x']))"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code], env=environment(), stderr=subprocess.PIPE, text=True
    )


def test_an_interrupted_run_cancels_its_task(home: Path, server: Served) -> None:
    process = run_what_waits()
    assert server.backend.waiting.wait(20), "it never came to wait"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "is cancelled" in err
    [job] = server.backend.jobs_by_id.values()
    assert job.state == "cancelled"


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_the_id_is_known_cancels_the_task(
    server: Served, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """The task may run before the answer to its submission is here."""
    put = server.backend.put
    started = threading.Event()

    def interrupted(
        make: Callable[[RequestId], Event], reply: Callable[[object], None]
    ) -> RequestId:
        assert started.wait(20)
        monkeypatch.setattr(server.backend, "put", put)  # what follows is taken as ever
        process.send_signal(number)
        return put(make, reply)

    monkeypatch.setattr(server.backend, "put", interrupted)
    process = run_what_waits()
    started.set()
    process.communicate(timeout=20)
    assert process.returncode == 128 + number
    [job] = server.backend.jobs_by_id.values()
    assert job.state == "cancelled"


@pytest.mark.usefixtures("home")
def test_jobs_are_submitted_from_files(mycel: Terminal, tmp_path: Path) -> None:
    toml = tmp_path / "job.toml"
    toml.write_text('name = "n"\narguments = [[1], [2]]\n[task]\npython = "json:dumps"\n')
    assert mycel("submit", str(toml), "--wait") == 0
    assert "succeeded: 2 succeeded" in mycel.out
    assert mycel("submit", str(toml), "--follow", "--json") == 0
    assert [json.loads(line)["value"] for line in mycel.out.splitlines()] == [[1], [2]]
    single = tmp_path / "job.json"
    single.write_text('{"command": ["false"]}')
    assert mycel("submit", str(single), "--wait", "--json") == 1
    assert mycel.json["tasks"]["failed"] == 1
    assert mycel("submit", str(single)) == 0


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.toml", "name = \n", "a.toml, line 1, column 8"),
        ("a.json", '{"task": }', "a.json, line 1, column 10"),
        ("a.toml", '[task]\ncommand = ["a"]\n[task.requirements]\ncpu_cores = -1\n', "line 4"),
        ("a.toml", 'command = "echo hello"\n', "a list of strings"),
        ("a.toml", 'count = 1\n[task]\ncommand = ["a"]\ncolour = 1\n', "line 4"),
        ("a.json", "[]", "has to hold a table"),
        ("a.toml", 'nam = "x"\n[task]\ncommand = ["a"]\n', "did you mean `name`?"),
        ("a.toml", '[task]\ncommand = ["a"]\ntimeot = 1\n', "did you mean `timeout`?"),
        (
            "a.toml",
            'count = 1\n[task]\ncommand = ["a"]\nrequirements = { cpu_core = 1 }\n',
            "did you mean `cpu_cores`?",
        ),
    ],
)
def test_a_wrong_file_is_refused_with_the_place(
    mycel: Terminal, tmp_path: Path, name: str, text: str, said: str
) -> None:
    file = tmp_path / name
    file.write_text(text)
    assert mycel("submit", str(file)) == 1
    assert said in mycel.err
    assert "Traceback" not in mycel.err


@pytest.mark.usefixtures("home")
def test_any_unique_beginning_of_an_id_will_do(mycel: Terminal) -> None:
    ids = []
    for _ in range(2):
        assert mycel("run", "--detach", "--", "true") == 0
        ids.append(mycel.out.strip())
    different = next(n for n in range(30) if ids[0][:n] != ids[1][:n])
    assert mycel("logs", ids[0][:different]) == 0
    assert mycel.out == "out\n"
    assert mycel("logs", ids[0][:different] + ".0", "--stderr") == 0
    assert mycel.out == "err\n"
    assert mycel("logs", ids[0][:3]) == 1
    assert "several jobs" in mycel.err
    assert mycel("logs", "7zzzzz") == 1
    assert "there is no job" in mycel.err


@pytest.mark.usefixtures("home")
def test_lists_are_tables_or_json(mycel: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    task = {"python": "waits:here", "requirements": {"cpu_cores": 1000}}
    file.write_text(json.dumps({"task": task, "count": 2, "name": "sweep"}))
    assert mycel("submit", str(file)) == 0
    job = mycel.out.strip()
    assert mycel("tasks", "--job", job, "--state", "queued") == 0
    heading, *rows = mycel.out.splitlines()
    assert heading.split()[:2] == ["TASK", "STATE"]
    assert [row.split()[0] for row in rows] == [f"{job}.0", f"{job}.1"]
    assert "\033" not in mycel.out
    assert mycel("jobs") == 0
    assert "sweep" in mycel.out
    assert mycel("workers") == 0
    assert "worker-1" in mycel.out
    assert "A100" in mycel.out
    for command in ("tasks", "jobs", "workers"):
        assert mycel(command, "--json") == 0
        assert mycel.json["items"]
    assert mycel("explain", f"{job}.1") == 0
    assert "worker-1: needs 1000 cores, it has 64" in mycel.out
    assert mycel("cancel", f"{job}.1") == 0
    assert mycel("cancel", job, "--json") == 0
    assert mycel.json["state"] == "cancelled"


@pytest.mark.usefixtures("home")
def test_a_reader_that_leaves_is_no_error() -> None:
    code = "from mycel.cli.main import main; import sys; sys.exit(main(['tasks', '--json']))"
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), stdout=writing, stderr=subprocess.PIPE
    )
    os.close(writing)
    assert done.stderr == b""


@pytest.mark.usefixtures("home")
def test_a_list_says_when_there_are_more_rows(mycel: Terminal) -> None:
    for _ in range(3):
        assert mycel("run", "--detach", "--", "true") == 0
    assert mycel("jobs", "--limit", "2") == 0
    assert len(mycel.out.splitlines()) == 3
    assert "there are more than these 2" in mycel.err
    assert mycel("tasks", "--limit", "3") == 0
    assert mycel.err == ""
    assert mycel("tasks", "--limit", "2", "--json") == 0
    assert (len(mycel.json["items"]), mycel.json["more"]) == (2, True)


@pytest.mark.usefixtures("home")
def test_lists_are_filtered(mycel: Terminal) -> None:
    assert mycel("run", "--name", "one", "--detach", "--", "true") == 0
    assert mycel("run", "--name", "two", "--detach", "--", "false") == 0
    assert mycel("jobs", "--name", "t*", "--json") == 0
    assert [job["name"] for job in mycel.json["items"]] == ["two"]
    assert mycel("tasks", "--state", "failed", "--user", "owner", "--json") == 0
    assert [task["name"] for task in mycel.json["items"]] == ["two"]
    assert mycel("jobs", "--until", "2001-01-01", "--json") == 0
    assert mycel.json["items"] == []
    assert mycel("jobs", "--since", "2000d") == 0
    assert "two" in mycel.out
    assert mycel("jobs", "--since", "soon") == 2
    assert "2h" in mycel.err


def test_a_task_is_shown_with_its_own_parameters() -> None:
    def shown(**fields: Any) -> str:
        return what_runs(Task("j.0", "j", "queued", **fields))

    words = ["./train", "--lr", "${lr}", "--seed={seed}", "${HOME}"]
    sweep = shown(command=words, arguments={"lr": 0.1, "seed": 2})
    assert sweep == "lr=0.1, seed=2: ./train --lr 0.1 --seed=2 ${HOME}"
    assert shown(command=["wc", "-l"], arguments=["a.txt"]) == "wc -l a.txt"
    assert shown(python="m:f", arguments={"lr": 0.1, "name": "x"}) == 'm:f(lr=0.1, name="x")'
    assert shown(python="m:f", arguments=[1, "x"]) == 'm:f(1, "x")'
    assert shown(model="llama", input={"text": "hi"}) == 'llama {"text":"hi"}'
    assert shown(image="alpine", command=["echo", "a\nb"]) == "alpine: echo a b"


def test_workers_of_one_name_are_told_apart() -> None:
    peers = ("12D3KooWaaaaaa", "12D3KooWbbbbbb", "12D3KooWcccccc")
    named = zip(peers, ("box", "box", "lab"), strict=True)
    workers = [Worker(peer, name, "healthy", {}) for peer, name in named]
    assert list(names_of(workers).values()) == ["box~aaaaaa", "box~bbbbbb", "lab"]


# How things look


@pytest.mark.parametrize("width", [None, 200, 120, 80, 60, 40, 20])
def test_a_table_fits_its_terminal(width: int | None) -> None:
    columns = (
        "ID",
        Column("NAME", least=8),
        Column("RAN", leaves=1),
        Column("PEER", least=8, keeps_end=True),
        Column("WHY", wraps=True),
    )
    why = "it was told to go, and went where nobody has been before, it seems"
    lines = [tuple(one if isinstance(one, str) else one.heading for one in columns)]
    lines += [("abc.1", "a name that is long " * 3, "12 s", "12D3KooWEnd", why)]
    shown = [
        "  ".join(cells).rstrip()
        for cells in fitted(
            [one if isinstance(one, Column) else Column(one) for one in columns], lines, width
        )
    ]
    everything = " ".join(shown)
    if width is None or width == 200:
        assert len(shown) == 2
        assert why in everything
        return
    if width >= 60:
        assert all(len(line) <= width for line in shown), shown
    assert "abc.1" in everything
    assert "End" in everything
    assert ("12 s" in everything) == (width >= 60)
    assert all(word in everything.split() for word in why.split())


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 ms"), (0.0123, "12 ms"), (1, "1.0 s"), (75, "75 s"), (300, "5 min"), (90000, "25 h")],
)
def test_durations_have_one_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_sizes_have_one_unit() -> None:
    assert [size(number) for number in (0, 999, 1500, 32e9)] == ["0 B", "999 B", "1.5 kB", "32 GB"]


def test_what_is_written_as_toml_reads_back() -> None:
    import tomllib

    table = {
        "a": 1,
        "b": {"c": 'x"\\\n', "odd key": [1.5, True, "é"], "d": {"e": [{"f": 1}]}},
        "empty": {},
    }
    read = tomllib.loads(toml_writer.dumps(table))
    assert read == {"a": 1, "b": table["b"]}
    assert toml_writer.merged({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}}) == {"a": {"b": 3, "c": 2}}


# Completion, and what was mistyped


def offered(*words: str) -> list[str]:
    return candidates(list(words))


def test_commands_options_and_choices_are_completed() -> None:
    assert offered("su") == ["submit"]
    assert set(offered("")) > {"run", "help", "context"}
    assert offered("help", "wor") == ["workers", "worker"]
    assert offered("submit", "--fo") == ["--follow"]
    assert offered("token", "narrow", "--ex") == ["--expires"]
    assert offered("token", "nar") == ["narrow"]
    assert offered("store", "exp") == ["export"]
    assert offered("store", "check", "--rep") == ["--repair"]
    assert offered("run", "--sandbox", "") == ["required", "auto"]
    assert offered("tasks", "--state", "f") == ["failed"]
    assert offered("submit", "fi") == []  # a file: the shell knows them
    assert offered("nonsense", "") == []


@pytest.mark.usefixtures("home")
def test_ids_and_names_are_completed(mycel: Terminal) -> None:
    assert mycel("run", "--detach", "--", "true") == 0
    task = mycel.out.strip()
    job = task.partition(".")[0]
    assert offered("show", "") == [job]
    assert offered("explain", job[:20]) == [task]
    assert offered("drain", "wor") == ["worker-1"]
    assert mycel("__complete", "cancel", "") == 0
    assert mycel.out == f"{job}\n"


def test_nothing_is_offered_where_there_is_no_swarm(tmp_path: Path) -> None:
    assert offered("show", "--home", str(tmp_path), "") == []


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {"demo"}))
def test_completion_runs_no_command(command: str) -> None:
    entry = COMMANDS[command]
    function = getattr(importlib.import_module(entry.module), entry.function)
    with parsers_only(), pytest.raises(Parsed):
        function([])


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_scripts_are_what_their_shells_read(mycel: Terminal, shell: str) -> None:
    assert mycel("completion", shell) == 0
    assert "mycel __complete" in mycel.out
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    subprocess.run([program, "-n"], input=mycel.out, text=True, check=True)


def test_bash_completes(mycel: Terminal, tmp_path: Path) -> None:
    assert mycel("completion", "bash") == 0
    (tmp_path / "mycel").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mycel "$@"\n')
    (tmp_path / "mycel").chmod(0o755)
    asks = f'PATH="{tmp_path}:$PATH"; COMP_WORDS=(mycel submit --dr); COMP_CWORD=2; _mycel; '
    done = subprocess.run(
        ["bash", "-c", mycel.out + asks + 'echo "${COMPREPLY[@]}"'],
        capture_output=True,
        text=True,
        env=environment(),
    )
    assert done.stdout == "--dry-run\n", done.stderr


def test_help_of_a_command(mycel: Terminal) -> None:
    assert mycel("help", "submit") == 0
    assert "usage: mycel submit" in mycel.out
