"""A command line that talks to a swarm that is not of this machine's home."""

from __future__ import annotations

import io
import json
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from mycel.access.home import Home
from mycel.access.tokens import Statement
from mycel.cli.main import main
from mycel.client import Client
from mycel.client.endpoint import Wanted, find
from mycel.client.errors import ContextRefused, NothingToSubmitTo, NotLoggedIn

from .api_access import TOKEN, token_of
from .api_server import Served


@pytest.fixture
def server(shared: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Served:
    """And a user of another machine, who has nothing so far."""
    shared.call(shared.backend.reset)
    for name in ("MYCEL_HOME", "MYCEL_API", "MYCEL_TOKEN", "MYCEL_CONTEXT", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return shared


class Terminal:
    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture
        self.out = self.err = ""

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


def test_login_keeps_the_token_for_its_owner_alone(
    mycel: Terminal, server: Served, tmp_path: Path
) -> None:
    assert mycel("login", server.api, "--token", TOKEN, "--name", "lab") == 0
    assert mycel.out == f"logged in to {server.api} as owner; this is now context 'lab'\n"
    kept = tmp_path / ".config" / "mycel" / "contexts.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert TOKEN in kept.read_text()
    assert mycel("workers", "--json") == 0
    assert mycel.json["items"]
    assert mycel("context") == 0
    assert TOKEN not in mycel.out
    assert mycel.out.splitlines()[-1].split() == ["*", "lab", server.api]
    kept.chmod(0o644)
    assert mycel("workers") == 1
    assert "open to others" in mycel.err


@pytest.mark.parametrize("way", ["file", "stdin", "variable"])
def test_login_takes_a_token_that_others_do_not_see(
    mycel: Terminal, server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    arguments: tuple[str, ...] = ()
    if way == "file":
        (tmp_path / "token").write_text(f"{TOKEN}\n")
        arguments = ("--token", str(tmp_path / "token"))
    elif way == "stdin":
        monkeypatch.setattr(sys, "stdin", io.StringIO(f"{TOKEN}\n"))
        arguments = ("--token", "-")
    else:
        monkeypatch.setenv("MYCEL_TOKEN", TOKEN)
    assert mycel("login", server.api, *arguments, "--json") == 0
    assert mycel.json["context"].startswith("127.0.0.1")
    monkeypatch.delenv("MYCEL_TOKEN", raising=False)
    assert mycel("jobs") == 0


@pytest.mark.parametrize(
    ("token", "said"),
    [("mycel_nonsense", "token"), ("no token", "tokens begin with"), ("", "tokens begin with")],
)
def test_nothing_is_kept_of_a_login_that_is_refused(
    mycel: Terminal, server: Served, tmp_path: Path, token: str, said: str
) -> None:
    assert mycel("login", server.api, "--token", token) == 1
    assert said in mycel.err
    assert not (tmp_path / ".config").exists()
    assert mycel("login", "ftp://nowhere", "--token", TOKEN) == 2
    assert mycel("login", server.api, "--token", TOKEN, "--name", "home") == 1
    assert not (tmp_path / ".config").exists()


def test_contexts_are_switched_and_forgotten(mycel: Terminal, server: Served) -> None:
    submitter = token_of(Statement(user="ada", actions=("submit",)))
    assert mycel("login", server.api, "--token", TOKEN, "--name", "one") == 0
    assert mycel("login", server.api, "--token", submitter, "--name", "two") == 0
    assert mycel("jobs") == 1
    assert "does not allow to read" in mycel.err
    assert mycel("jobs", "--context", "one") == 0
    assert mycel("context", "use", "one") == 0
    assert mycel("jobs") == 0
    assert mycel("context", "use", "home") == 0
    assert mycel("jobs") == 1
    assert "no swarm is running" in mycel.err
    assert mycel("context", "use", "on") == 1
    assert "only home, one, two" in mycel.err
    assert mycel("logout", "one") == 0
    assert mycel("context", "--json") == 0
    assert [one["name"] for one in mycel.json["items"]] == ["home", "two"]
    assert mycel("logout") == 1


def test_an_address_and_a_token_are_enough(
    mycel: Terminal, server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert mycel("jobs", "--api", server.api, "--token", TOKEN) == 0
    assert mycel("jobs", "--api", server.api) == 1
    assert "mycel login" in mycel.err
    monkeypatch.setenv("MYCEL_API", server.api)
    monkeypatch.setenv("MYCEL_TOKEN", TOKEN)
    assert mycel("run", "--", "true") == 0
    assert mycel.out == "out\n"
    with Client() as client:
        assert list(client.jobs())


def test_what_is_nearest_to_the_command_counts(tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    folder = tmp_path / "mycel"
    folder.mkdir()
    one = {"api": "http://one:1", "token": "of one"}
    two = {"api": "https://two", "token": "of two", "ca_file": "/two.pem"}
    file = folder / "contexts.json"
    file.write_text(json.dumps({"current": "one", "contexts": {"one": one, "two": two}}))
    file.chmod(0o600)

    def found(wanted: Wanted | None = None, **variables: str) -> tuple[str, str, str]:
        endpoint = find(wanted or Wanted(), environment | variables)
        return endpoint.address.text, endpoint.token, endpoint.address.trust

    assert found() == ("http://one:1", "of one", "")
    assert found(MYCEL_CONTEXT="two") == ("https://two", "of two", "/two.pem")
    assert found(MYCEL_API="https://two/") == ("https://two", "of two", "/two.pem")
    assert found(MYCEL_API="http://c", MYCEL_TOKEN="t") == ("http://c", "t", "")
    assert found(Wanted(context="two"), MYCEL_API="http://c", MYCEL_TOKEN="t")[1] == "of two"
    assert found(Wanted(api="http://a", token="t"), MYCEL_API="http://c")[0] == "http://a"
    assert found(Wanted(context="one", token="t")) == ("http://one:1", "t", "")
    with pytest.raises(NotLoggedIn):  # no token goes where it was not for
        find(Wanted(api="http://elsewhere"), environment)
    with pytest.raises(ContextRefused):
        find(Wanted(context="three"), environment)
    file.write_text("{")
    with pytest.raises(ContextRefused, match="damaged"):
        find(Wanted(), environment)


def test_a_machine_with_only_a_joined_worker_is_told_how_to_submit(
    server: Served, tmp_path: Path
) -> None:
    folder = Home(tmp_path / "home").role("worker")
    folder.create()
    folder.lock_path.touch()
    folder.joined_path.write_text("{}")
    with pytest.raises(NothingToSubmitTo, match="mycel login URL"):
        Client.from_home(tmp_path / "home")
    # And once it has logged in, it submits, beside its worker.
    with Client(api=server.api, token=TOKEN) as client:
        assert client.submit_task(command=["true"], wait=30).state == "succeeded"


def test_a_mistyped_option_gets_a_hint(mycel: Terminal) -> None:
    assert mycel("tasks", "--stat", "failed") == 2
    assert "did you mean '--state'?" in mycel.err
    assert mycel("context", "ust", "x") == 2
    assert "did you mean 'use'?" in mycel.err
