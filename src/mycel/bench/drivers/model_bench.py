"""What the swarm adds to a model: time to the first token, and tokens a second.

One server, asked in turns: directly, and through a scheduler and a worker that knows it as an
endpoint. It is the language model of `mycel demo llm` where its packages are, else a stand-in
that says a token every 9 ms. Differences are taken in pairs, so that what the machine does
besides weighs on both.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import urlsplit

from mycel.bench import bench_swarm
from mycel.bench.percentiles import median
from mycel.client import Client
from mycel.console.errors import CommandError, UsageError
from mycel.console.tables import print_json
from mycel.demo import llm
from mycel.demo.demo_packages import folder_of
from mycel.devices.host import cpu_cores
from mycel.local import local_swarm, scratch_homes

ROUNDS: Final = 12
WARM_UP: Final = 2
TOKENS: Final = 48
NAME: Final = "bench"
LOAD_SECONDS_MAX: Final = 120.0
_PROGRAMS: Final = Path(llm.__file__).parents[1] / "drivers" / "model"


def main(given: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="mycel bench models",
        description="Measure what the swarm adds to a model's first token and to its pace.",
    )
    parser.add_argument("--json", action="store_true", help="print one flat JSON object")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="on the disk to measure")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help=f"({ROUNDS})")
    options = parser.parse_args(given)
    if not 1 <= options.rounds <= 1000:
        raise UsageError("--rounds is from 1 to 1000")
    with scratch_homes.workspace(options.folder or scratch_homes.default_folder()) as folder:
        figures = measure(folder, options.rounds)
    if options.json:
        print_json(figures)
    else:
        for name, value in figures.items():
            print(f"{name:<34}{value:>12}")
    return 0


def measure(folder: Path, rounds: int = ROUNDS) -> dict[str, float | str]:
    """`folder` is on a disk; whoever made it removes it."""
    packages = folder_of("language-model", llm.LOCKS)
    with (
        # A socket's path must be short, whatever folder is measured.
        TemporaryDirectory(prefix="mycel-bench-") as short,
        _server(Path(short), packages if packages.is_dir() else None) as path,
    ):
        home = folder / "models"
        home.mkdir()
        settings = {"endpoint": f"unix:{path}", "concurrency": 1}
        lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
        (home / "mycel.toml").write_text("\n".join([f"[worker.models.{NAME}]", *lines, ""]))
        running = bench_swarm.start(home, "--workers", "1", "--port", "0")
        try:
            with running.client() as client:
                _until_served(client)
            pairs = [
                (_ask(f"unix:{path}", ""), _ask(f"{running.api}/v1", running.token))
                for _ in range(WARM_UP + rounds)
            ][WARM_UP:]
        finally:
            local_swarm.down(home)
    return {"model_server": llm.MODEL if packages.is_dir() else "stand-in", **_figures(pairs)}


class Answer:
    """When the tokens of one answer came."""

    def __init__(self, first_seconds: float, count: int, seconds: float) -> None:
        self.first_ms = 1000 * first_seconds
        self.tokens_per_s = (count - 1) / seconds


def _figures(pairs: list[tuple[Answer, Answer]]) -> dict[str, float | str]:
    added = [swarm.first_ms - direct.first_ms for direct, swarm in pairs]
    slower = [1 - swarm.tokens_per_s / direct.tokens_per_s for direct, swarm in pairs]
    return {
        "model_first_token_ms_direct": round(median([one.first_ms for one, _ in pairs]), 2),
        "model_first_token_ms_swarm": round(median([one.first_ms for _, one in pairs]), 2),
        "model_first_token_ms_added": round(median(added), 2),
        "model_tokens_per_s_direct": round(median([one.tokens_per_s for one, _ in pairs]), 2),
        "model_tokens_per_s_swarm": round(median([one.tokens_per_s for _, one in pairs]), 2),
        "model_tokens_percent_slower": round(100 * median(slower), 2),
    }


@contextmanager
def _server(folder: Path, packages: Path | None) -> Iterator[Path]:
    """The same programs that a worker starts, on a Unix socket."""
    given: dict[str, Any] = {
        "name": NAME,
        "kind": "chat",
        "socket": str(folder / "model.sock"),
        "folder": str(packages or ""),
        "slots": 1,
        "batch": 1,
        "context": llm.CONTEXT_TOKENS,
        "threads": max(1, int(cpu_cores()) - 1),
        "gpu_layers": 0,
        "gguf": str(packages / llm.WEIGHTS) if packages else "",
        "python": "mycel.bench.drivers.stand_in_model:model",
    }
    program = _PROGRAMS / ("llama_server.py" if packages else "function_server.py")
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-P", str(program), json.dumps(given)]
    pid = os.posix_spawn(
        sys.executable,
        command,
        os.environ,
        file_actions=[(os.POSIX_SPAWN_DUP2, theirs.fileno(), 3)],
        setsid=True,
    )
    theirs.close()
    try:
        ours.settimeout(LOAD_SECONDS_MAX)
        if not ours.recv(16):
            raise CommandError("the model server has ended; it says why above")
        yield Path(given["socket"])
    finally:
        ours.close()
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _until_served(client: Client) -> None:
    ends_at = time.monotonic() + 10.0
    while not client.get("/api/v1/models")["items"]:
        if time.monotonic() > ends_at:
            raise CommandError("the worker does not offer its model")
        time.sleep(0.01)


def _ask(base: str, token: str) -> Answer:
    """One answer, streamed; the same few lines for both ways."""
    body = {
        "model": NAME,
        "messages": [{"role": "user", "content": "Tell me about the sea."}],
        "temperature": 0,
        "max_tokens": TOKENS,
        "stream": True,
    }
    connection, prefix = _connect(base)
    with connection, connection.makefile("rb") as lines:
        data = json.dumps(body).encode()
        head = (
            f"POST {prefix}/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
            f"Authorization: Bearer {token}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n\r\n"
        )
        began = time.perf_counter()
        connection.sendall(head.encode() + data)
        count, first, last = 0, 0.0, 0.0
        for line in lines:
            if b"[DONE]" in line:
                break
            if b'"content":' in line and b'"content":null' not in line:
                last = time.perf_counter()
                first = first or last
                count += 1
    if count < TOKENS // 2:
        raise CommandError(f"{base} has answered with {count} tokens, not {TOKENS}")
    return Answer(first - began, count, last - first)


def _connect(base: str) -> tuple[socket.socket, str]:
    if base.startswith("unix:"):
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(base.removeprefix("unix:"))
        return connection, ""
    address = urlsplit(base)
    return socket.create_connection((address.hostname or "", address.port or 80)), address.path
