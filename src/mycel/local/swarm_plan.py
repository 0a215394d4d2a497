"""What `mycel up` writes down before it starts anything: ports, keys, tokens, settings.

<home>/swarm.json          ports of all roles, so that later starts use the same
<home>/owner.key           signs the members' tokens; owner.pub is what they are held against
<home>/<name>/             identity.key, member.token, config.toml
"""

from __future__ import annotations

import os
import random
import socket
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from mycel import config
from mycel.access.founder import found
from mycel.access.home import Home, read_state, write_state
from mycel.access.key_files import load_or_create_key
from mycel.access.tokens import store_member_token
from mycel.console.errors import CommandError

from . import listen_addresses, toml_writer

DEFAULT_API_PORT: Final = 8080
DEFAULT_WORKERS: Final = 2
WORKERS_MAX: Final = 256
PORTS: Final = range(20_000, 32_768)
"""Below the ports that systems give to outgoing connections: those would come to sit on a
stopped role's port."""


class SwarmFile(msgspec.Struct):
    """What `swarm.json` holds."""

    workers: int
    api_port: int
    ports: dict[str, int]
    """Of libp2p, by role."""


class _Started(msgspec.Struct):
    """Of what a running role says of itself."""

    addresses: list[str] = []


class Share(msgspec.Struct, frozen=True):
    """One worker's part of the machine."""

    cpu_cores: int
    memory: int


class Plan(msgspec.Struct, frozen=True):
    home: Home
    file: SwarmFile
    kept: dict[str, Share] = {}
    """Of workers that are busy and keep what they have; the others share the rest."""

    @property
    def names(self) -> list[str]:
        return role_names(self.file.workers)


def role_names(workers: int) -> list[str]:
    return ["gateway", "scheduler", *(f"worker-{n}" for n in range(1, workers + 1))]


def role_of(name: str) -> str:
    return name.partition("-")[0]


def make(home: Home, workers: int | None, api_port: int | None) -> Plan:
    """Ports for all; those of an earlier start are kept. Nothing is written yet."""
    known = read_state(home.path / "swarm.json", SwarmFile)
    ports = {} if known is None else dict(known.ports)
    count = workers or (DEFAULT_WORKERS if known is None else known.workers)
    if api_port is None:
        api_port = _configured_port(home) if known is None else known.api_port
    named = listen_addresses.gateway_port(user_settings(home))
    if named:
        ports["gateway"] = named
    taken = set(ports.values())
    for name in role_names(count):
        if name not in ports:
            ports[name] = _free_port(taken)
            taken.add(ports[name])
    if api_port == 0:
        api_port = _free_port(taken)
    return Plan(home, SwarmFile(count, api_port, ports))


def check_ports(plan: Plan, missing: Iterable[str]) -> None:
    """Before anything starts: is there room for what is missing?"""
    named = listen_addresses.gateway_port(user_settings(plan.home))
    for name in missing:
        port = plan.file.ports[name]
        if name == "gateway" and port == named and not is_free(port):
            raise CommandError(
                f"port {port}, which swarm.listen of {plan.home.configuration_path} names, is in "
                "use by another program: stop it, or name another"
            )
        if not is_free(port):
            raise CommandError(
                f"port {port}, which {name} of {plan.home.path} had before, is in use by another "
                f"program: stop it, or delete {plan.home.path / 'swarm.json'} for new ports"
            )
        if name == "scheduler" and not is_free(plan.file.api_port):
            raise CommandError(
                f"port {plan.file.api_port} for the API is in use by another program: stop it, "
                f"or choose another with --port (--port 0 picks a free one)"
            )


def write(plan: Plan, missing: Iterable[str]) -> None:
    """Keys, tokens and settings of the roles that are about to start."""
    from mycel import _native

    home = plan.home
    settings = user_settings(home)
    founder = found(home, swarm_name(settings))
    peers: dict[str, str] = {}
    for name in {"gateway", *missing}:
        folder = home.role(name)
        folder.create()
        secret = load_or_create_key(folder.identity_path, f"the identity of {name}")
        peers[name] = _native.identity(secret)[1]
        if not folder.member_token_path.exists():
            token = founder.member_token(peers[name], (role_of(name),))
            store_member_token(folder.member_token_path, token)
    write_state(home.path / "swarm.json", plan.file)
    for name in missing:
        ours = _settings(plan, name, peers["gateway"], settings)
        _write_settings(home, name, toml_writer.merged(settings, ours))


def write_shares(plan: Plan, names: Iterable[str]) -> None:
    """Of workers that start again with less of the machine: all else stays as it was, since only
    `mycel reload` and a start from nothing take what mycel.toml says now."""
    fixed = user_settings(plan.home).get("worker", {})
    share = msgspec.structs.asdict(share_of(plan))
    for name in names:
        settings = tomllib.loads(config_path(plan.home, name).read_text(encoding="utf-8"))
        settings["worker"] |= {key: value for key, value in share.items() if key not in fixed}
        _write_settings(plan.home, name, settings)


def _write_settings(home: Home, name: str, settings: dict[str, Any]) -> None:
    text = "# Written by 'mycel up'; yours is mycel.toml.\n" + toml_writer.dumps(settings)
    _write_text(config_path(home, name), text)


def config_path(home: Home, name: str) -> Path:
    return home.role(name).path / "config.toml"


def _settings(plan: Plan, name: str, gateway: str, user: dict[str, Any]) -> dict[str, Any]:
    ports = plan.file.ports
    if name == "gateway":
        swarm: dict[str, Any] = {"listen": listen_addresses.of_gateway(user, ports[name])}
    else:
        swarm = {
            "listen": listen_addresses.of_others(user, ports[name]),
            "bootstrap": [_gateway_address(plan, gateway, user)],
        }
    settings: dict[str, Any] = {"node": {"home": str(plan.home.path)}, "swarm": swarm}
    if name == "scheduler":
        address = f"{_configured_host(user)}:{plan.file.api_port}"
        settings["scheduler"] = {"api": {"bind_address": address}}
    if role_of(name) == "worker":
        settings["worker"] = {
            **msgspec.structs.asdict(share_of(plan)),
            **user.get("worker", {}),
            "name": name,
        }
    return settings


def _gateway_address(plan: Plan, peer: str, user: dict[str, Any]) -> str:
    """One that runs stays where it is, whatever the settings have come to say since."""
    [first, *_] = listen_addresses.of_gateway(user, plan.file.ports["gateway"])
    wanted = f"{listen_addresses.from_here(first)}/p2p/{peer}"
    folder = plan.home.role("gateway")
    state = None if folder.holder() is None else read_state(folder.state_path, _Started)
    if state is None or not state.addresses or wanted in state.addresses:
        return wanted
    return state.addresses[0]


def share_of(plan: Plan) -> Share:
    """Of each worker that keeps nothing of its own."""
    cores = len(os.sched_getaffinity(0)) - sum(one.cpu_cores for one in plan.kept.values())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    memory -= sum(one.memory for one in plan.kept.values())
    sharers = max(1, plan.file.workers - len(plan.kept))
    return Share(max(1, cores // sharers), max(1 << 20, memory // sharers))


def written_share(home: Home, name: str) -> Share | None:
    """What a worker was started with."""
    try:
        text = config_path(home, name).read_text(encoding="utf-8")
        return msgspec.convert(tomllib.loads(text).get("worker", {}), Share)
    except (OSError, tomllib.TOMLDecodeError, msgspec.ValidationError):
        return None  # by somebody else's hand, or by its owner's settings


def user_settings(home: Home) -> dict[str, Any]:
    """`mycel.toml`, checked by itself, so that a mistake is reported with its own line."""
    path = home.configuration_path
    if not path.exists():
        return {}
    config.load(path, {}, {})
    return tomllib.loads(path.read_text(encoding="utf-8"))


def swarm_name(user: dict[str, Any]) -> str:
    name: str = user.get("swarm", {}).get("name", config.settings.Swarm().name)
    return name


def _configured_address(user: dict[str, Any]) -> str:
    address: str = user.get("scheduler", {}).get("api", {}).get("bind_address", "")
    return address


def _configured_host(user: dict[str, Any]) -> str:
    return _configured_address(user).rpartition(":")[0] or "127.0.0.1"


def _configured_port(home: Home) -> int:
    port = _configured_address(user_settings(home)).rpartition(":")[2]
    return int(port) if port else DEFAULT_API_PORT


def is_free(port: int) -> bool:
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", port))
            trial.listen()
        except OSError:
            return False
    return True


def _free_port(taken: set[int]) -> int:
    for _ in range(1000):
        port = random.choice(PORTS)
        if port not in taken and is_free(port):
            return port
    raise CommandError("no free port was found; is something else using thousands of them?")


def _write_text(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
