"""The home folder of a machine's nodes.

~/.mycel/            or MYCEL_HOME, or --home
  token              the API's bearer token
  owner.key          of whoever founded the swarm here
  owner.pub          its public half: what every token here is held against
  revocations        the owner's, as far as this home has heard of them
  joins              who has joined by which invite, as the gateways here have counted
  users.json         whom the owner gave tokens to
  mycel.toml         optional
  <role>/            gateway, scheduler, worker-1, …
    identity.key
    member.token     bound to that identity
    joined.json      swarm and gateways, of a node that joined by an invite
    lock             held by the role's process; holds its pid
    state.json       ports and addresses of the running role
    data …
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import msgspec

from .errors import HomeInUse, HomeUnusable, StateCorrupt
from .secret_files import sync_folder, write_synced

HOME_VARIABLE: Final = "MYCEL_HOME"
_ROLE_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,62}")
_Kind = TypeVar("_Kind")


def find_home(flag: Path | str | None, environment: Mapping[str, str]) -> Home:
    """Where the home is; it need not exist."""
    chosen = flag or environment.get(HOME_VARIABLE) or "~/.mycel"
    try:
        path = Path(chosen).expanduser()
    except RuntimeError:
        raise HomeUnusable(
            f"this user has no home folder: set {HOME_VARIABLE} or give --home"
        ) from None
    return Home(path.absolute())


class Home:
    def __init__(self, path: Path) -> None:
        self.path: Final = path
        self.token_path: Final = path / "token"
        self.owner_key_path: Final = path / "owner.key"
        self.owner_public_path: Final = path / "owner.pub"
        self.revocations_path: Final = path / "revocations"
        self.joins_path: Final = path / "joins"
        self.users_path: Final = path / "users.json"
        self.configuration_path: Final = path / "mycel.toml"

    def create(self) -> None:
        _create_folder(self.path)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """While one of the lists in it is read and written anew: commands take turns, else one
        would undo what another has written meanwhile."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        try:
            descriptor = os.open(self.path, flags)
        except OSError as error:
            raise HomeUnusable(f"{self.path} cannot be opened: {error.strerror}") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def role(self, name: str) -> RoleFolder:
        assert _ROLE_NAME.fullmatch(name), f"{name!r} cannot be a role's folder"
        return RoleFolder(self.path / name)

    def roles(self) -> list[RoleFolder]:
        """Those that have ever been started here, by name."""
        if not self.path.is_dir():
            return []
        found = sorted(self.path.glob("*/lock"))
        return [RoleFolder(lock.parent) for lock in found if _ROLE_NAME.fullmatch(lock.parent.name)]


class RoleFolder:
    def __init__(self, path: Path) -> None:
        self.path: Final = path
        self.name: Final = path.name
        self.identity_path: Final = path / "identity.key"
        self.member_token_path: Final = path / "member.token"
        self.joined_path: Final = path / "joined.json"
        self.revocations_path: Final = path / "revocations"
        self.lock_path: Final = path / "lock"
        self.state_path: Final = path / "state.json"
        self.log_path: Final = path / "log.jsonl"

    def create(self) -> None:
        _create_folder(self.path)

    def lock(self) -> RoleLock:
        """Keeps every other process out until it is released or this process ends.

        A child that is forked without a new program keeps the lock too: start children by
        exec, as `subprocess` does.
        """
        self.create()
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            descriptor = os.open(self.lock_path, flags, 0o600)
        except OSError as error:
            raise HomeUnusable(f"{self.lock_path} cannot be opened: {error.strerror}") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = _read_pid(descriptor)
            os.close(descriptor)
            raise HomeInUse(str(self.path), pid) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        return RoleLock(descriptor)

    def holder(self) -> int | None:
        """The pid of the process that has the folder now, or None; 0 if it is not known."""
        try:
            descriptor = os.open(self.lock_path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise HomeUnusable(f"{self.lock_path} cannot be opened: {error.strerror}") from None
        try:
            # Shared, so that two who look do not take each other for the holder.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _read_pid(descriptor) or 0
        finally:
            os.close(descriptor)
        return None


class RoleLock:
    """Held until it is released, or the process ends in whatever way."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        # The file stays: to unlink it would let two processes lock two files of one name.
        if self._descriptor is not None:
            # To close is not enough while a child is between fork and exec.
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()


def write_state(path: Path, state: Any) -> None:
    """As JSON; whoever reads sees the old state or the new one, also after a power cut."""
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    content = msgspec.json.format(msgspec.json.encode(state), indent=2)
    try:
        write_synced(temporary, content + b"\n")
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise HomeUnusable(f"{path} cannot be written: {error.strerror}") from None


def read_state(path: Path, kind: type[_Kind]) -> _Kind | None:
    """None if there is no such file."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise HomeUnusable(f"{path} cannot be read: {error.strerror}") from None
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError as error:
        raise StateCorrupt(f"{path} is damaged ({error}): delete it and start again") from None


def _create_folder(path: Path) -> None:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError:
        raise HomeUnusable(f"{path} is a file, and has to be a folder: move it away") from None
    except OSError as error:
        raise HomeUnusable(f"the folder {path} cannot be created: {error.strerror}") from None


def _read_pid(descriptor: int) -> int | None:
    text = os.pread(descriptor, 20, 0).strip()
    return int(text) if text.isdigit() else None
