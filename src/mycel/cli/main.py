"""`mycel`: finds the command, runs it, and turns what went wrong into a line and an exit code.

Each command is imported only when it is called, and parsed with argparse: a richer parser
costs more time than most commands take.

    0  done             124  time-out          (`mycel run`)
    1  failure          125  Mycel's own fault (`mycel run`)
    2  usage            130  interrupted
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from mycel import __version__
from mycel.console.terminal import cleaned_streams

FAILURE: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130


class Command(NamedTuple):
    summary: str
    module: str
    function: str = "main"


SECTIONS: Final[dict[str, dict[str, Command]]] = {
    "A swarm on this machine": {
        "up": Command("start a gateway, a scheduler and workers", "mycel.cli.commands.up"),
        "down": Command("stop them all", "mycel.cli.commands.down"),
        "demo": Command(
            "see a sweep survive the loss of a worker", "mycel.cli.commands.bench_and_demo", "demo"
        ),
    },
    "Which swarm": {
        "login": Command(
            "keep a swarm's URL and a token for it", "mycel.cli.commands.login", "login"
        ),
        "logout": Command("forget them", "mycel.cli.commands.login", "logout"),
        "context": Command(
            "list the swarms you logged in to; use NAME", "mycel.cli.commands.login", "context"
        ),
    },
    "Work": {
        "run": Command("run a command on a worker and wait for it", "mycel.cli.commands.work.run"),
        "submit": Command("submit a job from a file", "mycel.cli.commands.work.submit"),
        "rerun": Command(
            "submit a job once more, or what failed of it",
            "mycel.cli.commands.work.follow",
            "rerun",
        ),
        "follow": Command(
            "watch a job, or a task's output", "mycel.cli.commands.work.follow", "follow"
        ),
        "wait": Command("wait for jobs and tasks", "mycel.cli.commands.work.follow", "wait"),
        "show": Command("show a job or a task in full", "mycel.cli.commands.work.show", "show"),
        "results": Command("print a job's results", "mycel.cli.commands.work.results", "results"),
        "chat": Command("talk to a model", "mycel.cli.commands.work.chat", "chat"),
        "jobs": Command("list jobs", "mycel.cli.commands.work.lists", "jobs"),
        "tasks": Command("list tasks", "mycel.cli.commands.work.lists", "tasks"),
        "logs": Command("print what tasks wrote", "mycel.cli.commands.work.logs", "logs"),
        "get": Command("bring home the files that tasks have left", "mycel.cli.commands.work.get"),
        "events": Command("print what happens", "mycel.cli.commands.work.events"),
        "explain": Command(
            "say why a task is where it is", "mycel.cli.commands.work.task", "explain"
        ),
        "cancel": Command("cancel tasks and jobs", "mycel.cli.commands.work.task", "cancel"),
    },
    "The swarm": {
        "status": Command(
            "show how the swarm is, at a glance", "mycel.cli.commands.status", "status"
        ),
        "invite": Command(
            "print what a new machine joins with", "mycel.cli.commands.invite", "invite"
        ),
        "token": Command(
            "create, inspect, narrow or revoke a token", "mycel.cli.commands.token", "token"
        ),
        "user": Command("add, list or disable users", "mycel.cli.commands.token", "user"),
        "drain": Command("let a worker take no new work", "mycel.cli.commands.drain", "drain"),
        "resume": Command("let it take work again", "mycel.cli.commands.drain", "resume"),
        "workers": Command("list workers", "mycel.cli.commands.worker_lists", "workers"),
        "models": Command(
            "list the models that are served", "mycel.cli.commands.worker_lists", "models"
        ),
        "model": Command("serve NAME where it fits; list, stop NAME", "mycel.cli.commands.model"),
        "peers": Command(
            "list the peers of the scheduler's node", "mycel.cli.commands.network", "peers"
        ),
        "swarm": Command("status; ping PEER", "mycel.cli.commands.network", "swarm"),
        "cluster": Command(
            "match jobs with clusters' graphs; extract graphs", "mycel.cli.commands.cluster"
        ),
        "completion": Command(
            "print a script for bash, zsh or fish", "mycel.cli.commands.completion", "completion"
        ),
        "config": Command("check or show a configuration", "mycel.cli.commands.config", "config"),
        "reload": Command("take over a changed mycel.toml", "mycel.cli.commands.config", "reload"),
        "store": Command("check, export or import a journal", "mycel.cli.commands.store"),
        "sim": Command(
            "simulate a cluster: run, compare, topology, list", "mycel.cli.commands.sim"
        ),
        "bench": Command(
            "measure this machine's swarm", "mycel.cli.commands.bench_and_demo", "bench"
        ),
    },
    "One node": {
        "node": Command("be a scheduler and a worker", "mycel.cli.commands.roles", "node"),
        "gateway": Command("be a gateway", "mycel.cli.commands.roles", "gateway"),
        "scheduler": Command("be a scheduler", "mycel.cli.commands.roles", "scheduler"),
        "worker": Command("be a worker", "mycel.cli.commands.roles", "worker"),
    },
}
COMPLETE: Final = Command("", "mycel.cli.commands.completion", "complete")
"""What the shells' scripts call."""
COMMANDS: Final = {name: one for section in SECTIONS.values() for name, one in section.items()}


def help_text() -> str:
    lines = ["Usage: mycel COMMAND [OPTIONS]", "", "Runs AI work on the machines you have."]
    for title, commands in SECTIONS.items():
        lines += ["", f"{title}:"]
        lines += [f"  {name:<11} {command.summary}" for name, command in commands.items()]
    lines += ["", "'mycel help COMMAND' says more; --json works with all that print."]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with cleaned_streams():
            code = _dispatch(given)
            sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read us has gone, which is their right; Python must not complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return FAILURE
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


def _dispatch(given: list[str]) -> int:
    if given[:1] == ["help"] and len(given) > 1:
        given = [given[1], "--help"]
    if not given or given[0] in ("-h", "--help", "help"):
        print(help_text())
        return 0 if given else USAGE
    if given[0] in ("-V", "--version", "version"):
        print(f"mycel {__version__}")
        return 0
    command = COMPLETE if given[0] == "__complete" else COMMANDS.get(given[0])
    if command is None:
        return _unknown(given[0])
    function = getattr(importlib.import_module(command.module), command.function)
    return _run(function, given[1:])


def _unknown(name: str) -> int:
    from difflib import get_close_matches

    close = get_close_matches(name, COMMANDS, 1)
    hint = f"did you mean 'mycel {close[0]}'?" if close else "'mycel --help' lists what there is"
    print(f"mycel: there is no command {name!r}; {hint}", file=sys.stderr)
    return USAGE


def _run(function: Callable[[list[str]], int], given: list[str]) -> int:
    try:
        return function(given)
    except SystemExit as leaving:  # argparse's way to end
        return leaving.code if isinstance(leaving.code, int) else FAILURE
    except (BrokenPipeError, KeyboardInterrupt):
        raise
    except Exception as error:
        from mycel.console.errors import exit_code_of, explain

        text = explain(error)
        if text is None:
            raise
        print(f"mycel: {text}", file=sys.stderr)
        return exit_code_of(error)
