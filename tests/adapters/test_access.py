"""Keys, tokens and the home folder."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from mycel.access import users
from mycel.access.errors import (
    HomeInUse,
    HomeUnusable,
    NotFounder,
    SecretCorrupt,
    SecretExists,
    SecretExposed,
    SecretMissing,
    SecretUnreadable,
    StateCorrupt,
)
from mycel.access.founder import found, founder_of, owner_public_of
from mycel.access.home import Home, find_home, read_state, write_state
from mycel.access.key_files import (
    create_key,
    load_key,
    load_or_create_key,
    store_key,
    store_public_key,
)
from mycel.access.tokens import (
    Statement,
    from_text,
    inspect,
    load_api_token,
    load_member_token,
    native,
    store_member_token,
)
from mycel.cli.main import main
from mycel.cli.revocation import revoke
from mycel.core.rights import ACTIONS
from mycel.membership.revocations import read_records
from mycel.swarm.errors import InvalidToken

SOURCE = Path(__file__).parents[2] / "src"
AS_ROOT = os.geteuid() == 0


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


class TestKeys:
    def test_a_key_comes_back(self, tmp_path: Path) -> None:
        path = tmp_path / "identity.key"
        secret = create_key(path)
        assert len(secret) == 32
        assert load_key(path) == secret
        assert load_or_create_key(path) == secret
        assert mode(path) == 0o600
        assert [file.name for file in tmp_path.iterdir()] == ["identity.key"]

    def test_an_existing_key_is_not_overwritten(self, tmp_path: Path) -> None:
        path = tmp_path / "identity.key"
        store_key(path, bytes(range(32)))
        with pytest.raises(SecretExists, match=r"identity\.key"):
            create_key(path)
        assert load_key(path) == bytes(range(32))

    def test_many_at_once_agree_on_one(self, tmp_path: Path) -> None:
        path = tmp_path / "identity.key"
        with ThreadPoolExecutor(8) as threads:
            found = set(threads.map(lambda _: load_or_create_key(path), range(32)))
        assert len(found) == 1

    def test_missing(self, tmp_path: Path) -> None:
        with pytest.raises(SecretMissing, match=r"the owner's key.*owner\.key"):
            load_key(tmp_path / "owner.key", "the owner's key")
        with pytest.raises(SecretMissing, match="folder"):
            create_key(tmp_path / "nowhere" / "owner.key")

    @pytest.mark.parametrize("exposed", [0o640, 0o604, 0o660, 0o610])
    def test_open_to_others(self, tmp_path: Path, exposed: int) -> None:
        path = tmp_path / "identity.key"
        create_key(path)
        path.chmod(exposed)
        with pytest.raises(SecretExposed, match="chmod 600"):
            load_key(path)

    @pytest.mark.parametrize(
        "content", [b"", b"00", b"00" * 31, b"00" * 33, b"zz" * 32, b"\xff" * 64, b"0" * 100_000]
    )
    def test_corrupt(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "identity.key"
        path.write_bytes(content)
        path.chmod(0o600)
        with pytest.raises(SecretCorrupt, match=r"identity\.key"):
            load_key(path)

    def test_a_folder_in_its_place(self, tmp_path: Path) -> None:
        with pytest.raises(SecretUnreadable):
            load_key(tmp_path)

    @pytest.mark.skipif(AS_ROOT, reason="nothing is closed to root")
    def test_closed_to_this_user(self, tmp_path: Path) -> None:
        path = tmp_path / "identity.key"
        create_key(path)
        path.chmod(0)
        with pytest.raises(SecretUnreadable, match="belong"):
            load_key(path)


class TestTokens:
    def test_founding(self, tmp_path: Path) -> None:
        home = Home(tmp_path)
        with pytest.raises(NotFounder, match=r"owner\.key"):
            founder_of(home, "test")
        with pytest.raises(SecretMissing, match="--join"):
            owner_public_of(home)
        founder = found(home, "test")
        assert found(home, "test") == founder_of(home, "test") == founder
        assert owner_public_of(home) == founder.public
        token = load_api_token(home.token_path)
        rights = inspect(founder.public, from_text(token))
        assert (rights.swarm, rights.user, rights.is_bound) == ("test", "owner", False)
        assert rights.actions == frozenset(ACTIONS)
        for path in (home.token_path, home.owner_key_path, home.owner_public_path):
            assert mode(path) == 0o600

    @pytest.mark.parametrize("content", [b"", b"\n", b"a b", b"\xff\xfe", b"mycel_", b"mycel_!"])
    def test_corrupt_api_token(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "token"
        path.write_bytes(content)
        path.chmod(0o600)
        with pytest.raises(SecretCorrupt):
            load_api_token(path)

    def test_a_home_that_joined_founds_nothing(self, tmp_path: Path) -> None:
        home = Home(tmp_path)
        store_public_key(home.owner_public_path, bytes(range(32)))
        with pytest.raises(NotFounder, match="has joined somebody else's swarm"):
            found(home, "test")
        assert [file.name for file in tmp_path.iterdir()] == ["owner.pub"]

    def test_a_home_has_one_owner(self, tmp_path: Path) -> None:
        path = tmp_path / "owner.pub"
        store_public_key(path, b"1" * 32)
        store_public_key(path, b"1" * 32)
        with pytest.raises(SecretExists, match="two homes"):
            store_public_key(path, b"2" * 32)

    def test_member_token(self, tmp_path: Path) -> None:
        founder = found(Home(tmp_path), "test")
        _, peer = native().identity(os.urandom(32))
        token = founder.member_token(peer, ("scheduler", "worker"))
        path = tmp_path / "member.token"
        store_member_token(path, token)
        store_member_token(path, token)
        assert load_member_token(path) == token
        rights = inspect(founder.public, token, peer)
        assert (rights.roles, rights.is_bound) == (frozenset({"scheduler", "worker"}), True)
        with pytest.raises(InvalidToken, match="another peer"):
            inspect(founder.public, token, native().identity(os.urandom(32))[1])
        assert mode(path) == 0o600

    @pytest.mark.parametrize("content", [b"", b"!!!", b"abc"])
    def test_corrupt_member_token(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "member.token"
        path.write_bytes(content)
        path.chmod(0o600)
        with pytest.raises(SecretCorrupt):
            load_member_token(path)


class TestHome:
    def test_where_it_is(self, tmp_path: Path) -> None:
        environment = {"MYCEL_HOME": str(tmp_path / "variable")}
        assert find_home(tmp_path / "flag", environment).path == tmp_path / "flag"
        assert find_home(None, environment).path == tmp_path / "variable"
        assert find_home(None, {}).path == Path.home() / ".mycel"
        assert find_home("relative", {}).path == Path.cwd() / "relative"

    def test_layout(self, tmp_path: Path) -> None:
        home = Home(tmp_path / "deep" / "home")
        assert home.roles() == []
        home.create()
        assert mode(home.path) == 0o700
        role = home.role("worker-1")
        with role.lock():
            assert mode(role.path) == 0o700
            assert [found.name for found in home.roles()] == ["worker-1"]

    def test_a_file_in_its_place(self, tmp_path: Path) -> None:
        (tmp_path / "home").write_text("")
        with pytest.raises(HomeUnusable, match="home"):
            Home(tmp_path / "home").create()
        with pytest.raises(HomeUnusable):
            Home(tmp_path / "home").role("worker").lock()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--priority-max", "99999999999999999999"], "--priority-max is from"),
        (["--user", ""], "cannot be a user"),
        (["--user", "x" * 10_000], "cannot be a user"),
        (["--peer", "12D3KooWmistyped"], "is no peer id"),
        (["--expires", "0s"], "write from 1s to 36500d, or never"),
        (["--expires", "999999999w"], "write from 1s to 36500d, or never"),
    ],
)
def test_what_no_token_can_say_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], told: str
) -> None:
    found(Home(tmp_path), "mycel")
    for command in ("create", "narrow"):
        assert main(["token", command, "--home", str(tmp_path), *options]) != 0
        assert told in capsys.readouterr().err


class TestCommands:
    """What `mycel token` and `mycel user` say."""

    def test_a_token_that_allows_nothing_is_told_apart(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        found(Home(tmp_path), "mycel")
        create = ["token", "create", "--home", str(tmp_path), "--user", "alice"]
        assert main(create) == 0
        assert "it allows nothing" in capsys.readouterr().err
        assert main([*create, "--action", "read"]) == 0
        assert capsys.readouterr().err == ""

    def test_users_whose_tokens_end_beyond_all_dates_are_listed(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        home = Home(tmp_path)
        users.add(home, found(home, "mycel"), Statement(user="alice", expires_at=6e14))
        assert main(["user", "list", "--home", str(tmp_path)]) == 0
        assert capsys.readouterr().out.split()[-1] == "never"

    @pytest.mark.parametrize("action", ["inspect", "narrow"])
    def test_a_home_without_a_token_is_told_so(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], action: str
    ) -> None:
        assert main(["token", action, "--home", str(tmp_path)]) == 1
        told = capsys.readouterr().err
        assert str(tmp_path / "token") in told
        assert "mycel user add" in told

    def test_ids_are_revoked_in_either_case(self, tmp_path: Path) -> None:
        home = Home(tmp_path)
        found(home, "mycel")
        assert main(["token", "revoke", "AB" * 32, "--home", str(tmp_path)]) == 0
        assert [one[:32] for one in read_records(home.revocations_path)] == [b"\xab" * 32]

    def test_a_peer_without_a_name_is_nobody(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        found(Home(tmp_path), "mycel")
        assert main(["token", "revoke", "--peer", "", "--home", str(tmp_path)]) == 1
        assert "no swarm is running" in capsys.readouterr().err


class TestLists:
    """Of users and of revocations, which commands change side by side."""

    def test_users_that_are_added_at_once_are_all_remembered(self, tmp_path: Path) -> None:
        home = Home(tmp_path)
        founder = found(home, "test")
        names = [f"user-{number}" for number in range(32)]
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda name: users.add(home, founder, Statement(user=name)), names))
        assert sorted(user.name for user in users.listed(home)) == sorted(names)

    def test_revocations_that_are_made_at_once_are_all_kept(self, tmp_path: Path) -> None:
        home = Home(tmp_path)
        founder = found(home, "test")
        ids = [bytes([number]) * 32 for number in range(32)]
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda one: revoke(home, founder, [(one, None)]), ids))
        assert {record[:32] for record in read_records(home.revocations_path)} == set(ids)

    def test_a_user_whose_token_could_not_be_revoked_is_not_disabled(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        home = Home(tmp_path)
        users.add(home, found(home, "mycel"), Statement(user="alice"))
        home.revocations_path.mkdir()  # as good as a full disk
        assert main(["user", "disable", "alice", "--home", str(tmp_path)]) == 1
        assert [user.disabled_at for user in users.listed(home)] == [None]
        home.revocations_path.rmdir()
        assert main(["user", "disable", "alice", "--home", str(tmp_path)]) == 0
        assert None not in [user.disabled_at for user in users.listed(home)]


CHILD = """
import sys
from pathlib import Path
from mycel.access.founder import found, founder_of, owner_public_of
from mycel.access.home import Home
lock = Home(Path(sys.argv[1])).role("scheduler").lock()
print("locked", flush=True)
sys.stdin.read()
"""


class TestLock:
    def test_once_in_a_process(self, tmp_path: Path) -> None:
        role = Home(tmp_path).role("scheduler")
        assert role.holder() is None
        with role.lock() as lock:
            assert role.holder() == os.getpid()
            with pytest.raises(HomeInUse, match=rf"pid {os.getpid()}\)") as caught:
                role.lock()
            assert caught.value.pid == os.getpid()
            lock.release()
            lock.release()
        assert role.holder() is None
        role.lock().release()

    def test_roles_have_locks_of_their_own(self, tmp_path: Path) -> None:
        home = Home(tmp_path)
        with home.role("scheduler").lock(), home.role("worker-1").lock():
            pass

    def test_death_releases_it(self, tmp_path: Path) -> None:
        role = Home(tmp_path).role("scheduler")
        process = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"PYTHONPATH": str(SOURCE)},
        )
        with process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"locked\n"
            assert role.holder() == process.pid
            with pytest.raises(HomeInUse, match=f"pid {process.pid}"):
                role.lock()
            process.send_signal(signal.SIGKILL)
            process.wait()
        with role.lock():
            assert role.lock_path.read_text() == f"{os.getpid()}\n"

    def test_programs_started_do_not_inherit_it(self, tmp_path: Path) -> None:
        role = Home(tmp_path).role("scheduler")
        with role.lock():
            listing = subprocess.run(
                ["ls", "-l", "/proc/self/fd"], stdout=subprocess.PIPE, close_fds=False, check=True
            )
        assert str(role.lock_path).encode() not in listing.stdout
        assert b"/proc/" in listing.stdout


class Ports(msgspec.Struct):
    api: int


class TestState:
    def test_state_comes_back(self, tmp_path: Path) -> None:
        path = tmp_path / "state.json"
        assert read_state(path, Ports) is None
        write_state(path, Ports(8080))
        write_state(path, Ports(8081))
        assert read_state(path, Ports) == Ports(8081)
        assert [file.name for file in tmp_path.iterdir()] == ["state.json"]

    @pytest.mark.parametrize("content", [b"", b"{", b'{"api": "x"}', b"\xff"])
    def test_damaged(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "state.json"
        path.write_bytes(content)
        with pytest.raises(StateCorrupt, match=r"state\.json"):
            read_state(path, Ports)

    def test_no_folder(self, tmp_path: Path) -> None:
        with pytest.raises(HomeUnusable):
            write_state(tmp_path / "nowhere" / "state.json", Ports(1))
