"""A whole swarm on this machine, as `mycel up`, the demo and the benchmarks start it."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from mycel.access.errors import AccessError
from mycel.access.founder import found
from mycel.access.home import Home, find_home, read_state
from mycel.access.tokens import load_api_token
from mycel.client import Client
from mycel.client.errors import ClientError
from mycel.config.reload import Changes
from mycel.console.errors import CommandError, UsageError

from . import role_processes, swarm_plan
from .role_processes import Ready, Stopped

RELOAD_SECONDS: Final = 10.0
REGISTER_SECONDS: Final = 15.0
"""Workers that have started have most often registered within a second."""
LOOK_SECONDS: Final = 0.01


class Running(msgspec.Struct, frozen=True, omit_defaults=True):
    """What `mycel up --json` prints, without the token unless somebody asks for it."""

    api: str
    home: str
    pids: dict[str, int]
    token: str = ""
    """The owner's."""
    metrics: dict[str, str] = {}
    """Where roles other than the scheduler show theirs, if they do."""
    walls: dict[str, str] = {}
    """What holds the tasks of each worker."""
    kept: list[str] = []
    """Workers that are busy, and have kept more than their share of the machine."""

    def client(self) -> Client:
        return Client.from_home(self.home, self.token)

    def walls_lines(self) -> list[str]:
        """For people: one, if all workers have the same."""
        by_walls: dict[str, list[str]] = {}
        for name, walls in self.walls.items():
            by_walls.setdefault(walls, []).append(name)
        if len(by_walls) == 1:
            return list(by_walls)
        return [f"{', '.join(names)}: {walls}" for walls, names in by_walls.items()]


def up(
    home: Path | str | None = None, workers: int | None = None, port: int | None = None
) -> tuple[Running, list[str]]:
    """Starts what is missing; also says which roles that were."""
    if workers is not None and not 1 <= workers <= swarm_plan.WORKERS_MAX:
        raise UsageError(f"--workers is from 1 to {swarm_plan.WORKERS_MAX}")
    if port is not None and not 0 <= port <= 65_535:
        raise UsageError("--port is from 0 to 65535")
    place = find_home(home, os.environ)
    place.create()
    with _one_at_a_time(place):
        running = role_processes.running(place)
        if "scheduler" in running:
            _check_same_port(place, port)
            port = None
        made = swarm_plan.make(place, workers, port)
        missing = [name for name in made.names if name not in running]
        if any(name.startswith("worker") for name in missing):
            made, yielding = _shared_anew(made, running)
        else:
            yielding = []
        if missing:
            swarm_plan.check_ports(made, missing)
            swarm_plan.write(made, missing)
            role_processes.stop(place, names=yielding)
            swarm_plan.write_shares(made, yielding)
            missing += yielding
            started = role_processes.start(place, missing)
            running |= {name: ready.pid for name, ready in started.items()}
        pids = {name: running[name] for name in _ordered(running)}
        if not place.token_path.exists():  # its owner wants another, and has the key
            found(place, swarm_plan.swarm_name(swarm_plan.user_settings(place)))
        token = load_api_token(place.token_path)
        states = _states(place, pids)
        metrics = {name: state.metrics for name, state in states.items() if state.metrics}
        walls = {name: state.walls for name, state in states.items() if state.walls}
        return Running(
            _api_of(place), str(place.path), pids, token, metrics, walls, sorted(made.kept)
        ), missing


def unregistered(running: Running) -> list[str]:
    """Waits until the scheduler has work for the workers; the roles that it does not know in
    time, by name."""
    place = Home(Path(running.home))
    names = [name for name in running.pids if name.startswith("worker")]
    peers = {name: state.peer for name, state in _states(place, names).items()}
    ends = time.monotonic() + REGISTER_SECONDS
    with running.client() as client:
        while True:
            with suppress(ClientError):
                known = {one.peer_id for one in client.workers() if one.state == "healthy"}
                peers = {name: peer for name, peer in peers.items() if peer not in known}
            if not peers or time.monotonic() > ends:
                return list(peers)
            time.sleep(LOOK_SECONDS * 5)


def down(home: Path | str | None = None, drain: bool = False) -> list[Stopped]:
    """Stops everything, when what runs has ended if it is to `drain`; nothing to stop is
    fine."""
    place = find_home(home, os.environ)
    if not place.path.is_dir():
        return []
    with _one_at_a_time(place):
        return role_processes.stop(place, drain=drain)


def reload(home: Path | str | None = None) -> dict[str, Changes]:
    """Writes the settings of the roles that run anew, and tells each to read them; what each
    has made of it."""
    place = find_home(home, os.environ)
    if not place.path.is_dir():
        return {}
    with _one_at_a_time(place):
        running = role_processes.running(place)
        swarm_plan.write(swarm_plan.make(place, None, None), running)
        told = {name: _reloads(place, name) for name in _ordered(running)}
        for name in told:
            with suppress(ProcessLookupError):
                os.kill(running[name], signal.SIGHUP)
        ends = time.monotonic() + RELOAD_SECONDS
        return {name: _reloaded(place, name, count, ends) for name, count in told.items()}


def risks_of(running: Running) -> list[str]:
    """What its owner should know of how the API can be reached."""
    from mycel import config
    from mycel.config.conflicts import risks

    path = swarm_plan.config_path(Home(Path(running.home)), "scheduler")
    return risks(config.load(path, dict(os.environ), {})) if path.exists() else []


def _reloads(home: Home, name: str) -> int:
    state = read_state(home.role(name).state_path, Ready)
    return 0 if state is None else state.reloads


def _reloaded(home: Home, name: str, count: int, ends: float) -> Changes:
    """What a role says of it, once that is more than what it had said before."""
    folder = home.role(name)
    while time.monotonic() < ends:
        state = read_state(folder.state_path, Ready)
        if state is not None and state.reloaded is not None and state.reloads > count:
            return state.reloaded
        if folder.holder() is None:
            return Changes([], [], "it has ended")
        time.sleep(LOOK_SECONDS)
    return Changes([], [], f"it has not answered within {RELOAD_SECONDS:g} s")


def _ordered(names: dict[str, int]) -> list[str]:
    def rank(name: str) -> tuple[int, int, str]:
        role, _, number = name.partition("-")
        order = ("gateway", "scheduler", "worker")
        return (
            order.index(role) if role in order else len(order),
            int(number) if number.isdigit() else 0,
            name,
        )

    return sorted(names, key=rank)


def _api_of(home: Home) -> str:
    state = read_state(home.role("scheduler").state_path, Ready)
    if state is None or not state.api:
        raise CommandError(f"the scheduler of {home.path} runs, and has not said where")
    return state.api


def _states(home: Home, names: Iterable[str]) -> dict[str, Ready]:
    states = {name: read_state(home.role(name).state_path, Ready) for name in names}
    return {name: state for name, state in states.items() if state is not None}


def _shared_anew(
    plan: swarm_plan.Plan, running: dict[str, int]
) -> tuple[swarm_plan.Plan, list[str]]:
    """Which running workers have more than their share of the machine, now that there are to be
    more of them: those that run nothing start again, with less; busy ones keep what they have."""
    fixed = swarm_plan.user_settings(plan.home).get("worker", {})

    def has_more(share: swarm_plan.Share, fair: swarm_plan.Share) -> bool:
        return (share.cpu_cores > fair.cpu_cores and "cpu_cores" not in fixed) or (
            share.memory > fair.memory and "memory" not in fixed
        )

    written = {
        name: share
        for name in running
        if name.startswith("worker")
        and (share := swarm_plan.written_share(plan.home, name)) is not None
    }
    fair = swarm_plan.share_of(plan)
    if not any(has_more(share, fair) for share in written.values()):
        return plan, []
    busy = _busy(plan.home, list(written))
    kept = {
        name: share for name, share in written.items() if name in busy and has_more(share, fair)
    }
    changed = msgspec.structs.replace(plan, kept=kept)
    rest = swarm_plan.share_of(changed)
    yielding = [
        name for name, share in written.items() if name not in busy and has_more(share, rest)
    ]
    return changed, yielding


def _busy(home: Home, names: list[str]) -> set[str]:
    """Those that run something; all of them, if nobody can say."""
    peers = {state.peer: name for name, state in _states(home, names).items()}
    try:
        with Client.from_home(home.path) as client:
            known = {one.peer_id: one.load for one in client.workers()}
    except (ClientError, AccessError):
        return set(names)
    return {name for peer, name in peers.items() if peer not in known or known[peer].running}


def _check_same_port(home: Home, port: int | None) -> None:
    api = _api_of(home)
    if port not in (None, 0) and not api.endswith(f":{port}"):
        raise CommandError(
            f"the scheduler of {home.path} runs already, at {api}: 'mycel down' first, or leave "
            f"--port away"
        )


@contextmanager
def _one_at_a_time(home: Home) -> Iterator[None]:
    """Two `mycel up` on one home: the second waits, and finds everything running."""
    descriptor = os.open(home.path / "up.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
