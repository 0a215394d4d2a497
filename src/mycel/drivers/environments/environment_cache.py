"""Environments of tasks: built once for each user by uv, and kept as long as there is room.

    environments/<key>/            a virtual environment
    environments/<key>.json        written last: without it, it is half-built
    environment-caches/<user>/     uv's cache of what a user's environments needed
    environment-builds/<key>/      what a build under way is given to read

The key is made of the user, the text, the Python and the machine. Users share neither environments
nor caches, because a text decides what uv keeps under which name: a lock file can say of any wheel
that it is an index's own. Half-built ones are removed at the start, because nobody goes on with
them; the least recently used ones when all together are too big. `environment_build` has a build.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import platform
import shutil
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec

from mycel.blobs.folder_removal import remove_tree
from mycel.core.model.requirements_text import BadEnvironment, checked_text
from mycel.core.model.work import Environment, Run, Work
from mycel.drivers.helper_commands import HelperCommands
from mycel.drivers.preparation import Unavailable
from mycel.drivers.python.interpreter_records import clock
from mycel.drivers.socket_folder import SocketFolder
from mycel.drivers.task_devices import ConfinementPolicy

from .build import Build, BuildPaths, EnvironmentSettings
from .disk_quota import OverQuota, measured

MARK: Final = ".json"
FAILURE_SECONDS: Final = 30.0
"""So long a failed build is not tried again: a job's tasks come one after another."""
NOTE_SECONDS: Final = 60.0
BUILDS_MAX: Final = 4
"""At once; of one user, one."""
NO_UV: Final = (
    "this worker has no uv, which builds environments: install it beside Mycel "
    "(pip install uv), or see https://docs.astral.sh/uv"
)


class _Mark(msgspec.Struct, frozen=True):
    size: int
    python: str


def find_uv() -> str | None:
    """On the path, or beside our own interpreter, where `pip install uv` puts it."""
    beside = Path(sys.executable).with_name("uv")
    return shutil.which("uv") or (str(beside) if os.access(beside, os.X_OK) else None)


@lru_cache(maxsize=64)
def key_of(text: str, user: str) -> str:
    """Our own, whatever a scheduler calls it: two users must not get each other's."""
    from blake3 import blake3

    place = f"{sys.implementation.cache_tag} {platform.machine()} {sys.platform}"
    return blake3(msgspec.json.encode((2, place, user, text))).hexdigest()[:32]


class EnvironmentCache:
    """A `Preparation`, which drivers share. `root` is its own, and so are the folders beside it."""

    def __init__(
        self,
        root: Path,
        commands: HelperCommands,
        settings: EnvironmentSettings,
        uv: Callable[[], str | None] = find_uv,
        *,
        policy: ConfinementPolicy | None = None,
    ) -> None:
        self._commands = commands
        self._settings = settings
        self._uv = uv
        self._policy = policy or ConfinementPolicy()
        self._ready: dict[str, int] = {}
        """Sizes by key, the least recently used first."""
        self._last_applied: tuple[Work | None, Work] = (None, Work("none"))
        self._in_use: Counter[str] = Counter()
        self._building: dict[str, asyncio.Task[None]] = {}
        self._wanted: Counter[str] = Counter()
        """How many wait for a build."""
        self._turns = asyncio.Semaphore(BUILDS_MAX)
        self._users_turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._caches: dict[str, int | None] = {}
        """Sizes by user's key, the least recently used first; those not measured yet have none."""
        self._noted: dict[str, float] = {}
        self._failures: dict[str, tuple[float, Unavailable]] = {}
        self._numbers = itertools.count(1)
        self._sockets: SocketFolder | None = None
        root.mkdir(parents=True, exist_ok=True)
        self._root = root.resolve()
        self._caches_root = self._root.with_name("environment-caches")
        self._builds_root = self._root.with_name("environment-builds")
        self._take_stock()

    def need_of(self, run: Run) -> str:
        environment = run.work.environment
        return key_of(environment.text, run.user) if environment is not None else ""

    def applied(self, run: Run) -> Run | None:
        key = self.need_of(run)
        size = self._ready.pop(key, None)
        if size is None:
            return None
        self._ready[key] = size
        self._in_use[key] += 1
        self._note_use(key)
        work = self._applied_work(run.work, str(self._root / key))
        readable = (*run.readable, str(self._root / key))
        return msgspec.structs.replace(run, work=work, readable=readable)

    def _applied_work(self, work: Work, path: str) -> Work:
        """The same for all runs that share theirs: drivers put what is alike together."""
        last, applied = self._last_applied
        if last is work and applied.environment is not None and applied.environment.path == path:
            return applied
        assert work.environment is not None
        env = dict(work.env)
        search = env.get("PATH", os.environ.get("PATH", os.defpath))
        env |= {"VIRTUAL_ENV": path, "PATH": f"{path}/bin{os.pathsep}{search}"}
        there = Environment(work.environment.key, "", path)
        applied = msgspec.structs.replace(work, env=tuple(env.items()), environment=there)
        self._last_applied = (work, applied)
        return applied

    def released(self, need: str) -> None:
        self._in_use[need] -= 1

    async def obtain(self, run: Run) -> None:
        assert run.work.environment is not None
        key = self.need_of(run)
        failed_at, failure = self._failures.get(key, (0.0, None))
        if failure is not None and clock() - failed_at < FAILURE_SECONDS:
            raise failure
        task = self._building.get(key)
        if task is None:
            building = self._build_once(key, run.work.environment.text, run.user)
            task = self._building[key] = asyncio.create_task(building)
        self._wanted[key] += 1
        try:
            await asyncio.shield(task)
        finally:
            self._wanted[key] -= 1
            if not self._wanted[key] and not task.done():
                task.cancel()  # nobody waits for it any more

    async def close(self) -> None:
        under_way = list(self._building.values())
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        await self._commands.close()
        if self._sockets is not None:
            self._sockets.remove()
            self._sockets = None

    # Building

    async def _build_once(self, key: str, text: str, user: str) -> None:
        owner = key_of("", user)
        try:
            async with self._users_turns[owner], self._turns:
                self._ready[key] = await self._build(key, text, owner)
                await self._make_room(key, owner)
        except Unavailable as reason:
            self._failures[key] = (clock(), reason)
            self._forget_old_failures()
            raise
        finally:
            del self._building[key]
            if not self._building:
                self._users_turns.clear()

    async def _build(self, key: str, text: str, owner: str) -> int:
        try:
            text = checked_text(text)
        except BadEnvironment as error:
            raise Unavailable(f"the environment cannot be built: {error}") from error
        uv = self._uv()
        if uv is None:
            raise Unavailable(NO_UV, driver_fault=True)
        if self._sockets is None:
            self._sockets = SocketFolder()
        places = BuildPaths(
            environment=self._root / key,
            control=self._builds_root / key,
            cache=self._caches_root / owner,
            socket=self._sockets.path / f"build-{next(self._numbers)}",
        )
        build = Build(places, text, uv, self._commands, self._settings, self._policy)
        try:
            size = await build.run()
        finally:
            self._caches.pop(owner, None)
            if places.cache.exists():
                self._caches[owner] = None
        mark = _Mark(size, platform.python_version())
        # Beside it, not in it: what is in there was written by others.
        await asyncio.to_thread(self._mark(key).write_bytes, msgspec.json.encode(mark))
        return size

    # The cache

    def _mark(self, key: str) -> Path:
        return self._root / f"{key}{MARK}"

    def _take_stock(self) -> None:
        remove_tree(self._builds_root)
        found: list[tuple[float, str, int]] = []
        for folder in self._root.iterdir():
            if folder.name.endswith(MARK):
                continue
            path = self._mark(folder.name)
            try:
                mark = msgspec.json.decode(path.read_bytes(), type=_Mark)
                found.append((path.stat().st_mtime, folder.name, mark.size))
            except (OSError, msgspec.DecodeError):
                self._remove(folder.name)
        self._ready = {name: size for _, name, size in sorted(found)}
        for path in self._root.glob(f"*{MARK}"):
            if path.name.removesuffix(MARK) not in self._ready:
                path.unlink(missing_ok=True)
        if self._caches_root.exists():
            caches = sorted(self._caches_root.iterdir(), key=lambda path: path.stat().st_mtime)
            self._caches = {path.name: None for path in caches}

    def _remove(self, key: str) -> None:
        self._mark(key).unlink(missing_ok=True)
        remove_tree(self._root / key)

    def _note_use(self, key: str) -> None:
        """For the next start of the worker, to the minute."""
        now = clock()
        if now - self._noted.get(key, -NOTE_SECONDS) >= NOTE_SECONDS:
            self._noted[key] = now
            with contextlib.suppress(OSError):
                os.utime(self._mark(key))

    async def _make_room(self, newest: str, owner: str) -> None:
        """Caches go first: what is in them can be had again, and nothing runs from them. `owner`
        has just built the newest; nobody else's cache is touched during a build."""
        for one in [one for one, size in self._caches.items() if size is None]:
            found = await asyncio.to_thread(_size_of, self._caches_root / one)
            if self._caches.get(one, 0) is None:
                self._caches[one] = found
        for one in list(self._caches):
            if self._is_roomy():
                return
            if one == owner or not self._users_turns[one].locked():
                async with contextlib.nullcontext() if one == owner else self._users_turns[one]:
                    self._caches.pop(one, None)
                    await asyncio.to_thread(remove_tree, self._caches_root / one)
        for key in list(self._ready):
            if self._is_roomy():
                return
            if key != newest and not self._in_use[key] and self._ready.pop(key, None) is not None:
                await asyncio.to_thread(self._remove, key)

    def _is_roomy(self) -> bool:
        total = sum(self._ready.values()) + sum(size or 0 for size in self._caches.values())
        return total <= self._settings.size_max

    def _forget_old_failures(self) -> None:
        oldest = clock() - FAILURE_SECONDS
        self._failures = {key: one for key, one in self._failures.items() if one[0] >= oldest}


def _size_of(cache: Path) -> int:
    try:
        return measured((cache,)).bytes_count
    except OverQuota:  # nobody can tell: it goes first
        return sys.maxsize
