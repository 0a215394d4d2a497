"""`mycel chat MODEL`: a conversation with a model that workers serve."""

from __future__ import annotations

import sys
from argparse import Namespace

from mycel.cli.arguments import connect, parser
from mycel.client import Client
from mycel.console.errors import CommandError
from mycel.console.terminal import Output

PROMPT_BYTES_MAX = 4 << 20

Messages = list[dict[str, str]]


def chat(given: list[str]) -> int:
    options = parser(
        "chat",
        "Talk to a chat model: a line is a turn, an empty line or Ctrl-D ends it. With a prompt, "
        "or one from a pipe, print one answer.",
    )
    options.add_argument("model", metavar="MODEL")
    options.add_argument("prompt", nargs="*", metavar="PROMPT")
    options.add_argument("--system", metavar="TEXT", help="what the model is told first")
    options.add_argument("--max-tokens", type=int, metavar="N", help="of each answer")
    chosen = options.parse_args(given)
    messages: Messages = []
    if chosen.system:
        messages.append({"role": "system", "content": chosen.system})
    with connect(chosen) as client:
        _check_served(client, chosen.model)
        if chosen.prompt or not sys.stdin.isatty():
            prompt = " ".join(chosen.prompt) or sys.stdin.read(PROMPT_BYTES_MAX)
            _turn(client, chosen, messages, prompt)
            return 0
        while prompt := _asked():
            _turn(client, chosen, messages, prompt)
    return 0


def _check_served(client: Client, model: str) -> None:
    """A request would wait for somebody to serve it, and say nothing meanwhile."""
    known = [one["id"] for one in client.get("/v1/models")["data"]]
    if model not in known:
        from mycel.cli.command_parser import did_you_mean

        hint = did_you_mean(model, known) or f"; there is {', '.join(known) or 'none'}"
        raise CommandError(f"no worker serves {model!r}{hint}")


def _asked() -> str:
    try:
        return input("> ").strip()
    except EOFError:
        print()
        return ""


def _turn(client: Client, chosen: Namespace, messages: Messages, prompt: str) -> None:
    messages.append({"role": "user", "content": prompt})
    limits = {} if chosen.max_tokens is None else {"max_tokens": chosen.max_tokens}
    output, said = Output(), []
    for piece in client.chat(chosen.model, messages, **limits):
        said.append(piece)
        output.write(sys.stdout, piece.encode())
        sys.stdout.buffer.flush()
    print()
    messages.append({"role": "assistant", "content": "".join(said)})
