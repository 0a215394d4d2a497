"""`mycel completion SHELL`: what makes a shell complete commands, options and ids.

The scripts ask `mycel __complete` with each press of the key, so that they never grow old.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
from collections.abc import Callable, Iterable
from typing import Final

from mycel.cli.command_parser import CommandParser, Parsed, parsers_only
from mycel.cli.main import COMMANDS
from mycel.client import Client

IDS_OFFERED: Final = 30
NOT_ASKED: Final = ("demo",)
"""It acts before it has parsed."""
STATES: Final = ("queued", "running", "succeeded", "failed", "cancelled")

SCRIPTS: Final = {
    "bash": """\
_mycel() {
    local IFS=$'\\n'
    COMPREPLY=($(mycel __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _mycel mycel
""",
    "zsh": """\
#compdef mycel
_mycel() {
    local -a found
    found=("${(@f)$(mycel __complete "${(@)words[2,$CURRENT]}" 2>/dev/null)}")
    if [[ -n "$found" ]]; then compadd -- $found; else _files; fi
}
compdef _mycel mycel
""",
    "fish": """\
complete -c mycel -a '(mycel __complete (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
""",
}


def completion(given: list[str]) -> int:
    options = CommandParser(
        prog="mycel completion",
        description="Print a script with which a shell completes commands, options and ids.",
        epilog="bash: source <(mycel completion bash); zsh: the same behind compinit; "
        "fish: mycel completion fish | source",
    )
    options.add_argument("shell", choices=list(SCRIPTS))
    print(SCRIPTS[options.parse_args(given).shell], end="")
    return 0


def complete(words: list[str]) -> int:
    """Prints what the last word may become."""
    for one in candidates(words or [""]):
        print(one)
    return 0


def candidates(words: list[str]) -> list[str]:
    *before, partial = words
    if not before:
        return _beginning(partial, [*COMMANDS, "help"])
    if before[0] == "help":
        return _beginning(partial, COMMANDS)
    parser = _parser_of(before)
    if parser is None:
        return []
    if partial.startswith("-"):
        return _beginning(
            partial, [one for one in parser._option_string_actions if one[:2] == "--"]
        )
    taking = parser._option_string_actions.get(before[-1])
    if taking is not None and taking.nargs != 0:
        return _beginning(partial, _values(taking, before))
    positionals = [one for one in parser._actions if not one.option_strings]
    return _beginning(partial, [v for one in positionals for v in _values(one, before)])


def _parser_of(before: list[str]) -> argparse.ArgumentParser | None:
    """The one that the words lead to, through actions such as `store export`."""
    name, *rest = before
    if name not in COMMANDS or name in NOT_ASKED:
        return None
    command = COMMANDS[name]
    function = getattr(importlib.import_module(command.module), command.function)
    try:
        with parsers_only():
            function(rest)
    except Parsed as parsed:
        return _below(parsed.parser, rest)
    except Exception:  # noqa: BLE001 – half a command line; nothing to offer is the answer
        return None
    return None


def _below(parser: argparse.ArgumentParser, words: list[str]) -> argparse.ArgumentParser:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word in words:
                if word in action.choices:
                    found: argparse.ArgumentParser = action.choices[word]
                    return found
    return parser


def _values(action: argparse.Action, before: list[str]) -> Iterable[str]:
    """What may stand for an argument; nothing for a file, which the shell knows better."""
    if action.choices is not None:
        return [str(one) for one in action.choices]
    ask = _ASKED.get(str(action.metavar))
    return [] if ask is None else ask(before)


def _beginning(partial: str, names: Iterable[str]) -> list[str]:
    return [name for name in dict.fromkeys(names) if name.startswith(partial)]


# What the swarm knows


def _client(before: list[str]) -> Client:
    """Of the swarm that the words before say."""
    said: dict[str, str | None] = {}
    for option in ("api", "token", "context", "home"):
        place = before.index(f"--{option}") if f"--{option}" in before else len(before)
        said[option] = before[place + 1] if place + 1 < len(before) else None
    return Client(**said)


def _asking(look: Callable[[Client], list[str]]) -> Callable[[list[str]], list[str]]:
    def ask(before: list[str]) -> list[str]:
        # Without a swarm there is nothing to offer, and nobody to tell.
        with contextlib.suppress(Exception), _client(before) as client:
            return look(client)
        return []

    return ask


def _contexts(_: list[str]) -> list[str]:
    from mycel.client import contexts

    with contextlib.suppress(Exception):
        return [contexts.HOME_CONTEXT, *contexts.read(os.environ).contexts]
    return []


_JOBS: Final = _asking(lambda client: [job.id for job in client.jobs(limit=IDS_OFFERED)])
_TASKS: Final = _asking(lambda client: [task.id for task in client.tasks(limit=IDS_OFFERED)])
_ASKED: Final[dict[str, Callable[[list[str]], list[str]]]] = {
    "ID": _JOBS,
    "JOB": _JOBS,
    "TASK": _TASKS,
    "WORKER": _asking(lambda client: [worker.name for worker in client.workers()]),
    "MODEL": _asking(lambda client: [one["id"] for one in client.get("/v1/models")["data"]]),
    "CONTEXT": _contexts,
    "STATE": lambda _: list(STATES),
}
