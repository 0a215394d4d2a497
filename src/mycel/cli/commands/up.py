"""`mycel up`: a gateway, a scheduler and workers as processes of their own."""

from __future__ import annotations

import os
import signal
import sys
import time
from argparse import Namespace
from types import FrameType

import msgspec

from mycel.access.home import HOME_VARIABLE
from mycel.cli.arguments import home_parser
from mycel.client import contexts
from mycel.console.tables import print_json
from mycel.local import local_swarm
from mycel.local.local_swarm import Running

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LOOK_SECONDS = 0.5


def main(given: list[str]) -> int:
    options = home_parser("up", "Start a swarm on this machine, or what is missing of it.")
    options.add_argument("--workers", type=int, metavar="N", help="how many (2)")
    options.add_argument(
        "--port", type=int, metavar="P", help="of the API (8080); 0 picks a free one"
    )
    options.add_argument("--detach", action="store_true", help="leave it running and return")
    options.add_argument(
        "--show-token", action="store_true", help="with --json: the owner's token too"
    )
    chosen = options.parse_args(given)
    if chosen.detach:
        _start(chosen)
        return 0
    for number in _ENDING:
        signal.signal(number, _interrupt)
    try:
        _watch(_start(chosen))
    except KeyboardInterrupt:
        for number in _ENDING:
            signal.signal(number, signal.SIG_IGN)
        stopped = local_swarm.down(chosen.home)
        if not chosen.json:
            print(f"\nstopped {', '.join(role.name for role in stopped) or 'nothing'}")
    return 0


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _start(chosen: Namespace) -> Running:
    running, started = local_swarm.up(chosen.home, chosen.workers, chosen.port)
    for name in running.kept:
        print(
            f"mycel: {name} is busy, and keeps more than its share of the machine until it starts "
            "again",
            file=sys.stderr,
        )
    for name in local_swarm.unregistered(running):
        print(
            f"mycel: {name} runs, and the scheduler does not know it yet: its log in "
            f"{running.home}/{name} may say why",
            file=sys.stderr,
        )
    if chosen.json:
        shown = running if chosen.show_token else msgspec.structs.replace(running, token="")
        print_json(shown)
    else:
        print(f"api    {running.api}")
        print(f"home   {running.home}")
        print("roles  " + ", ".join(f"{name} {pid}" for name, pid in running.pids.items()))
        for line in running.walls_lines():
            print(f"walls  {line}")
        for name, address in running.metrics.items():
            print(f"metrics of {name}  {address}")
        if not started:
            print("everything was running already")
        for warning in local_swarm.risks_of(running):
            print(f"mycel: warning: {warning}", file=sys.stderr)
        elsewhere = contexts.read(os.environ).current
        if elsewhere and chosen.home is None and not os.environ.get(HOME_VARIABLE):
            print(
                f"mycel: commands talk to context {elsewhere!r}; 'mycel context use home' makes "
                "them talk to this swarm",
                file=sys.stderr,
            )
    sys.stdout.flush()
    return running


def _watch(running: Running) -> None:
    """Until a signal comes. It says when a role has ended, and restarts nothing."""
    print("Ctrl-C stops it all", file=sys.stderr, flush=True)
    alive = dict(running.pids)
    while True:
        time.sleep(LOOK_SECONDS)
        for name, pid in list(alive.items()):
            if _has_ended(pid):
                del alive[name]
                note = f"mycel: {name} has ended; 'mycel up' starts it again"
                print(note, file=sys.stderr, flush=True)


def _has_ended(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:  # started by an earlier `up`
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False
