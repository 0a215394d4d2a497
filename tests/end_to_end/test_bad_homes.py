"""Homes in which something is wrong: each is named, with what to do, and nothing is lost."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from .conftest import SwarmMaker
from .swarm import Finished, Swarm, processes_of


def refused(swarm: Swarm, *options: str) -> str:
    """What `mycel up` says when it cannot; nothing runs afterwards."""
    done = swarm.mycel("up", "--detach", "--json", "--workers", "1", *(options or ("--port", "0")))
    assert (done.code, done.out) == (1, ""), done
    assert "Traceback" not in done.err, done
    assert not processes_of(swarm.home)
    return done.err


def test_a_port_in_use(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        said = refused(swarm, "--port", str(port))
    assert str(port) in said
    assert "--port 0" in said


def test_a_port_of_libp2p_in_use(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm()
    swarm.up(workers=1)
    port = swarm.ports["worker-1"]
    swarm.mycel("down")
    with socket.create_server(("127.0.0.1", port)):
        assert str(port) in refused(swarm)
    swarm.up()


def run_role(swarm: Swarm, role: str, *options: str) -> Finished:
    return swarm.mycel(role, *options, seconds=30)


@pytest.mark.parametrize("role", ["scheduler", "gateway", "worker-1"])
def test_a_home_in_use(swarm: Swarm, role: str) -> None:
    config = str(swarm.home / role / "config.toml")
    done = run_role(swarm, role.partition("-")[0], "--name", role, "--config", config)
    assert done.code == 1
    assert "in use" in done.err
    assert str(swarm.pids[role]) in done.err
    assert "Traceback" not in done.err
    assert swarm.client.run("tests.end_to_end.workload:add", 2, 3) == 5


@pytest.mark.parametrize("key", ["owner.key", "scheduler/identity.key", "worker-1/identity.key"])
@pytest.mark.parametrize("content", [b"no key at all\n", b""])
def test_a_key_file_that_holds_no_key(make_swarm: SwarmMaker, key: str, content: bytes) -> None:
    swarm = make_swarm()
    path = swarm.home / key
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o600)
    assert str(path) in refused(swarm)
    assert path.read_bytes() == content, "a key is never overwritten"


def test_a_key_file_that_cannot_be_read(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm()
    path = swarm.home / "owner.key"
    path.mkdir()  # a mode without rights would not keep root from reading it
    assert str(path) in refused(swarm)


def test_a_key_that_others_may_read(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm()
    swarm.up(workers=1)
    swarm.mycel("down")
    key = swarm.home / "scheduler" / "identity.key"
    key.chmod(0o644)
    said = refused(swarm)
    assert str(key) in said
    assert "chmod" in said
    key.chmod(0o600)
    swarm.up()


@pytest.mark.parametrize("damage", ["garbage", "truncated", "a page of zeros"])
def test_a_corrupt_database(make_swarm: SwarmMaker, damage: str) -> None:
    swarm = make_swarm()
    swarm.up(workers=1)
    for _ in range(20):
        swarm.client.submit_task(command=["true"], wait=30)
    swarm.mycel("down")
    journal = swarm.journal
    whole = journal.read_bytes()
    damaged = {
        "garbage": b"this is no database\n" * 1000,
        "truncated": whole[: len(whole) // 2],
        "a page of zeros": whole[:4096] + b"\0" * 4096 + whole[8192:],
    }[damage]
    journal.write_bytes(damaged)
    for beside in swarm.home.glob("scheduler/journal.db-*"):
        beside.unlink()
    said = refused(swarm)
    assert str(journal) in said
    assert journal.read_bytes() == damaged, "what may still be saved is not touched"
    journal.write_bytes(whole)
    swarm.up()
    assert swarm.client.stats()["tasks_succeeded"] == 20


def test_a_corrupt_spool(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm()
    spool = swarm.home / "worker-1" / "spool.db"
    spool.parent.mkdir(mode=0o700)
    spool.write_bytes(b"this is no database\n" * 1000)
    assert str(spool) in refused(swarm)


def test_what_a_worker_was_asking_of_its_machine_ends_with_it(
    make_swarm: SwarmMaker, tmp_path: Path
) -> None:
    swarm = make_swarm()
    podman = tmp_path / "programs" / "podman"
    podman.parent.mkdir()
    podman.write_text("#!/bin/sh\nexec sleep 600\n")
    podman.chmod(0o755)
    swarm.environment["PATH"] = f"{podman.parent}:{swarm.environment['PATH']}"
    journal = swarm.home / "scheduler" / "journal.db"
    journal.parent.mkdir(mode=0o700)
    journal.write_bytes(b"this is no database\n" * 1000)
    assert str(journal) in refused(swarm)


@pytest.mark.parametrize(
    ("text", "line", "key"),
    [
        ("[worker]\ncpu_cores = 2\ncolour = 1\n", 3, "colour"),
        ("[scheduler.retry]\n\nmax_atempts = 3\n", 3, "max_atempts"),
        ("[nonsense]\nkey = 1\n", 1, "nonsense"),
        ("[worker]\ncpu_cores = -1\n", 2, "cpu_cores"),
        ("[scheduler]\ntask_timeout = 'long'\n", 2, "task_timeout"),
    ],
)
def test_a_mistake_in_the_settings(make_swarm: SwarmMaker, text: str, line: int, key: str) -> None:
    swarm = make_swarm(text)
    said = refused(swarm)
    assert str(swarm.home / "mycel.toml") in said
    assert f"line {line}" in said
    assert key in said


def test_settings_that_are_not_toml(make_swarm: SwarmMaker) -> None:
    said = refused(make_swarm("[worker\n"))
    assert "mycel.toml" in said
    assert "line 1" in said


def test_a_config_of_a_role_with_an_unknown_key(make_swarm: SwarmMaker, tmp_path: Path) -> None:
    swarm = make_swarm("")
    config = tmp_path / "own.toml"
    config.write_text("[scheduler]\n\n\nmax_concurrent_taks = 3\n")
    done = run_role(swarm, "scheduler", "--config", str(config))
    assert done.code == 1, done
    assert f"{config}, line 4" in done.err
    assert "max_concurrent_taks" in done.err


def test_a_home_that_is_a_file(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm("")
    swarm.home.rmdir()
    swarm.home.write_text("")
    done = swarm.mycel("up", "--detach", "--port", "0")
    assert done.code == 1
    assert str(swarm.home) in done.err
    assert "Traceback" not in done.err


def test_no_swarm_is_said_to_be_none(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm("")
    done = swarm.mycel("tasks")
    assert done.code == 1
    assert "mycel up" in done.err
    assert swarm.mycel("run", "--", "true").code == 125


def test_a_damaged_state_file(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm()
    (swarm.home / "swarm.json").write_text("{")
    assert str(swarm.home / "swarm.json") in refused(swarm)
