"""How machines come into a swarm: as a node of two roles, by a delegate's word, and while a
gateway is dead."""

from __future__ import annotations

import json
import platform
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from .conftest import QUICK, SwarmMaker
from .rest import call
from .swarm import Swarm, eventually
from .test_access import HOLDS_SECONDS, invite, submit


@pytest.fixture
def founded(make_swarm: SwarmMaker) -> Swarm:
    swarm = make_swarm(QUICK)
    swarm.up(workers=1)
    return swarm


def stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)


def state_of(swarm: Swarm, role: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((swarm.home / role / "state.json").read_text())
    return found


def is_ready(swarm: Swarm, role: str) -> bool:
    return (swarm.home / role / "state.json").exists()


def test_a_node_of_two_roles_joins_by_one_string(founded: Swarm, make_swarm: SwarmMaker) -> None:
    guest = make_swarm("", name="guest")
    text = invite(founded, "--role", "worker", "--role", "scheduler", "--joins", "2")
    settings = guest.home / "guest.toml"
    settings.write_text('[worker]\nname = "guest"\n')
    start = ("node", "--config", str(settings), "--port", "0")
    process = guest.popen(*start, "--join", text)
    eventually(lambda: founded.worker_state("guest") == "healthy", "its worker works for others")
    asked = guest.mycel("workers")
    assert (asked.code, "mycel user add" in asked.err) == (1, True), "it says where a token is had"
    token = founded.mycel("user", "add", "nina").out.strip()
    guest.api, guest.token = state_of(guest, "scheduler")["api"], token
    eventually(lambda: guest.healthy() == 2, "its scheduler has both workers")
    assert submit(guest, "?wait=30")["state"] == "succeeded"
    stop(process)
    assert process.returncode == 0
    again = guest.popen(*start)  # without the invite
    eventually(lambda: founded.worker_state("guest") == "healthy", "it comes back by itself")
    stop(again)


def test_an_invite_is_for_as_many_as_it_says(founded: Swarm, make_swarm: SwarmMaker) -> None:
    made = founded.mycel("invite")
    gateway = state_of(founded, "gateway")["addresses"][0]
    assert f"mycel: 1 node may join by it, at {gateway}" in made.err, made
    text = made.out.strip()
    shown = founded.mycel("token", "inspect", text, "--json").json
    assert (shown["joins"], shown["admitted_by"], shown["bound"]) == (1, None, False)
    many = founded.mycel("invite", "--joins", "5", "--json").json
    assert (many["joins"], many["places"]) == (5, [{"gateways": [gateway], "joins": 5}])
    for number in ("0", "1000001"):
        refused = founded.mycel("invite", "--joins", number)
        assert (refused.code, "from 1 to 1000000 can join" in refused.err) == (1, True)
    bare = founded.mycel("token", "create", "--role", "worker")
    assert (bare.code, "is for one node: name it with --peer" in bare.err) == (2, True)

    guest = make_swarm("", name="guest")
    process = guest.popen("worker", "--name", "guest", "--join", text)
    eventually(lambda: founded.worker_state("guest") == "healthy", "the guest has joined")
    second = make_swarm("", name="second").mycel("worker", "--join", text)
    assert second.code == 1
    assert "invite is used up: 1 may join by it at this gateway, and as many have" in second.err
    assert "mycel invite --joins N" in second.err
    stop(process)
    # The first one is a member, with its invite or without.
    for join in ((), ("--join", text)):
        process = guest.popen("worker", "--name", "guest", *join)
        eventually(lambda: founded.worker_state("guest") == "healthy", "the guest is back")
        stop(process)
        eventually(lambda: founded.worker_state("guest") == "", "the guest has left")


def test_a_node_needs_an_invite_for_both_of_its_roles(
    founded: Swarm, make_swarm: SwarmMaker
) -> None:
    guest = make_swarm("", name="guest")
    done = guest.mycel("node", "--port", "0", "--join", invite(founded))
    assert done.code == 1
    assert "this invite is for worker, not for a scheduler" in done.err


def test_what_a_delegate_gives_on_holds_until_the_delegation_is_revoked(
    founded: Swarm, make_swarm: SwarmMaker, tmp_path: Path
) -> None:
    key, delegation = tmp_path / "delegate.key", tmp_path / "delegation"
    public = founded.mycel("token", "key", str(key)).out.strip()
    assert founded.mycel("token", "key", str(key)).out.strip() == public
    limits = ("--role", "worker", "--action", "submit", "--action", "read", "--priority-max", "3")
    made = founded.mycel("token", "create", "--delegate", public, *limits, "--joins", "2")
    assert (made.code, "in all, 2 nodes may join by it" in made.err) == (0, True), made
    delegation.write_text(made.out)
    signing = ("--delegation", str(delegation), "--key", str(key))

    # The delegate has the owner's public key and no more; nothing of the swarm is asked.
    delegate = make_swarm("", name="delegate")
    (delegate.home / "owner.pub").write_bytes((founded.home / "owner.pub").read_bytes())
    (delegate.home / "owner.pub").chmod(0o600)
    gateway = state_of(founded, "gateway")["addresses"][0]
    too_much = delegate.mycel("invite", *signing, "--role", "scheduler", "--gateway", gateway)
    assert (too_much.code, "does not allow to invite a scheduler" in too_much.err) == (1, True)
    where = ("--gateway", gateway, "--expires", "1h")
    too_many = delegate.mycel("invite", *signing, *where, "--joins", "3")
    assert (too_many.code, "lets 2 join at these gateways, not 3" in too_many.err) == (1, True)
    members = delegate.mycel("token", "create", *signing, "--role", "worker")
    assert (members.code, "makes members by invites" in members.err) == (2, True)
    text = delegate.mycel("invite", *signing, *where).out.strip()
    options = ("--user", "bob", "--priority-max", "9", "--action", "submit", "--action", "read")
    bob = delegate.mycel("token", "create", *signing, *options).out.strip()

    guest = make_swarm("", name="guest")
    process = guest.popen("worker", "--name", "guest", "--join", text)
    eventually(lambda: founded.worker_state("guest") == "healthy", "the guest has joined")
    assert submit(founded, "?wait=30", token=bob)["state"] == "succeeded"
    body = json.dumps({"command": ["true"], "priority": 5})
    refused = call(founded, "POST", "/api/v1/tasks", body, token=bob)
    assert refused.status == 403, "more than was delegated is not given on"

    assert "a delegation" in founded.mycel("token", "inspect", str(delegation)).out
    done = founded.mycel("token", "revoke", str(delegation))
    assert done.code == 0, done
    assert call(founded, "GET", "/api/v1/jobs", token=bob).status == 401
    eventually(lambda: founded.worker_state("guest") == "", "the guest is out", HOLDS_SECONDS)
    assert founded.mycel("token", "inspect", str(delegation), "--json").json["state"] == "revoked"
    log = guest.home / "guest" / "log.jsonl"
    eventually(lambda: "token was revoked" in log.read_text(), "the guest knows why")
    stop(process)
    inspected = founded.mycel("token", "inspect", str(delegation), "--json").json
    assert inspected["joins"] == 2
    late = make_swarm("", name="late").mycel("worker", "--join", text)
    assert (late.code, "token was revoked" in late.err) == (1, True)


def test_a_second_gateway_takes_over(founded: Swarm, make_swarm: SwarmMaker) -> None:
    other = make_swarm("", name="other")
    other.popen("gateway", "--join", invite(founded, "--role", "gateway"))
    eventually(lambda: is_ready(other, "gateway"), "the second gateway serves")
    second = state_of(other, "gateway")

    def gateways() -> list[str]:
        found: list[str] = call(founded, "GET", "/api/v1/swarm").json["gateways"]
        return found

    eventually(lambda: second["peer"] in gateways(), "the scheduler has met it")
    guest = make_swarm("", name="guest")
    process = guest.popen("worker", "--name", "guest", "--join", invite(founded))
    eventually(lambda: founded.worker_state("guest") == "healthy", "the guest has joined")
    book = guest.home / "guest" / "peers.json"
    eventually(lambda: book.exists() and second["peer"] in book.read_text(), "it has met it too")

    def both_named() -> str:
        text = founded.mycel("invite", "--json", "--joins", "2").json
        named = any(second["peer"] in address for address in text["gateways"])
        return str(text["invite"]) if named else ""

    text = eventually(both_named, "invites name both gateways")

    founded.kill("gateway")
    assert submit(founded, "?wait=30")["state"] == "succeeded"
    assert founded.healthy() == 2
    stop(process)
    eventually(lambda: founded.worker_state("guest") == "", "the guest is gone")
    guest.popen("worker", "--name", "guest")
    eventually(
        lambda: founded.worker_state("guest") == "healthy", "it comes back by whom it has met"
    )
    make_swarm("", name="newcomer").popen("worker", "--name", "newcomer", "--join", text)
    eventually(
        lambda: founded.worker_state("newcomer") == "healthy", "a newcomer joins by the second"
    )
    assert gateways() == [second["peer"]]


def test_a_worker_goes_on_by_itself_and_is_called_after_its_host(
    founded: Swarm, make_swarm: SwarmMaker
) -> None:
    guest = make_swarm("", name="guest")
    done = guest.mycel("worker", "--detach", "--join", invite(founded))
    assert done.code == 0, done
    assert "worker runs as process" in done.out
    host = platform.node().partition(".")[0]
    eventually(lambda: founded.worker_state(host) == "healthy", "the guest has joined")
    again = guest.mycel("worker", "--detach")
    assert (again.code, "home in use" in again.err) == (1, True), again
    # What it submits to is the founder's; the guest's own home says how to get there.
    refused = guest.mycel("run", "--", "true")
    assert (refused.code, "mycel login URL" in refused.err) == (125, True), refused
    sent = guest.mycel("run", "--api", founded.api, "--token", founded.token, "--", "echo", "x")
    assert (sent.code, sent.out) == (0, "x\n"), sent
    assert guest.mycel("down").code == 0
    eventually(lambda: founded.worker_state(host) == "", "the guest has left")
