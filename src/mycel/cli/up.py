"""`mycel up`: a gateway, a scheduler and workers as processes of their own."""

from __future__ import annotations

import os
import signal
import sys

from . import local_swarm
from .arguments import parser
from .local_swarm import Running
from .output import print_json

_ENDING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


def main(given: list[str]) -> int:
    options = parser("up", "Start a swarm on this machine, or what is missing of it.")
    options.add_argument("--workers", type=int, metavar="N", help="how many (2)")
    options.add_argument(
        "--port", type=int, metavar="P", help="of the API (8080); 0 picks a free one"
    )
    options.add_argument("--detach", action="store_true", help="leave it running and return")
    chosen = options.parse_args(given)
    # Blocked before anything starts: a Ctrl-C in between must not leave half a swarm. The
    # roles start with the signals of their own.
    if not chosen.detach:
        signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
        os.register_at_fork(
            after_in_child=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
        )
    running, started = local_swarm.up(chosen.home, chosen.workers, chosen.port)
    if chosen.json:
        print_json(running)
    else:
        _print_status(running, started)
    sys.stdout.flush()
    return 0 if chosen.detach else _stay(running, chosen.json)


def _print_status(running: Running, started: list[str]) -> None:
    print(f"api    {running.api}")
    print(f"home   {running.home}")
    roles = ", ".join(f"{name} {pid}" for name, pid in running.pids.items())
    print(f"roles  {roles}")
    if not started:
        print("everything was running already")


def _stay(running: Running, quiet: bool) -> int:
    if not quiet:
        print("Ctrl-C stops it all", flush=True)
    alive = dict(running.pids)
    while signal.sigtimedwait(_ENDING, 1.0) is None:
        for name, pid in list(alive.items()):
            if _has_ended(pid):
                del alive[name]
                note = f"mycel: {name} has ended; 'mycel up' starts it again"
                print(note, file=sys.stderr, flush=True)
    stopped = local_swarm.down(running.home)
    if not quiet:
        print(f"\nstopped {', '.join(role.name for role in stopped) or 'nothing'}")
    return 0


def _has_ended(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:  # started by an earlier `up`
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False
