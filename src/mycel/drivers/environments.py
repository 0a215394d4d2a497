"""Environments of tasks: built once by uv, and kept as long as there is room.

    <root>/<key>/                  a virtual environment
                 requirements.txt  what it was built from
                 mycel.json        written last: without it, it is half-built

The key is made of the text, the Python and the machine. Half-built ones are removed at the
start, because nobody goes on with them; the least recently used ones when all together are
too big. Only wheels are installed unless the worker's owner allows more: to build a package is
to run its code, outside of any sandbox.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec

from mycel.core.work import Environment, Run, Work

from .environment_files import BadEnvironment, checked_text, file_name
from .errands import Errands
from .interface import Finished
from .interpreter_records import clock
from .preparing import NotToBeHad

MARK: Final = "mycel.json"
FAILURE_SECONDS: Final = 30.0
"""So long a failed build is not tried again: a job's tasks come one after another."""
NOTE_SECONDS: Final = 60.0
OUTPUT_LINES: Final = 20
NO_UV: Final = (
    "this worker has no uv, which builds environments: install it beside Mycel "
    "(pip install uv), or see https://docs.astral.sh/uv"
)
_NETWORK_TROUBLE: Final = (
    "error sending request",
    "failed to fetch",
    "dns error",
    "connection refused",
    "connection reset",
    "operation timed out",
    "no space left on device",
)
"""What uv says when it is not the requirements' fault."""


class EnvironmentSettings(msgspec.Struct, frozen=True, kw_only=True):
    size_max: int = 20 * 10**9
    build_seconds_max: float = 1800.0
    allow_builds: bool = False


class _Mark(msgspec.Struct, frozen=True):
    size: int
    python: str


def find_uv() -> str | None:
    """On the path, or beside our own interpreter, where `pip install uv` puts it."""
    beside = Path(sys.executable).with_name("uv")
    return shutil.which("uv") or (str(beside) if os.access(beside, os.X_OK) else None)


@lru_cache(maxsize=64)
def key_of(text: str) -> str:
    """Our own, whatever a scheduler calls it: two users must not get each other's."""
    from blake3 import blake3

    place = f"{sys.implementation.cache_tag} {platform.machine()} {sys.platform}\n{text}"
    return blake3(place.encode()).hexdigest()[:32]


class Environments:
    """A `Preparer`, which drivers share. `root` is its own."""

    def __init__(
        self,
        root: Path,
        errands: Errands,
        settings: EnvironmentSettings,
        uv: Callable[[], str | None] = find_uv,
    ) -> None:
        self._errands = errands
        self._settings = settings
        self._uv = uv
        self._ready: dict[str, int] = {}
        """Sizes by key, the least recently used first."""
        self._last_applied: tuple[Work | None, Work] = (None, Work("none"))
        self._in_use: Counter[str] = Counter()
        self._building: dict[str, asyncio.Task[None]] = {}
        self._noted: dict[str, float] = {}
        self._failures: dict[str, tuple[float, NotToBeHad]] = {}
        root.mkdir(parents=True, exist_ok=True)
        self._root = root.resolve()
        self._take_stock()

    def need_of(self, work: Work) -> str:
        environment = work.environment
        return key_of(environment.text) if environment is not None else ""

    def applied(self, run: Run) -> Run | None:
        given = run.work.environment
        assert given is not None
        key = key_of(given.text)
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
        if last is work:
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

    async def obtain(self, work: Work) -> None:
        assert work.environment is not None
        text = work.environment.text
        key = key_of(text)
        failed_at, failure = self._failures.get(key, (0.0, None))
        if failure is not None and clock() - failed_at < FAILURE_SECONDS:
            raise failure
        task = self._building.get(key)
        if task is None:
            task = self._building[key] = asyncio.create_task(self._build_once(key, text))
        await asyncio.shield(task)

    async def close(self) -> None:
        under_way = list(self._building.values())
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        await self._errands.close()

    # Building

    async def _build_once(self, key: str, text: str) -> None:
        try:
            self._ready[key] = await self._build(self._root / key, text)
            await self._make_room(key)
        except NotToBeHad as reason:
            self._failures[key] = (clock(), reason)
            self._forget_old_failures()
            raise
        finally:
            del self._building[key]

    async def _build(self, folder: Path, text: str) -> int:
        try:
            text = checked_text(text)
        except BadEnvironment as error:
            raise NotToBeHad(f"the environment cannot be built: {error}") from error
        uv = self._uv()
        if uv is None:
            raise NotToBeHad(NO_UV, driver_fault=True)
        python = str(folder / "bin" / "python")
        file = folder / file_name(text)
        wheels_only = () if self._settings.allow_builds else ("--no-build",)
        try:
            await self._run(uv, "venv", "--no-project", "--python", sys.executable, str(folder))
            await asyncio.to_thread(file.write_text, text)
            # Compiled here: interpreters cannot write into it, and would compile each time.
            options = ("--compile-bytecode", *wheels_only, "--requirements", str(file))
            await self._run(uv, "pip", "install", "--python", python, *options)
            return await asyncio.to_thread(self._finish, folder)
        except BaseException:
            # Cancelled too: half-built ones are of no use, and in the way of the next try.
            shutil.rmtree(folder, ignore_errors=True)
            raise

    async def _run(self, uv: str, *arguments: str) -> None:
        env = tuple(_own_variables().items())
        command = (uv, *arguments, "--no-progress", "--no-python-downloads", "--color", "never")
        limit = self._settings.build_seconds_max
        end = await self._errands.run(command, env=env, timeout_seconds=limit)
        if end.state != "succeeded":
            raise _failure(end, self._settings)

    def _finish(self, folder: Path) -> int:
        size = _size_of(folder)
        mark = _Mark(size, platform.python_version())
        (folder / MARK).write_bytes(msgspec.json.encode(mark))
        return size

    # The cache

    def _take_stock(self) -> None:
        found: list[tuple[float, str, int]] = []
        for folder in self._root.iterdir():
            try:
                mark = msgspec.json.decode((folder / MARK).read_bytes(), type=_Mark)
                found.append(((folder / MARK).stat().st_mtime, folder.name, mark.size))
            except (OSError, msgspec.DecodeError):
                shutil.rmtree(folder, ignore_errors=True)
        self._ready = {name: size for _, name, size in sorted(found)}

    def _note_use(self, key: str) -> None:
        """For the next start of the worker, to the minute."""
        now = clock()
        if now - self._noted.get(key, -NOTE_SECONDS) >= NOTE_SECONDS:
            self._noted[key] = now
            with contextlib.suppress(OSError):
                os.utime(self._root / key / MARK)

    async def _make_room(self, newest: str) -> None:
        for key in list(self._ready):
            if sum(self._ready.values()) <= self._settings.size_max:
                return
            if key != newest and not self._in_use[key] and self._ready.pop(key, None) is not None:
                await asyncio.to_thread(shutil.rmtree, self._root / key, True)

    def _forget_old_failures(self) -> None:
        oldest = clock() - FAILURE_SECONDS
        self._failures = {key: one for key, one in self._failures.items() if one[0] >= oldest}


def _failure(end: Finished, settings: EnvironmentSettings) -> NotToBeHad:
    output = (end.stdout + end.stderr).decode(errors="replace").strip()
    last = "\n".join(output.splitlines()[-OUTPUT_LINES:])
    if end.state == "timed_out":
        limit = settings.build_seconds_max
        return NotToBeHad(f"the environment was not built within {limit:g} s\n{last}", end.stderr)
    trouble = any(sign in output.lower() for sign in _NETWORK_TROUBLE)
    fault = end.driver_fault or end.state == "cancelled" or trouble
    # It begins with what it works with; the reason is behind that.
    said = (line for line in output.splitlines() if line.strip() and not line.startswith("Using "))
    reason = next(said, end.error)
    return NotToBeHad(
        f"the environment cannot be built: {reason.strip()}\n{last}", end.stderr, driver_fault=fault
    )


def _own_variables() -> dict[str, str]:
    """What the worker's owner has set for uv: indexes, proxies, certificates. The passwords in
    `~/.netrc` are not among them: a text may name any host, and it would be sent them."""
    prefixes = ("UV_", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_", "NETRC")
    set_for_it = {
        name: value
        for name, value in os.environ.items()
        if name.upper().startswith(prefixes) and name != "UV_PYTHON"
    }
    return {"NETRC": os.devnull, **set_for_it}


def _size_of(folder: Path) -> int:
    size = 0
    for place, _, files in os.walk(folder):
        size += sum(os.lstat(f"{place}/{name}").st_size for name in files)
    return size
