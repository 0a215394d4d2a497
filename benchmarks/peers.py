"""Mycel beside others, in one run on one machine.

    python benchmarks/peers.py --install         first the environments of the peers, then all
    python benchmarks/peers.py --only mycel,ray  some of them
    python benchmarks/peers.py --json

Each peer has an environment of its own, with a pinned version from PyPI, and a script
`peer_NAME.py` that starts it as two workers of one core and does what `mycel bench quick` does.
Times to the first result begin with the start of the process; for Mycel that is `mycel up` on a
home that exists. Memory is the PSS of all processes, after a few tasks. Mycel's tasks and results
are on disk before anybody hears of them; the peers keep theirs in memory.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from mycel.bench.process_memory import family_pss_mb
from mycel.local.scratch_homes import default_folder

VERSIONS: Final = {
    "ray": ("ray==2.60.0",),
    "dask": ("dask==2026.8.0", "distributed==2026.8.0"),
    "hyperqueue": ("hyperqueue==0.27.0",),
}
OURS: Final = "mycel"
NAMES: Final = (OURS, *VERSIONS)
FIGURES: Final = (
    "noop_tasks_per_s",
    "latency_ms_p50",
    "latency_ms_p99",
    "process_tasks_per_s",
    "first_result_s",
    "idle_system_pss_mb",
)
HIGHER_IS_BETTER: Final = frozenset({"noop_tasks_per_s", "process_tasks_per_s"})
PEER_SECONDS_MAX: Final = 300.0
SETTLE_SECONDS: Final = 1.0
"""Between the last task and the reading of the memory, as in `mycel bench quick`."""

Figures = dict[str, float]


class Trouble(Exception):
    """Something that whoever runs this can put right."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure Mycel beside others.")
    parser.add_argument("--install", action="store_true", help="make the environments that miss")
    parser.add_argument(
        "--environments", type=Path, default=default_folder().parent / "peers", metavar="DIR"
    )
    parser.add_argument("--only", metavar="NAME,…", default=",".join(NAMES))
    parser.add_argument("--json", action="store_true", help="print one object of objects")
    options = parser.parse_args()
    names = options.only.split(",")
    if unknown := [name for name in names if name not in NAMES]:
        parser.error(f"unknown names {unknown}; there are {', '.join(NAMES)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the peers end with us
    try:
        pythons = {name: _environment(name, options) for name in names if name != OURS}
        measured = {OURS: _mycel()} if OURS in names else {}
        measured |= {name: _peer(name, python) for name, python in pythons.items()}
    except Trouble as trouble:
        print(f"peers: {trouble}", file=sys.stderr)
        return 1
    print(json.dumps(measured) if options.json else _table(measured))
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _environment(name: str, options: argparse.Namespace) -> Path:
    """The Python of this peer's environment."""
    folder: Path = options.environments / name
    python = folder / "bin" / "python"
    if not python.exists() and not options.install:
        raise Trouble(f"{folder} does not exist: --install makes it, from PyPI")
    if options.install:
        _say(f"{' '.join(VERSIONS[name])} in {folder}")
        make = [sys.executable, "-m", "venv", str(folder)]
        quiet = ["--quiet", "--disable-pip-version-check"]
        install = [str(python), "-m", "pip", "install", *quiet, *VERSIONS[name]]
        for command in (make, install):
            if subprocess.run(command).returncode:
                raise Trouble(f"{command[2:4]} has failed for {name}; it says why above")
    return python


def _mycel() -> Figures:
    _say("mycel bench quick")
    command = [sys.executable, "-m", "mycel", "bench", "quick", "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE)
    if done.returncode:
        raise Trouble("'mycel bench quick' has failed")
    figures: Figures = json.loads(done.stdout)
    return {name: figures[name] for name in FIGURES}


def _peer(name: str, python: Path) -> Figures:
    _say(name)
    script = Path(__file__).with_name(f"peer_{name}.py")
    began = time.perf_counter()
    figures: Figures = {}
    with _family([str(python), str(script)]) as process:
        for told in _told(process):
            event = told.pop("event")
            if event == "first":
                figures["first_result_s"] = time.perf_counter() - began
            elif event == "warm":
                time.sleep(SETTLE_SECONDS)
                figures["idle_system_pss_mb"] = family_pss_mb([process.pid])
                assert process.stdin is not None
                process.stdin.write("\n")
                process.stdin.flush()
            else:
                figures |= told
    if not {"first_result_s", "latency_ms_p50"} <= figures.keys():
        raise Trouble(f"{name} ended with {process.returncode} before it had told its figures")
    return figures


@contextlib.contextmanager
def _family(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A process in a session of its own, all of which is gone afterwards."""
    # Not the variables of the environment that this runs in.
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    ) as process:
        previous = signal.signal(signal.SIGALRM, lambda *_: os.killpg(process.pid, signal.SIGKILL))
        signal.setitimer(signal.ITIMER_REAL, PEER_SECONDS_MAX)
        try:
            yield process
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _told(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """What the script says, past what the peer itself prints."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith('{"event"'):
            yield json.loads(line)


def _table(measured: dict[str, Figures]) -> str:
    """Markdown; behind each figure of a peer, how many times better Mycel's is."""
    ours = measured.get(OURS)
    lines = [f"| | {' | '.join(measured)} |", "|---" * (len(measured) + 1) + "|"]
    for figure in FIGURES:
        cells = []
        for name, figures in measured.items():
            value = figures.get(figure)
            if value is None:
                cells.append("none")
            elif ours is None or name == OURS:
                cells.append(_number(value))
            else:
                better = ours[figure] / value
                if figure not in HIGHER_IS_BETTER:
                    better = 1 / better
                cells.append(f"{_number(value)} ({better:.2g} ×)")
        lines.append(f"| `{figure}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    sys.exit(main())
