"""Where a graph can be extracted from: a recorded answer, or the batch system's own commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec

from mycel.batch.commands import Commands
from mycel.batch.errors import BatchError
from mycel.core.federation.errors import FederationError, GraphError

from . import kubernetes, ray, slurm
from .machines import Machine
from .node_facts import PROBE, read_probe

COMMAND_SECONDS: Final = 60
PROBE_SECONDS: Final = 120
WAIT_SECONDS: Final = 10
"""A node that has no room for the probe by then is left out."""
PROBES_AT_ONCE: Final = 16
PARTITION: Final = "partition="
KEPT: Final = ("SLURM_CONF", "SLURM_CLUSTERS", "RAY_ADDRESS", "VIRTUAL_ENV")
"""Variables that say which cluster is meant."""


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


class Probed(msgspec.Struct, frozen=True):
    facts: dict[str, dict[str, str]]
    """By node."""
    problems: dict[str, str]
    """Nodes that gave none, and why."""


def probe_slurm(machines: Sequence[Machine]) -> Probed:
    """Facts of every node that is up, by a short task on each: a full node gives none, and holds
    up no other. Raises BatchSystemError if none gave any."""
    facts: dict[str, dict[str, str]] = {}
    problems = {one.name: "it is down" for one in machines if not one.up}
    asked = [one for one in machines if one.up]
    with ThreadPoolExecutor(PROBES_AT_ONCE) as pool:
        for machine, said in zip(asked, pool.map(_probe, asked), strict=True):
            if isinstance(said, str):
                problems[machine.name] = said
            else:
                facts[machine.name] = said
    if not facts:
        first = next(iter(problems.values()), "there are no nodes")
        raise BatchSystemError(f"no node gave any facts: {first}")
    return Probed(facts, problems)


def _probe(machine: Machine) -> dict[str, str] | str:
    """Facts, or what went wrong."""
    command = [
        "srun", f"--nodelist={machine.name}", "--nodes=1", "--ntasks=1", "--mem=64M", "--time=5",
        f"--immediate={WAIT_SECONDS}", "--job-name=mycel-facts",
    ]  # fmt: skip
    # A node can lie outside of the default partition.
    partitions = sorted(one for one in machine.properties if one.startswith(PARTITION))
    command += [f"--partition={one.removeprefix(PARTITION)}" for one in partitions[:1]]
    try:
        said = run((*command, "sh", "-c", PROBE), PROBE_SECONDS)
    except BatchSystemError as error:
        return str(error)
    found = read_probe(said.decode(errors="replace"))
    return found.get(machine.name) or "the probe ran, but printed no facts"


def run(command: Sequence[str], seconds: float) -> bytes:
    commands = Commands(keep=KEPT, extra={"SLURM_TIME_FORMAT": "%s"}, seconds=seconds)
    try:
        done = commands.run(*command)
    except BatchError as error:
        raise BatchSystemError(str(error)) from None
    if done.code != 0:
        raise BatchSystemError(f"{command[0]} ended with {done.code} and said: {done.complaint}")
    return done.out.encode()
