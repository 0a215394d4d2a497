"""`mycel bench client`: function objects from Python, beside Ray and `ProcessPoolExecutor`.

In each round every pool does the same, one after the other, and the median of the rounds counts:
calls in bulk, calls one by one, an array there and back. Mycel also calls a function from a module
of the caller's own, in turns with one that needs none. What the machine itself gives is measured
in the same rounds: writing the array to the disk and syncing it, then a copy of it over loopback.

Mycel's tasks and results are on disk before anybody hears of them; the others keep theirs in
memory, and Ray passes arrays through shared memory.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import os
import platform
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

from mycel import __version__
from mycel.bench import bench_swarm
from mycel.bench.percentiles import median
from mycel.client import Client
from mycel.console.errors import CommandError, UsageError
from mycel.console.tables import print_json
from mycel.local import local_swarm, scratch_homes

from . import ray_peer

ROUNDS: Final = 5
WORKERS: Final = 2
CALLS: Final = 10_000
SINGLES: Final = 500
ARRAY_MB: Final = 100
MODULE_CALLS: Final = 5_000
MODULE: Final = "mycel_bench_own_module"

Seconds = Callable[[str, int], float]
"""Of a kind of measure, and how much of it."""


class MycelPool:
    def __init__(self, client: Client) -> None:
        self._client = client

    def call(self, argument: Any) -> Any:
        return self._client.run(lambda value: value, argument)

    def calls(self, arguments: Sequence[Any]) -> Sequence[Any]:
        return list(self._client.map(lambda value: value, arguments))


class FuturesPool:
    """The same calls by `submit`, each with a future."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def call(self, argument: Any) -> Any:
        return self._client.submit(lambda value: value, argument).result()

    def calls(self, arguments: Sequence[Any]) -> Sequence[Any]:
        futures = [self._client.submit(lambda value: value, one) for one in arguments]
        return [future.result() for future in futures]


class ProcessPool:
    def __init__(self, executor: ProcessPoolExecutor) -> None:
        self._executor = executor

    def call(self, argument: Any) -> Any:
        from .measures import identity

        return self._executor.submit(identity, argument).result()

    def calls(self, arguments: Sequence[Any]) -> Sequence[Any]:
        from .measures import identity

        return list(self._executor.map(identity, arguments))


def main(given: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="mycel bench client",
        description="Measure function objects from Python, beside others.",
    )
    parser.add_argument("--json", action="store_true", help="print one flat JSON object")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="on the disk to measure")
    parser.add_argument("--install-ray", action="store_true", help="into the cache, from PyPI")
    parser.add_argument(
        "--scale", type=float, default=1.0, metavar="F", help="so many times as much (1)"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help=f"({ROUNDS})")
    options = parser.parse_args(given)
    if not (0 < options.scale <= 100 and 1 <= options.rounds <= 100):
        raise UsageError("--scale is above 0 and at most 100, --rounds from 1 to 100")
    if importlib.util.find_spec("numpy") is None:
        raise CommandError("'mycel bench client' sends arrays: pip install numpy")
    interpreter = ray_peer.python(options.install_ray)
    if interpreter is None:
        print("Ray is left out: --install-ray installs it into the cache", file=sys.stderr)
    with scratch_homes.workspace(options.folder or scratch_homes.default_folder()) as folder:
        figures = measure(folder, interpreter, options.scale, options.rounds)
    if options.json:
        print_json(figures)
    else:
        for name, value in figures.items():
            print(f"{name:<34}{value if value is not None else 'none':>14}")
    return 0


def measure(folder: Path, ray: Path | None, scale: float, rounds: int) -> dict[str, Any]:
    running = bench_swarm.create(folder / "home")
    try:
        with contextlib.ExitStack() as stack:
            client = stack.enter_context(running.client())
            pools = dict(_pools(stack, client, ray))
            samples = _samples(folder, client, pools, scale, rounds)
    finally:
        local_swarm.down(folder / "home")
    return _figures(samples, scale)


def _pools(
    stack: contextlib.ExitStack, client: Client, ray: Path | None
) -> Iterator[tuple[str, Seconds]]:
    from .measures import Pool, seconds_of

    processes = ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn"))
    stack.enter_context(processes)
    ours: dict[str, Pool] = {
        "mycel": MycelPool(client),
        "futures": FuturesPool(client),
        "process_pool": ProcessPool(processes),
    }
    for name, pool in ours.items():
        yield name, lambda kind, amount, pool=pool: seconds_of(pool, kind, amount)  # type: ignore[misc]
    if ray is not None:
        yield "ray", stack.enter_context(ray_peer.running(ray)).seconds_of


def _samples(
    folder: Path, client: Client, pools: dict[str, Seconds], scale: float, rounds: int
) -> dict[str, list[float]]:
    from .measures import ARRAY, BULK, ONE_BY_ONE

    amounts = {
        BULK: _scaled(CALLS, scale),
        ONE_BY_ONE: _scaled(SINGLES, scale),
        ARRAY: _scaled(ARRAY_MB, scale),
    }
    found: dict[str, list[float]] = {}

    def keep(name: str, value: float) -> None:
        found.setdefault(name, []).append(value)

    own = _own_module(folder)
    for name, seconds in pools.items():  # a process that starts is not what is measured
        for kind in amounts:
            seconds(kind, 4)
        _say(f"{name} is warm")
    list(client.map(own, range(100)))
    for number in range(rounds):
        _say(f"round {number + 1} of {rounds}")
        for name, seconds in pools.items():
            for kind, amount in amounts.items():
                keep(f"{name} {kind}", amount / seconds(kind, amount))
        keep("reference", reference_mb_per_s(folder, amounts[ARRAY]))
        calls = _scaled(MODULE_CALLS, scale)
        plain = _map_seconds(client, lambda value: value + 1, calls)
        keep("own module", _map_seconds(client, own, calls) / plain)
    return found


def _map_seconds(client: Client, function: Callable[[int], int], calls: int) -> float:
    began = time.perf_counter()
    assert sum(client.map(function, range(calls))) == calls * (calls + 1) // 2
    return time.perf_counter() - began


def _own_module(folder: Path) -> Callable[[int], int]:
    (folder / f"{MODULE}.py").write_text("def increased(value):\n    return value + 1\n")
    sys.path.insert(0, str(folder))
    function: Callable[[int], int] = importlib.import_module(MODULE).increased
    return function


def reference_mb_per_s(folder: Path, size_mb: int) -> float:
    """One way: the bytes written to a file and synced, then over a loopback connection."""
    content = os.urandom(1_000_000) * size_mb
    path = folder / "reference.dat"
    began = time.perf_counter()
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = threading.Thread(target=_send, args=(server.getsockname()[1], content))
        sender.start()
        connection, _ = server.accept()
        with connection:
            buffer, left = bytearray(1 << 20), len(content)
            while left:
                left -= connection.recv_into(buffer)
        sender.join()
    seconds = time.perf_counter() - began
    path.unlink()
    return size_mb / seconds


def _send(port: int, content: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(content)


def _figures(samples: dict[str, list[float]], scale: float) -> dict[str, Any]:
    """Flat. Arrays go both ways: their rate is that of one of them."""
    middle = {name: median(values) for name, values in samples.items()}
    figures: dict[str, Any] = {}
    for pool in ("mycel", "futures", "process_pool", "ray"):
        figures[f"{pool}_bulk_per_s"] = middle.get(f"{pool} bulk")
        figures[f"{pool}_one_by_one_per_s"] = middle.get(f"{pool} one_by_one")
        array = middle.get(f"{pool} array")
        figures[f"{pool}_array_mb_per_s"] = None if array is None else 2 * array
    figures["ref_write_and_copy_mb_per_s"] = middle["reference"]
    figures["own_module_of_plain"] = middle["own module"]
    for name in ("ray", "process_pool"):
        theirs = middle.get(f"{name} bulk")
        ratio = None if theirs is None else middle["mycel bulk"] / theirs
        figures[f"bulk_of_{name}"] = ratio
    figures["array_of_reference"] = figures["mycel_array_mb_per_s"] / middle["reference"]
    rounded = {
        name: float(f"{value:.4g}") if isinstance(value, float) else value
        for name, value in figures.items()
    }
    cores = len(os.sched_getaffinity(0))
    about = {"scale": scale, "cores": cores, "python": platform.python_version()}
    return {**rounded, **about, "version": __version__}


def _scaled(amount: int, scale: float) -> int:
    return max(1, round(amount * scale))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
