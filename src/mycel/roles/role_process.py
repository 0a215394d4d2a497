"""What the programs of all roles have in common: settings, folder, keys, log, signals.

    configuration ─▶ folder and its lock ─▶ log ─▶ keys ─▶ the role starts ─▶ ready
                                                              signal or fault ─▶ it stops

Expected faults (a port in use, an unreadable key, a corrupt database) end the program with one
message on standard error that says what to do, and exit code 1.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from mycel.access import invites
from mycel.access.errors import AccessError, InviteUnusable
from mycel.access.founder import owner_public_of
from mycel.access.home import Home, RoleFolder, find_home, read_state, write_state
from mycel.access.key_files import load_or_create_key
from mycel.access.tokens import inspect, load_member_token
from mycel.config import Configuration, load
from mycel.config.errors import ConfigurationError
from mycel.config.reload import Changes, changes
from mycel.membership.arrival import Arrival, NotAdmitted
from mycel.membership.protocols import PROTOCOLS, libp2p_settings, listen_addresses, liveness_of
from mycel.membership.revocations import Revoking
from mycel.runtime.clock import LoopClock
from mycel.store.errors import StoreError
from mycel.swarm.errors import InvalidToken, ListenFailed, SwarmError
from mycel.swarm.interface import SwarmListener
from mycel.swarm.quic_alternative import port_of, quic_twin
from mycel.telemetry.log import Log, route_logging
from mycel.telemetry.sinks import FileSink

from .open_file_limit import raise_limit

if TYPE_CHECKING:
    from mycel.swarm.libp2p import Libp2pSettings, Libp2pSwarm

YOUNG_OBJECTS: Final = 20_000
"""So many new objects there are before Python looks for cycles among them (by itself 700). Hardly
anything here is one, and the looking takes a busy scheduler 2 to 6 % of its time."""
EXPECTED: Final = (AccessError, ConfigurationError, StoreError, SwarmError)


class Options(Protocol):
    """What the command line gives; see `mycel.cli.commands.roles`."""

    @property
    def role(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def home(self) -> Path | None: ...
    @property
    def config(self) -> Path | None: ...
    @property
    def ready_fd(self) -> int | None: ...
    @property
    def port(self) -> int | None: ...
    @property
    def join(self) -> str | None: ...


class RunningState(msgspec.Struct, frozen=True):
    """`state.json`, while the role runs."""

    name: str
    pid: int
    peer: str
    addresses: list[str]
    api: str = ""
    metrics: str = ""
    certificate: str = ""
    """The path of the API's, if it has one: clients on this machine trust it."""
    reloads: int = 0
    reloaded: Changes | None = None
    """What came of the last of them."""
    walls: str = ""
    """What holds the tasks of a worker, for people."""


class RoleFault(Exception):
    """The role cannot go on; the message says what to do."""


class Program:
    """One role's process."""

    def __init__(self, options: Options, overrides: dict[str, object] | None = None) -> None:
        self.options = options
        self._overrides = overrides or {}
        self.configuration: Configuration = self._load()
        configured = self.configuration.node.home or None
        self.home: Home = find_home(options.home or configured, os.environ)
        self.folder: RoleFolder = self.home.role(options.name)
        self.lock = self.folder.lock()
        self._application: invites.Application | None = None
        """Of a node that a gateway has yet to admit."""
        self._join()
        self._started_with = self.configuration
        self._state: RunningState | None = None
        telemetry = self.configuration.telemetry
        sink = FileSink(
            self.folder.log_path,
            bytes_max=telemetry.log_file_size,
            files_kept=telemetry.log_files_kept,
        )
        self.log = Log(sink, self.configuration.node.log_level, common={"node": options.name})
        route_logging(self.log, "warning")
        self._fault: BaseException | None = None
        self._ended = asyncio.Event()
        self.hurried = asyncio.Event()
        """It was told to end for the second time: at once."""
        self.started = asyncio.Event()
        """Set when the role serves; `peer` and `addresses` are known then."""
        self.peer = ""
        self.addresses: list[str] = []
        self.companions: list[Program] = []
        """Roles in the same process: a signal ends and reloads them too."""
        self.ends_last = False
        """Its companions end it, when they have."""
        self.before_reload: list[Callable[[Configuration], None]] = []
        """Called with it first; a `RoleFault` says why it cannot be taken over."""
        self.on_reload: list[Callable[[Configuration], None]] = []
        """Called with a changed configuration; see `mycel.config.reload`."""

    def _load(self) -> Configuration:
        return load(self.options.config, dict(os.environ), self._overrides)

    def _join(self) -> None:
        """By the invite that was given, or as an earlier start did: then the swarm's name and
        gateways come from there, unless the configuration has its own."""
        if self.options.join is not None:
            invite = invites.read(self.options.join)
            self._application = invites.redeem(invite, self.home, self.folder, self.options.role)
        if self._application is not None:
            joined: invites.Joined | None = self._application.joined
        else:
            joined = read_state(self.folder.joined_path, invites.Joined)
        if joined is None:
            return
        name = self.configuration.swarm.name
        if self.configuration.is_set("swarm.name") and name != joined.swarm:
            raise InviteUnusable(
                f"this node has joined the swarm {joined.swarm!r}, and its configuration says "
                f"{name!r}: leave swarm.name away"
            )
        found = joined.settings()
        own = {key: value for key, value in found.items() if not self.configuration.is_set(key)}
        self._overrides = own | self._overrides
        self.configuration = self._load()

    # For the roles

    def arrival(self) -> Arrival:
        """Ends this program if the swarm does not let it in."""
        return Arrival(
            LoopClock(asyncio.get_running_loop()),
            tuple(self.configuration.swarm.bootstrap),
            self.fail,
            self._warn,
            must_arrive=self.options.join is not None,
        )

    def _warn(self, text: str) -> None:
        self.warn_aloud("not_admitted", text)

    def warn_aloud(self, event: str, text: str) -> None:
        """In the log, and on the terminal if there is one."""
        self.log.warning(event, error=text)
        print(f"mycel {self.options.name}: {text}", file=sys.stderr, flush=True)

    @cached_property
    def owner_public(self) -> bytes:
        return owner_public_of(self.home)

    @cached_property
    def revoking(self) -> Revoking:
        return Revoking(
            self.configuration.swarm.name,
            self.note,
            keep_at=self.folder.revocations_path,
            others_at=self.home.revocations_path,
        )

    def note(self, event: str, **fields: Any) -> None:
        self.log.info(event, **fields)

    def warn(self, event: str, **fields: Any) -> None:
        self.log.warning(event, **fields)

    def fail(self, error: BaseException) -> None:
        """Ends the program; safe to call more than once."""
        if self._fault is None:
            self._fault = error
            self.log.error("fault", error=f"{type(error).__name__}: {error}")
        self.end()

    def end(self) -> None:
        """Asked again, it hurries."""
        if self._ended.is_set():
            self.hurried.set()
        self._ended.set()

    def end_by_signal(self) -> None:
        if not self.ends_last:
            self.end()

    async def start_swarm(self, listener: SwarmListener, *, gateway: bool = False) -> Libp2pSwarm:
        """Joins libp2p with this node's identity, and listens."""
        from mycel.swarm.libp2p import Libp2pSwarm

        raise_limit()
        secret = load_or_create_key(self.folder.identity_path, "this node's identity")
        settings = libp2p_settings(self.configuration, gateway)
        if gateway:
            settings = msgspec.structs.replace(settings, joins_path=str(self.home.joins_path))
        await self._be_admitted(secret, settings)
        token = load_member_token(self.folder.member_token_path)
        self._check_role(token)
        swarm = await Libp2pSwarm.start(
            secret=secret,
            owner_public=self.owner_public,
            token=token,
            swarm_name=self.configuration.swarm.name,
            listener=listener,
            protocols=PROTOCOLS,
            liveness=liveness_of(self.configuration),
            settings=settings,
        )
        try:
            for address in listen_addresses(self.configuration):
                await self._listen(swarm, address)
        except BaseException:
            await swarm.stop()
            raise
        return swarm

    async def _be_admitted(self, secret: bytes, settings: Libp2pSettings) -> None:
        """By a gateway of the invite that this node was started with."""
        application = self._application
        if application is None:
            return
        from mycel.membership.admission import be_admitted

        gateways = (*application.joined.gateways, *self.configuration.swarm.bootstrap)
        token = await be_admitted(
            secret=secret,
            owner_public=self.owner_public,
            token=application.token,
            swarm_name=self.configuration.swarm.name,
            gateways=list(dict.fromkeys(gateways)),
            settings=settings,
        )
        application.accept(self.folder, token)
        self._application = None
        self.log.info("admitted")

    def _check_role(self, token: bytes) -> None:
        """Others would let it in, and have nothing to do with it."""
        try:
            roles = inspect(self.owner_public, token).roles
        except InvalidToken:
            return  # whoever refuses it says why
        if roles and self.options.role not in roles:
            raise InviteUnusable(
                f"{self.folder.member_token_path} is for {', '.join(sorted(roles))}, not for a "
                f"{self.options.role}: ask for another invite and start with --join"
            )

    async def _listen(self, swarm: Libp2pSwarm, address: str) -> None:
        """QUIC beside TCP is an offer: a UDP port that somebody else has is no fault."""
        port = port_of(await swarm.listen(address))
        quic = quic_twin(address, port)
        if quic is None or not self.configuration.swarm.quic:
            return
        try:
            await swarm.listen(quic)
        except ListenFailed as error:
            self.log.warning("no_quic", address=quic, error=str(error))

    def ready(
        self,
        peer: str,
        addresses: list[str],
        api: str = "",
        *,
        metrics: str = "",
        certificate: str = "",
        walls: str = "",
    ) -> None:
        """Tells whoever waits that this role serves. How it came to it is in the log by then."""
        self.log.flush()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, self._for_all, Program._reload)
        state = RunningState(
            self.options.name,
            os.getpid(),
            peer,
            addresses,
            api,
            metrics,
            certificate,
            walls=walls,
        )
        self._state = state
        write_state(self.folder.state_path, state)
        descriptor = self.options.ready_fd
        if descriptor is not None:
            os.write(descriptor, msgspec.json.encode(state) + b"\n")
            os.close(descriptor)
        self.peer, self.addresses = peer, addresses
        self.started.set()
        self.log.info("ready", peer=peer, addresses=addresses, api=api, metrics=metrics)
        # What lives now lives until the end: nobody need look at it again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS)

    def show_certificate(self, path: str) -> None:
        """Where the API's is now; told with what came of a reload."""
        if self._state is not None:
            self._state = msgspec.structs.replace(self._state, certificate=path)

    async def until_ended(self) -> None:
        """Returns at SIGTERM or SIGINT; raises the fault that ended the role."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._for_all, Program.end_by_signal)
        if self._fault is None:
            await self._ended.wait()
        self.log.info("stopping")
        if self._fault is not None:
            raise self._fault

    def _for_all(self, act: Callable[[Program], None]) -> None:
        for program in (self, *self.companions):
            act(program)

    def _reload(self) -> None:
        """SIGHUP: a configuration that cannot be read, or taken over, changes nothing."""
        try:
            configuration = self._load()
            for prepare in self.before_reload:
                prepare(configuration)
        except (ConfigurationError, RoleFault) as error:
            self.log.error("not_reloaded", error=str(error))
            print(f"mycel {self.options.name}: not reloaded: {error}", file=sys.stderr, flush=True)
            self._tell_reload(Changes([], [], str(error)))
            return
        changed = changes(self._started_with, self.configuration, configuration, self.options.role)
        self.configuration = configuration
        self.log.set_level(configuration.node.log_level)
        for take_over in self.on_reload:
            take_over(configuration)
        self.log.info("reloaded", applied=changed.applied, needs_restart=changed.needs_restart)
        self._tell_reload(changed)

    def _tell_reload(self, changed: Changes) -> None:
        """To whoever has asked for it, and waits."""
        if self._state is not None:
            count = self._state.reloads + 1
            self._state = msgspec.structs.replace(self._state, reloads=count, reloaded=changed)
            write_state(self.folder.state_path, self._state)

    def close(self) -> None:
        self.folder.state_path.unlink(missing_ok=True)
        self.log.close()
        self.lock.release()


def run(
    options: Options,
    serve: Callable[[Program], Awaitable[None]],
    overrides: dict[str, object] | None = None,
) -> int:
    """Runs one role to its end; the exit code."""
    try:
        program = Program(options, overrides)
    except EXPECTED as error:
        return complain(options, error)
    try:
        run_loop(serve(program))
    except (*EXPECTED, RoleFault, NotAdmitted, OSError) as error:
        return complain(options, error)
    finally:
        program.close()
    return 0


def run_loop(serving: Awaitable[None]) -> None:
    async def main() -> None:
        await serving

    try:
        import uvloop
    except ImportError:
        asyncio.run(main())
    else:
        uvloop.run(main())


def complain(options: Options, error: BaseException) -> int:
    print(f"mycel {options.name}: {error}", file=sys.stderr, flush=True)
    return 1
