"""One build of an environment: uv, in the sandbox that tasks have, as the user that they have.

    uv venv            no network
    uv pip install     the network by the forward proxy alone; wheels are unpacked, nothing is run
    compileall         no network, no cache; the worker's own Python, which runs nothing of it

Without `allow_builds` no code of a package runs before a task does, not even in the sandbox: the
environment's Python starts while it is empty, and its sources are compiled by another one that
neither reads its `.pth` files nor imports anything from it. With `allow_builds` code of packages
runs in the second step, in the same sandbox; it can change nothing but this environment and the
cache of the user whose task wants it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final

import msgspec

from mycel.blobs.folder_removal import remove_tree
from mycel.config.build_addresses import parse_allowance
from mycel.core.model.requirements_text import file_name
from mycel.core.model.resources import size
from mycel.drivers.helper_commands import HelperCommands
from mycel.drivers.interface import Finished
from mycel.drivers.preparation import Unavailable
from mycel.drivers.python.interpreter_records import clock
from mycel.drivers.sandbox.run_confinement import Limits, RunConfinement, give
from mycel.drivers.task_devices import ConfinementPolicy

from .build_variables import OwnerVariables, owner_variables, with_config
from .disk_quota import OverQuota, Quota, Usage, measured
from .forward_proxy import ForwardProxy, Upstreams, upstreams_of

RELAY: Final = str(Path(__file__).with_name("forward_relay.py").resolve())
OUTPUT_LINES: Final = 20
LINE_CHARACTERS_MAX: Final = 500
"""Of what uv wrote, in the error of a task."""
NO_OWN_NETWORK: Final = (
    "this worker cannot build environments: [worker.environments] allow_builds runs the code of "
    "packages, and there is no sandbox here that keeps it from the network; install bubblewrap, or "
    "set allow_builds = false to install wheels only"
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
_PROXIES: Final = tuple(
    case(f"{scheme}_proxy")
    for scheme in ("http", "https", "all")
    for case in (str.lower, str.upper)
)
_PLAIN: Final = ("--no-progress", "--no-python-downloads", "--color", "never")


class EnvironmentSettings(msgspec.Struct, frozen=True, kw_only=True):
    size_max: int = 20 * 10**9
    """Of all environments and caches together."""
    build_seconds_max: float = 1800.0
    allow_builds: bool = False
    environment_bytes_max: int = 0
    """On disk, of one build with what it adds to its cache; 0 is `size_max`."""
    download_bytes_max: int = 10 * 10**9
    allow_addresses: tuple[str, ...] = ()

    @property
    def build_bytes_max(self) -> int:
        return min(self.environment_bytes_max or self.size_max, self.size_max)


class BuildPaths(msgspec.Struct, frozen=True):
    """Of one build."""

    environment: Path
    """Is there when it succeeds, and gone when it does not."""
    control: Path
    """What the build is given to read: the text, and copies of the owner's files."""
    cache: Path
    """Of one user; it stays."""
    socket: Path


class Build:
    def __init__(
        self,
        places: BuildPaths,
        text: str,
        uv: str,
        commands: HelperCommands,
        settings: EnvironmentSettings,
        policy: ConfinementPolicy,
    ) -> None:
        self._places = places
        self._text = text
        self._uv = os.path.realpath(uv)
        self._commands = commands
        self._settings = settings
        self._policy = policy
        self._deadline = clock() + settings.build_seconds_max
        self._spent: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the quota of downloaded bytes is used up."""

    async def run(self) -> int:
        """What the environment takes of the disk. Raises `Unavailable`; however it ends, nothing
        of it runs any more."""
        if self._settings.allow_builds and self._lacks_network_walls:
            raise Unavailable(NO_OWN_NETWORK, driver_fault=True)
        places = self._places
        try:
            owners, upstreams = await asyncio.to_thread(self._prepare)
        except (OSError, ValueError) as error:
            await asyncio.to_thread(self._clear)
            raise Unavailable(
                f"this worker cannot build environments: {error}", driver_fault=True
            ) from error
        proxy = self._proxy(owners, upstreams)
        try:
            way = await self._way(proxy)
            before = await asyncio.to_thread(measured, (places.cache,))
            quota = Quota(
                self._settings.build_bytes_max, (places.environment, places.cache), before
            )
            await self._guarded(self._steps(owners, proxy, way), quota)
            await asyncio.to_thread(quota.check)
            return (await asyncio.to_thread(self._take_back)).bytes_count
        except OverQuota as error:
            await asyncio.to_thread(self._clear)
            # What was unpacked may be in the cache already, and would be over the quota again.
            await asyncio.to_thread(remove_tree, places.cache)
            raise Unavailable(f"the environment cannot be built: {error}") from error
        except BaseException:
            # Cancelled too: half-built ones are of no use, and in the way of the next try.
            await asyncio.to_thread(self._clear)
            raise
        finally:
            await proxy.close()
            places.socket.unlink(missing_ok=True)
            remove_tree(places.control)

    @property
    def _lacks_network_walls(self) -> bool:
        """Without any walls the owner has chosen to have none."""
        return self._policy.keeps_files and not self._policy.own_network

    def _proxy(self, owners: OwnerVariables, upstreams: Upstreams) -> ForwardProxy:
        allowed = (*map(parse_allowance, self._settings.allow_addresses), *owners.allowed)
        limit = self._settings.download_bytes_max

        def exceeded() -> None:
            if not self._spent.done():
                self._spent.set_result(None)

        return ForwardProxy(allowed, upstreams, limit, exceeded)

    async def _way(self, proxy: ForwardProxy) -> str:
        """Where the build finds the proxy: empty is by its own socket."""
        if self._lacks_network_walls:
            return await proxy.listen_here()
        await proxy.listen(str(self._places.socket))
        return ""

    def _prepare(self) -> tuple[OwnerVariables, Upstreams]:
        places, owner = self._places, self._policy.owner
        self._clear()
        for folder in (places.control, places.environment):
            folder.mkdir(mode=0o700, parents=True)
        (places.control / file_name(self._text)).write_text(self._text)
        environment = with_config(os.environ)
        owners = owner_variables(environment, places.control)
        for folder in (places.control, places.environment):
            give(str(folder), owner)
        if not places.cache.exists():
            places.cache.mkdir(mode=0o700, parents=True)
            give(str(places.cache), owner)
        return owners, upstreams_of(environment)

    def _clear(self) -> None:
        remove_tree(self._places.environment)
        remove_tree(self._places.control)

    # The steps

    async def _steps(self, owners: OwnerVariables, proxy: ForwardProxy, way: str) -> None:
        places, uv = self._places, self._uv
        variables = tuple({**owners.values, "UV_CACHE_DIR": str(places.cache)}.items())
        readable = (str(places.control), uv, *owners.readable)
        writable = (str(places.environment), str(places.cache))
        confinement = self._confinement(readable, writable)
        folder, base = str(places.environment), sys.executable
        making = (uv, "venv", "--no-project", "--python", base, folder, *_PLAIN)
        await self._step(making, variables, confinement, proxy)
        command: tuple[str, ...] = (uv, *self._install())
        if way:
            variables = (*variables, *((name, way) for name in _PROXIES))
            confinement = msgspec.structs.replace(confinement, network=True)
        else:
            command = (base, "-I", "-S", RELAY, str(places.socket), *command)
            confinement = msgspec.structs.replace(confinement, socket=str(places.socket))
        await self._step(command, variables, confinement, proxy)
        confinement = self._confinement((), (folder,))
        compiling = (base, "-I", "-S", "-m", "compileall", "-q", "-j", "0", f"{folder}/lib")
        # Compiled here: interpreters cannot write into it, and would compile each time. A source
        # that cannot be compiled is no fault: packages have such for their tests.
        await self._step(compiling, (), confinement, proxy, must_succeed=False)

    def _install(self) -> tuple[str, ...]:
        places = self._places
        wheels_only = () if self._settings.allow_builds else ("--no-build",)
        return (
            *("pip", "install", "--python", f"{places.environment}/bin/python"),
            *("--no-compile-bytecode", "--link-mode", "copy", *wheels_only),
            *("--requirements", str(places.control / file_name(self._text)), *_PLAIN),
        )

    def _confinement(self, readable: tuple[str, ...], writable: tuple[str, ...]) -> RunConfinement:
        limits, quota = self._policy.limits, self._settings.build_bytes_max
        file_size = min(limits.file_size, quota) if limits.file_size else quota
        return RunConfinement(
            limits=Limits(limits.memory, 0.0, limits.processes, file_size),
            readable=readable,
            writable=writable,
        )

    async def _step(
        self,
        command: tuple[str, ...],
        variables: tuple[tuple[str, str], ...],
        confinement: RunConfinement,
        proxy: ForwardProxy,
        *,
        must_succeed: bool = True,
    ) -> None:
        seconds = max(self._deadline - clock(), 0.01)
        end = await self._commands.run(
            command, env=variables, timeout_seconds=seconds, confinement=confinement
        )
        if end.exit_code == 128 + signal.SIGXFSZ:
            raise OverQuota(
                f"it has a file of more than {size(confinement.limits.file_size)}; the worker's "
                "owner can raise [worker.environments] max_environment_size, or [worker.limits] "
                "file_size"
            )
        if end.state != "succeeded" and (must_succeed or end.state != "failed"):
            raise _failure(end, self._settings, proxy.refusals)

    async def _guarded(self, steps: Coroutine[Any, Any, None], quota: Quota) -> None:
        working = asyncio.create_task(steps)
        watching = asyncio.create_task(quota.watch())
        try:
            await asyncio.wait(
                {working, watching, self._spent}, return_when=asyncio.FIRST_COMPLETED
            )
            if watching.done():
                watching.result()
            if self._spent.done():
                raise OverQuota(
                    f"it downloads more than {size(self._settings.download_bytes_max)}; the "
                    "worker's owner can raise [worker.environments] max_download"
                )
            working.result()
        finally:
            for task in (working, watching):
                task.cancel()
            await asyncio.gather(working, watching, return_exceptions=True)

    def _take_back(self) -> Usage:
        """Makes it the worker's own: for tasks, to be read. Whoever built it may have left links,
        which are not followed."""
        folder = self._places.environment
        if self._policy.owner >= 0:
            user, group = os.geteuid(), os.getegid()
            waiting = [str(folder)]
            while waiting:
                place = waiting.pop()
                os.chown(place, user, group, follow_symlinks=False)
                os.chmod(place, 0o755)  # noqa: PTH101, S103 - beside the calls around it
                with os.scandir(place) as found:
                    for entry in found:
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append(entry.path)
                            continue
                        os.chown(entry.path, user, group, follow_symlinks=False)
                        mode = entry.stat(follow_symlinks=False).st_mode
                        if stat.S_ISREG(mode):
                            os.chmod(entry.path, 0o755 if mode & 0o111 else 0o644)  # noqa: PTH101
        return measured((folder,))


def _failure(end: Finished, settings: EnvironmentSettings, refusals: list[str]) -> Unavailable:
    output = (end.stdout + end.stderr).decode(errors="replace").strip()
    lines = [line[:LINE_CHARACTERS_MAX] for line in output.splitlines()]
    last = "\n".join(lines[-OUTPUT_LINES:])
    if end.state == "timed_out":
        limit = settings.build_seconds_max
        return Unavailable(f"the environment was not built within {limit:g} s\n{last}", end.stderr)
    trouble = any(sign in output.lower() for sign in _NETWORK_TROUBLE)
    fault = end.driver_fault or end.state == "cancelled" or trouble
    # It begins with what it works with; the reason is behind that.
    said = (line for line in lines if line.strip() and not line.startswith("Using "))
    reason = next(said, end.error)
    if refusals:
        reason, fault = refusals[0], False
    return Unavailable(
        f"the environment cannot be built: {reason.strip()}\n{last}", end.stderr, driver_fault=fault
    )
