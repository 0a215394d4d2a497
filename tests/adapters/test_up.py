"""`mycel up` and `mycel down`, with stand-ins for the roles' programs."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mycel.access.home import Home
from mycel.cli.main import main
from mycel.local import local_swarm, role_processes

pytest.importorskip("mycel._native", reason="identities come from the native extension")

PYTHON = sys.executable
STUB = Path(__file__).with_name("stub_role.py")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home whose roles are stubs; what a test leaves running is stopped."""
    interpreter = tmp_path / "interpreter"
    interpreter.write_text(f'#!/bin/sh\nexec "{PYTHON}" "{STUB}" "$@"\n')
    interpreter.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(interpreter))
    home = tmp_path / "home"
    yield home
    local_swarm.down(home)


def up(capsys: pytest.CaptureFixture[str], home: Path, *options: str) -> Any:
    arguments = ["up", "--home", str(home), "--detach", "--json", *options]
    code = main(arguments)
    out, err = capsys.readouterr()
    assert code == 0, err
    return json.loads(out)


def ports_of(home: Path) -> list[int]:
    file = json.loads((home / "swarm.json").read_text())
    return [file["api_port"], *file["ports"].values()]


def is_listening(port: int) -> bool:
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", port)) == 0


def test_up_prints_one_object(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = up(capsys, home, "--port", "0", "--workers", "3")
    assert list(printed) == ["api", "home", "pids"]
    assert list(printed["pids"]) == ["gateway", "scheduler", "worker-1", "worker-2", "worker-3"]
    assert printed["home"] == str(home)
    shown = up(capsys, home, "--show-token")
    assert (home / "token").read_text().strip() == shown.pop("token")
    assert shown == printed
    assert stat.S_IMODE((home / "token").stat().st_mode) == 0o600
    assert role_processes.running(Home(home)) == printed["pids"]


def test_up_again_starts_what_is_missing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = up(capsys, home, "--port", "0")
    assert up(capsys, home) == first
    os.kill(first["pids"]["worker-2"], signal.SIGKILL)
    os.waitpid(first["pids"]["worker-2"], 0)
    second = up(capsys, home)
    assert second["pids"].pop("worker-2") != first["pids"].pop("worker-2")
    assert second == first
    ports = ports_of(home)
    assert main(["down", "--home", str(home)]) == 0
    capsys.readouterr()
    third = up(capsys, home)
    assert third["api"] == first["api"]
    assert ports_of(home) == ports


def test_down_leaves_neither_process_nor_port(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pids = up(capsys, home, "--port", "0")["pids"]
    assert all(is_listening(port) for port in ports_of(home))
    assert main(["down", "--home", str(home), "--json"]) == 0
    stopped = json.loads(capsys.readouterr().out)["stopped"]
    assert {role["name"]: role["pid"] for role in stopped} == pids
    assert not any(role["killed"] for role in stopped)
    assert not any(is_listening(port) for port in ports_of(home))
    assert main(["down", "--home", str(home)]) == 0
    assert capsys.readouterr().out == "nothing was running\n"


def test_what_does_not_stop_is_killed(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    up(capsys, home, "--port", "0", "--workers", "1")
    (home / "stubborn").write_text("worker-1")
    stopped = role_processes.stop(Home(home), grace_seconds=0.2)
    assert "worker-1" in [role.name for role in stopped if role.killed]
    assert not role_processes.running(Home(home))


def test_a_port_in_use_is_named_and_nothing_is_left(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code = main(["up", "--home", str(home), "--detach", "--port", str(port)])
    out, err = capsys.readouterr()
    assert (code, out) == (1, "")
    assert f"port {port} for the API is in use" in err
    assert "--port 0" in err
    assert not role_processes.running(Home(home))


def test_a_role_that_fails_is_quoted_and_nothing_is_left(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home.mkdir()
    (home / "fails").write_text("worker-1")
    code = main(["up", "--home", str(home), "--detach", "--port", "0"])
    err = capsys.readouterr().err
    assert code == 1
    assert "worker-1 has ended with code 3" in err
    assert "the stub has no wish to live" in err
    assert not role_processes.running(Home(home))


def test_workers_share_the_machine(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home.mkdir()
    (home / "mycel.toml").write_text('[worker]\nlabels = { rack = "a b" }\n')
    up(capsys, home, "--port", "0", "--workers", "2")
    settings = tomllib.loads((home / "worker-2" / "config.toml").read_text())
    cores = len(os.sched_getaffinity(0))
    assert settings["worker"]["cpu_cores"] == max(1, cores // 2)
    assert settings["worker"]["labels"] == {"rack": "a b"}
    assert settings["worker"]["name"] == "worker-2"
    assert settings["swarm"]["bootstrap"][0].startswith("/ip4/127.0.0.1/tcp/")


def swarm_of(home: Path, name: str) -> Any:
    return tomllib.loads((home / name / "config.toml").read_text())["swarm"]


def test_roles_listen_where_the_users_settings_say(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else nobody from another machine could ever join."""
    home.mkdir()
    settings = home / "mycel.toml"
    settings.write_text('[swarm]\nlisten = ["/ip4/0.0.0.0/tcp/0", "/ip6/::/tcp/0"]\n')
    up(capsys, home, "--port", "0", "--workers", "1")
    ports = json.loads((home / "swarm.json").read_text())["ports"]
    for name in ("gateway", "scheduler", "worker-1"):
        port = ports[name]
        assert swarm_of(home, name)["listen"] == [f"/ip4/0.0.0.0/tcp/{port}", f"/ip6/::/tcp/{port}"]
    [bootstrap] = swarm_of(home, "worker-1")["bootstrap"]
    assert bootstrap.startswith(f"/ip4/127.0.0.1/tcp/{ports['gateway']}/p2p/")


def test_the_gateway_takes_the_port_that_is_named_and_others_have_their_own(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = home / "mycel.toml"
    settings.write_text(f'[swarm]\nlisten = ["/ip4/127.0.0.1/tcp/{port}"]\n')
    up(capsys, home, "--port", "0", "--workers", "1")
    assert swarm_of(home, "gateway")["listen"] == [f"/ip4/127.0.0.1/tcp/{port}"]
    assert swarm_of(home, "worker-1")["listen"] != [f"/ip4/127.0.0.1/tcp/{port}"]
    [bootstrap] = swarm_of(home, "worker-1")["bootstrap"]
    assert bootstrap.startswith(f"/ip4/127.0.0.1/tcp/{port}/p2p/")
    # While it runs it stays where it is, and what is started beside it finds it there.
    settings.write_text(f'[swarm]\nlisten = ["/ip4/127.0.0.1/tcp/{port + 1}"]\n')
    up(capsys, home, "--workers", "2")
    [bootstrap] = swarm_of(home, "worker-2")["bootstrap"]
    assert bootstrap.startswith(f"/ip4/127.0.0.1/tcp/{port}/p2p/")


def test_a_port_in_use_that_the_settings_name_is_changed_there(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        settings = home / "mycel.toml"
        settings.write_text(f'[swarm]\nlisten = ["/ip4/127.0.0.1/tcp/{port}"]\n')
        assert main(["up", "--home", str(home), "--detach", "--port", "0"]) == 1
    told = capsys.readouterr().err
    assert f"port {port}, which swarm.listen of {settings} names, is in use" in told


def test_a_mistake_in_the_users_settings_is_reported_with_its_line(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home.mkdir()
    (home / "mycel.toml").write_text("[worker]\ncolour = 1\n")
    assert main(["up", "--home", str(home), "--detach", "--port", "0"]) == 1
    assert "mycel.toml, line 2" in capsys.readouterr().err


def test_in_the_foreground_a_signal_stops_everything(home: Path) -> None:
    code = "import sys; sys.executable = sys.argv.pop(1); "
    code += "from mycel.cli.main import main; sys.exit(main())"
    process = subprocess.Popen(
        [PYTHON, "-c", code, sys.executable, "up", "--home", str(home), "--port", "0", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert process.stdout is not None
    printed = json.loads(process.stdout.readline())
    assert role_processes.running(Home(home)) == printed["pids"]
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 0
    process.communicate()
    assert not role_processes.running(Home(home))
