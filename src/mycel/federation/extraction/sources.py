"""Where a graph can be extracted from: a recorded answer, or the batch system's own commands."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from mycel.core.federation.errors import FederationError, GraphError

from . import kubernetes, ray, slurm
from .machines import Machine
from .node_facts import PROBE, read_probe

COMMAND_SECONDS: Final = 60
PROBE_SECONDS: Final = 600
ANSWER_BYTES_MAX: Final = 512 << 20


class BatchSystemError(FederationError):
    """The batch system is not there, is slow, or said no. A retry can help."""


class Source(msgspec.Struct, frozen=True):
    read: Callable[[bytes], list[Machine]]
    commands: tuple[tuple[str, ...], ...]
    """Tried in turn; the first that gives nodes counts."""


SOURCES: Final[Mapping[str, Source]] = {
    "slurm": Source(slurm.read_nodes, slurm.COMMANDS),
    "kubernetes": Source(kubernetes.read_nodes, kubernetes.COMMANDS),
    "ray": Source(ray.read_nodes, ray.COMMANDS),
}


def ask(name: str) -> list[Machine]:
    """Runs the batch system's commands. Raises BatchSystemError."""
    source = SOURCES[name]
    problem = ""
    for command in source.commands:
        try:
            return source.read(run(command, COMMAND_SECONDS))
        except (BatchSystemError, GraphError) as error:
            problem = problem or str(error)
    raise BatchSystemError(f"{name} gave no list of nodes: {problem}")


def probe_slurm(nodes: int) -> dict[str, dict[str, str]]:
    """Facts of every node that Slurm gives us, by one short task on each."""
    command = (
        "srun", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", "--mem=64M",
        "--time=5", "--job-name=mycel-facts", "sh", "-c", PROBE,
    )  # fmt: skip
    found = read_probe(run(command, PROBE_SECONDS).decode(errors="replace"))
    if not found:
        raise BatchSystemError("the probe ran, but printed no facts")
    return found


def run(command: Sequence[str], seconds: float) -> bytes:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
            check=False,
            env={**os.environ, "SLURM_TIME_FORMAT": "%s"},
        )
    except FileNotFoundError:
        raise BatchSystemError(f"there is no program {command[0]!r} here") from None
    except OSError as error:
        raise BatchSystemError(f"{command[0]} cannot be started: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise BatchSystemError(f"{command[0]} gave no answer within {seconds:g} s") from None
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        last = said[-1][:300] if said else "nothing"
        raise BatchSystemError(f"{command[0]} ended with {done.returncode} and said: {last}")
    if len(done.stdout) > ANSWER_BYTES_MAX:
        raise BatchSystemError(f"{command[0]} printed more than {ANSWER_BYTES_MAX >> 20} MiB")
    return done.stdout
