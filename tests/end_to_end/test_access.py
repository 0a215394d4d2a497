"""Joining by invite, users, and the end of tokens, with real processes."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from .conftest import QUICK, SwarmMaker
from .rest import call
from .swarm import Swarm, eventually

HOLDS_SECONDS = 30.0
"""A revocation reaches connected nodes within this."""
GUEST = '[worker.labels]\nplace = "guest"\n'


@pytest.fixture
def founded(make_swarm: SwarmMaker) -> Swarm:
    swarm = make_swarm(QUICK)
    swarm.up(workers=1)
    return swarm


def invite(swarm: Swarm, *options: str) -> str:
    done = swarm.mycel("invite", "--json", *options)
    assert done.code == 0, done
    text: str = done.json["invite"]
    return text


def submit(swarm: Swarm, query: str = "", token: str = "", **body: Any) -> Any:
    body = {"command": ["true"], **body}
    answer = call(swarm, "POST", f"/api/v1/tasks{query}", json.dumps(body), token=token)
    assert answer.status == 201, answer.body
    return json.loads(answer.body)


def gateway_address(swarm: Swarm) -> str:
    state = json.loads((swarm.home / "gateway" / "state.json").read_text())
    return str(state["addresses"][0])


def test_a_fresh_machine_joins_by_one_string_and_is_cut_off_when_revoked(
    founded: Swarm, make_swarm: SwarmMaker, tmp_path: Path
) -> None:
    guest = make_swarm("", name="guest")
    settings = tmp_path / "guest.toml"
    settings.write_text(GUEST)
    start = ("worker", "--name", "guest", "--config", str(settings))
    text = invite(founded, "--expires", "1h")
    guest.environment["MYCEL_JOIN"] = text
    process = guest.popen(*start)
    eventually(lambda: founded.worker_state("guest") == "healthy", "the guest has joined")
    assert not (guest.home / "owner.key").exists()
    ran = submit(founded, "?wait=30", requirements={"labels": {"place": "guest"}})
    assert (ran["state"], founded.name_of(ran["worker"])) == ("succeeded", "guest")
    token = guest.home / "guest" / "member.token"
    log = guest.home / "guest" / "log.jsonl"
    assert token.read_text().strip() not in log.read_text()
    assert text not in log.read_text()
    assert b"mycel-invite" not in Path(f"/proc/{process.pid}/cmdline").read_bytes()

    nobody = founded.mycel("token", "revoke", "--peer", "nobody")
    assert (nobody.code, "no connected peer is 'nobody'" in nobody.err) == (1, True)
    began = time.monotonic()
    done = founded.mycel("token", "revoke", "--peer", "guest")
    assert (done.code, "can join again" in done.err) == (0, True), done
    eventually(lambda: founded.worker_state("guest") != "healthy", "the guest is cut off")
    assert time.monotonic() - began < HOLDS_SECONDS
    eventually(lambda: "token was revoked" in log.read_text(), "the guest knows why")
    process.terminate()
    process.communicate(timeout=30)

    # Its old invite still names a good token, but the one it made of it is over; a start
    # without the invite says so and ends.
    del guest.environment["MYCEL_JOIN"]
    again = guest.mycel(*start)
    assert again.code == 1
    assert "token was revoked" in again.err
    assert "ask for a new invite" in again.err

    # Whoever has kept the invite can join again, until that is revoked too.
    guest.environment["MYCEL_JOIN"] = text
    process = guest.popen(*start)
    eventually(lambda: founded.worker_state("guest") == "healthy", "the guest is back")
    done = founded.mycel("token", "revoke", "--peer", "guest", "--all")
    assert done.code == 0, done
    eventually(lambda: founded.worker_state("guest") != "healthy", "the guest is cut off again")
    process.terminate()
    process.communicate(timeout=30)
    again = guest.mycel(*start)
    assert (again.code, "token was revoked" in again.err) == (1, True)


def test_bad_invites_end_with_a_message_and_a_counted_refusal(
    founded: Swarm, make_swarm: SwarmMaker
) -> None:
    other = make_swarm(QUICK + '\n[swarm]\nname = "other"\n', name="other")
    other.up(workers=1)
    good = invite(founded)
    peer = gateway_address(founded).rpartition("/")[2]
    mistyped = founded.mycel("invite", "--gateway", f"/ip4/127.0.0.1/tpc/1/p2p/{peer}")
    assert (mistyped.code, "no 'tpc'" in mistyped.err) == (2, True)
    nowhere = invite(founded, "--gateway", f"/ip4/127.0.0.1/tcp/1/p2p/{peer}")
    elsewhere = invite(other, "--gateway", gateway_address(founded))
    for number, (text, role, reason) in enumerate(
        (
            (good[:-9], "worker", "mistyped or cut off"),
            ("hello", "worker", "this is no invite"),
            (good, "scheduler", "this invite is for worker, not for a scheduler"),
            (elsewhere, "worker", "the invite is of another swarm"),
            (nowhere, "worker", "no gateway of the swarm can be reached"),
        )
    ):
        guest = make_swarm("", name=f"guest-{number}")
        done = guest.mycel(role, "--join", text)
        assert done.code == 1, done
        assert reason in done.err
        assert good[40:80] not in done.err
    log = founded.home / "gateway" / "log.jsonl"
    eventually(lambda: "hello_refused" in log.read_text(), "the gateway has noted it")


def test_users_come_and_go(founded: Swarm) -> None:
    token = founded.mycel("user", "add", "alice", "--priority-max", "3").out.strip()
    mine = submit(founded, "?wait=30", token=token)
    assert mine["state"] == "succeeded"
    theirs = submit(founded, "?wait=30")
    jobs = json.loads(call(founded, "GET", "/api/v1/jobs", token=token).body)["items"]
    assert [(job["id"], job["user"]) for job in jobs] == [(mine["job_id"], "alice")]
    assert call(founded, "GET", f"/api/v1/tasks/{theirs['id']}", token=token).status == 404
    again = founded.mycel("user", "add", "alice")
    assert (again.code, "there is a user" in again.err) == (1, True)
    assert founded.mycel("user", "add", "Bad Name").code == 1
    assert founded.mycel("user", "disable", "alice").code == 0
    refused = call(founded, "GET", "/api/v1/jobs", token=token)
    assert (refused.status, "revoked" in refused.body.decode()) == (401, True)
    [listed] = founded.mycel("user", "list", "--json").json["items"]
    assert (listed["name"], listed["disabled_at"] is None) == ("alice", False)


def test_the_owner_revokes_also_when_the_homes_own_token_is_revoked(founded: Swarm) -> None:
    alice = founded.mycel("user", "add", "alice").out.strip()
    own = founded.home / "token"
    assert "spreading" in founded.mycel("token", "revoke", str(own)).out
    assert "revoked" in founded.mycel("tasks").err
    assert "spreading" in founded.mycel("user", "disable", "alice").out
    assert call(founded, "GET", "/api/v1/jobs", token=alice).status == 401
    own.unlink()
    assert founded.mycel("up", "--detach").code == 0
    assert founded.mycel("tasks").code == 0


def test_a_worker_refuses_by_its_own_rules_and_explain_says_so(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm(QUICK + '\n[worker.accept]\nusers = ["bob"]\n')
    swarm.up(workers=1)
    waiting = submit(swarm)["id"]
    bob = swarm.mycel("user", "add", "bob").out.strip()
    assert submit(swarm, "?wait=30", token=bob)["state"] == "succeeded"

    def refused() -> bool:
        told = call(swarm, "GET", f"/api/v1/tasks/{waiting}/explain").body
        return b"it takes no work of the user owner" in told

    eventually(refused, "explain says why")


def test_tokens_are_narrowed_offline(founded: Swarm) -> None:
    narrowed = founded.mycel("token", "narrow", "--action", "read", "--expires", "1h")
    token = narrowed.out.strip()
    assert call(founded, "GET", "/api/v1/workers", token=token).status == 200
    assert call(founded, "POST", "/api/v1/tasks", "{}", token=token).status == 403
    facts = founded.mycel("token", "inspect", token, "--json").json
    assert (facts["state"], facts["actions"], facts["user"]) == ("valid", ["read"], "owner")
    assert founded.mycel("token", "revoke", token).code == 0
    assert founded.mycel("token", "inspect", token, "--json").json["state"] == "revoked"
    assert call(founded, "GET", "/api/v1/workers", token=token).status == 401
    assert call(founded, "GET", "/api/v1/workers").status == 200
