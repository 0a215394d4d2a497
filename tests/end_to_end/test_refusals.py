"""Nodes that a swarm cannot take in: each says why, and is counted where it was refused."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from mycel.access import invites, tokens
from mycel.access.founder import founder_of
from mycel.access.home import Home
from mycel.access.join_shares import shared_out
from mycel.access.tokens import Statement

from .conftest import QUICK
from .rest import call
from .swarm import Swarm, eventually
from .test_access import gateway_address, invite
from .test_discovery import scraped

faketime = shutil.which("faketime")


@pytest.fixture(scope="module")
def founded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swarm]:
    """Every test here brings one more who is refused."""
    settings = QUICK + '\n[gateway]\nmetrics_address = "127.0.0.1:0"\n'
    swarm = Swarm(tmp_path_factory.mktemp("founded") / "home", settings)
    try:
        swarm.up(workers=1)
        yield swarm
    finally:
        swarm.stop()


@pytest.fixture
def guest(tmp_path: Path) -> Iterator[Swarm]:
    swarm = Swarm(tmp_path / "guest")
    yield swarm
    swarm.stop()


def refusals(swarm: Swarm, reason: str) -> int:
    """As the gateway counts them."""
    done = swarm.mycel("up", "--detach", "--json")
    text = scraped(done.json["metrics"]["gateway"])
    found = re.search(rf'mycel_swarm_refusals_total{{reason="{reason}"}} (\S+)', text)
    return 0 if found is None else int(float(found[1]))


@pytest.mark.skipif(faketime is None, reason="no faketime: scripts/install-test-tools installs it")
@pytest.mark.parametrize(("shift", "way"), [("+3h", "ahead"), ("-3h", "behind")])
def test_a_clock_that_is_hours_off(founded: Swarm, guest: Swarm, shift: str, way: str) -> None:
    before = refusals(founded, "clock")
    # Its wall clock alone: a machine's other clocks run as they do.
    guest.environment |= {"DONT_FAKE_MONOTONIC": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    guest.environment |= {"FAKETIME": shift, "LD_PRELOAD": faketime_library()}
    done = guest.mycel("worker", "--join", invite(founded))
    assert done.code == 1
    assert re.search(rf"your clock is 10[78]\d\d s {way}", done.err), done.err
    assert "set this machine's clock" in done.err
    assert refusals(founded, "clock") > before


def faketime_library() -> str:
    """What the tool of that name preloads."""
    [found, *_] = sorted(Path("/usr/lib").glob("**/faketime/libfaketime.so.1"))
    return str(found)


def test_an_expired_invite(founded: Swarm, guest: Swarm) -> None:
    founder = founder_of(Home(founded.home), "mycel")
    grant = Statement(roles=("worker",), expires_at=time.time() - 3600)
    shares = shared_out([gateway_address(founded)], [], 1)
    grant = msgspec.structs.replace(grant, invite=shares.terms)
    token = tokens.issue(founder.secret, "mycel", grant)
    text = invites.to_text(invites.Invite("mycel", shares.gateways, founder.public, token))
    done = guest.mycel("worker", "--join", text)
    assert done.code == 1
    assert "this invite has expired" in done.err
    assert "ask for a new one" in done.err


def make_member(
    founded: Swarm, guest: Swarm, text: str, roles: tuple[str, ...], seconds: float = 3600
) -> None:
    """As if it had joined by the invite some time ago, by a token that lasts so long."""
    home = Home(guest.home)
    folder = home.role("worker")
    application = invites.redeem(invites.from_text(text), home, folder, "worker")
    assert application is not None
    secret = bytes.fromhex(folder.identity_path.read_text())
    peer = tokens.native().identity(secret)[1]
    founder = founder_of(Home(founded.home), "mycel")
    grant = Statement(roles=roles, expires_at=time.time() + seconds, peer=peer)
    application.accept(folder, tokens.issue(founder.secret, "mycel", grant))


def test_a_token_that_expired_since_it_joined(founded: Swarm, guest: Swarm) -> None:
    """The machine was off meanwhile."""
    make_member(founded, guest, invite(founded), ("worker",), -3600)
    before = refusals(founded, "expired")
    done = guest.mycel("worker")
    assert done.code == 1
    assert "token has expired" in done.err
    assert "ask for a new invite" in done.err
    assert refusals(founded, "expired") > before


def test_a_token_for_another_role(founded: Swarm, guest: Swarm) -> None:
    make_member(founded, guest, invite(founded), ("scheduler",))
    done = guest.mycel("worker")
    assert done.code == 1
    assert "is for scheduler, not for a worker" in done.err


@pytest.mark.parametrize("role", ["gateway", "scheduler", "worker"])
def test_a_revoked_invite(founded: Swarm, guest: Swarm, role: str) -> None:
    text = invite(founded, "--role", role)
    assert founded.mycel("token", "revoke", text).code == 0
    before = refusals(founded, "revoked")
    port = ("--port", "0") if role == "scheduler" else ()
    done = guest.mycel(role, "--join", text, *port)
    assert done.code == 1
    assert "token was revoked" in done.err
    assert "ask for a new invite" in done.err
    assert refusals(founded, "revoked") > before


def test_a_gateway_that_reaches_no_other(founded: Swarm, guest: Swarm) -> None:
    peer = gateway_address(founded).rpartition("/")[2]
    nowhere = f"/ip4/127.0.0.1/tcp/1/p2p/{peer}"
    text = invite(founded, "--role", "gateway", "--gateway", nowhere)
    done = guest.mycel("gateway", "--join", text)
    assert done.code == 1
    assert "no gateway of the swarm can be reached" in done.err
    assert "Connection refused" in done.err


def test_a_member_that_starts_while_no_gateway_can_be_reached(founded: Swarm, guest: Swarm) -> None:
    nowhere = f"/ip4/127.0.0.1/tcp/1/p2p/{gateway_address(founded).rpartition('/')[2]}"
    make_member(founded, guest, invite(founded, "--gateway", nowhere), ("worker",))
    process = guest.popen("worker")
    log = guest.home / "worker" / "log.jsonl"
    eventually(
        lambda: log.exists() and "no gateway of the swarm can be reached" in log.read_text(),
        "it says what is wrong",
    )
    assert process.poll() is None, "and keeps trying"
    process.terminate()
    _, told = process.communicate(timeout=30)
    assert b"Connection refused" in told


OLDER = """
import mycel.core.messages

mycel.core.messages.WIRE_VERSION = 0
"""


def test_a_worker_of_another_wire_version(founded: Swarm, guest: Swarm, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(OLDER)
    guest.environment["PYTHONPATH"] = f"{site}:{guest.environment['PYTHONPATH']}"
    process = guest.popen("worker", "--name", "old", "--join", invite(founded))
    log = guest.home / "old" / "log.jsonl"
    eventually(
        lambda: log.exists() and "it speaks version 0, this scheduler 3" in log.read_text(),
        "the worker knows why nobody wants it",
    )
    metrics = call(founded, "GET", "/metrics").body.decode()
    counted = re.search(r"\nmycel_scheduler_workers_refused_total (\S+)", metrics)
    assert counted is not None
    assert float(counted[1]) == 1, "it waits before it asks again"
    assert founded.worker_state("old") == ""
    process.terminate()
    _, told = process.communicate(timeout=30)
    assert b"use the same release on all machines" in told
