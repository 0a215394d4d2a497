"""`mycel cluster`: what fits a cluster's graph, and graphs of clusters that are there.

These need no running swarm:

    mycel cluster satisfy GRAPH JOBSPEC     could the job ever run there
    mycel cluster sequence GRAPH STEPS      jobs one after the other, with the verdict of each
    mycel cluster extract SOURCE            the graph of a Slurm, Kubernetes or Ray cluster
    mycel cluster register|list|show|…      the clusters that are known by name
    mycel cluster choose JOBSPEC            which of them gets the job

`cluster_agent` has the commands that run jobs on one.

Exit codes: 0 yes, 1 no, 2 for input that cannot be read.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Final

from mycel.console.errors import CommandError, UsageError
from mycel.console.tables import print_json, print_table
from mycel.core.federation.errors import FederationError
from mycel.core.federation.reasons import Verdict
from mycel.federation.backends import GraphBackend, make_backend
from mycel.federation.extraction import machines, node_facts, sources
from mycel.federation.jgf import read_file, read_graph, write_graph
from mycel.federation.job_steps import play, read_steps
from mycel.federation.specs.spec_reader import read_spec_file

from . import cluster_agent, cluster_choice, cluster_pilot, cluster_records

CLUSTER: Final = "cluster"
NO: Final = 1


def main(given: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="mycel cluster", description="Clusters as providers.")
    parser.add_argument("--home", type=Path, help="default: $MYCEL_HOME or ~/.mycel")
    commands = parser.add_subparsers(dest="command", required=True)
    _add_satisfy(commands.add_parser("satisfy", help="could a job ever run on a graph"))
    _add_sequence(commands.add_parser("sequence", help="play jobs one after the other"))
    _add_extract(commands.add_parser("extract", help="make a graph of a cluster"))
    cluster_agent.add(commands)
    cluster_pilot.add(commands)
    cluster_records.add(commands)
    cluster_choice.add(commands)
    options = parser.parse_args(given)
    try:
        return int(options.function(options))
    except sources.BatchSystemError as error:
        raise CommandError(str(error)) from None
    except FederationError as error:
        raise UsageError(str(error)) from None


def _add_satisfy(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("graph", type=Path, help="JSON Graph Format, Fluxion's or rainbow's")
    parser.add_argument("jobspec", type=Path, help="Flux's, rainbow's or Mycel's, YAML or JSON")
    parser.add_argument("--original", action="store_true", help="show the spec as it was written")
    _add_common(parser)
    parser.set_defaults(function=satisfy)


def _add_sequence(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("graph", type=Path)
    parser.add_argument("steps", type=Path, help='JSON lines: {"do": "allocate", "jobspec": …}')
    parser.add_argument("--jobspecs", type=Path, help="the folder that job specs are found in")
    parser.add_argument(
        "--whole", action="append", default=[], metavar="TYPE", help="never shared, such as node"
    )
    _add_common(parser)
    parser.set_defaults(function=sequence)


def _add_extract(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", choices=(*sources.SOURCES, "facts"))
    parser.add_argument("--from", dest="recorded", type=Path, help="a recorded answer, or - ")
    parser.add_argument("--name", default=CLUSTER, help="of the cluster")
    parser.add_argument("--out", type=Path, help="where to write; stdout without it")
    parser.add_argument(
        "--probe", type=Path, metavar="FILE", help="also run a probe on each node (Slurm)"
    )
    parser.add_argument("--graph", type=Path, help="for facts: the cluster that they are about")
    parser.add_argument(
        "--compspec",
        action="append",
        default=[],
        metavar="NODE=FILE",
        help="for facts: what 'compspec extract' wrote; * stands for all nodes",
    )
    parser.set_defaults(function=extract)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--subsystem", action="append", default=[], metavar="NAME=FILE", help="may be repeated"
    )
    parser.add_argument("--backend", help="memory, networkx or a plug-in; else as configured")
    cluster_records.add_home(parser)


def satisfy(options: argparse.Namespace) -> int:
    backend = _backend(options)
    job = read_spec_file(options.jobspec)
    verdict = backend.satisfy(CLUSTER, job)
    if options.json:
        shown = {"satisfiable": bool(verdict), **_shown(verdict), "dialect": job.dialect}
        print_json({**shown, "original": job.original} if options.original else shown)
    else:
        if options.original:
            print(job.original.rstrip())
        print(str(verdict) if verdict else f"{verdict}: {verdict.reason}")
    return 0 if verdict else NO


def sequence(options: argparse.Namespace) -> int:
    read = read_steps(options.steps)
    if read.whole_nodes:
        options.whole.append("node")
    backend = _backend(options)
    folder = options.jobspecs or options.steps.parent
    found = []
    right = True
    for number, step in enumerate(read.steps, 1):
        said = play(backend, CLUSTER, step, str(number), folder)
        right &= step.expect in (None, str(said))
        shown = _shown(said) if isinstance(said, Verdict) else {"verdict": said}
        found.append({"step": number, "do": step.do, **shown, "expected": step.expect or ""})
    if options.json:
        print_json(found)
    else:
        keys = ("step", "do", "verdict", "expected", "reason")
        rows = [tuple(str(one.get(key, "")) for key in keys) for one in found]
        print_table(("STEP", "DO", "VERDICT", "EXPECTED", "WHY NOT"), rows)
    return 0 if right else NO


def extract(options: argparse.Namespace) -> int:
    if options.source == "facts":
        return _extract_facts(options)
    source = sources.SOURCES[options.source]
    if options.recorded is not None:
        data = sys.stdin.buffer.read() if str(options.recorded) == "-" else None
        found = source.read(read_file(options.recorded) if data is None else data)
    else:
        found = sources.ask(options.source)
    drawn = machines.draw(options.name, found)
    written = write_graph(drawn.vertices, drawn.children)
    _write(options.out, written)
    if options.probe is not None:
        if options.source != "slurm":
            raise UsageError("--probe is for Slurm, which starts it on each node")
        probed = sources.probe_slurm(found)
        _write(options.probe, node_facts.write_subsystem(probed.facts, read_graph(written)))
        for node, problem in probed.problems.items():
            print(f"no facts of {node}: {problem}", file=sys.stderr)
    return 0


def _extract_facts(options: argparse.Namespace) -> int:
    if options.graph is None or not options.compspec:
        raise UsageError("'extract facts' needs --graph FILE and --compspec NODE=FILE")
    graph = read_graph(read_file(options.graph), name=options.graph.name)
    found = {
        node: node_facts.read_compspec(read_file(path), str(path))
        for node, path in map(_named, options.compspec)
    }
    _write(options.out, node_facts.write_subsystem(found, graph, place=options.graph.name))
    return 0


def _backend(options: argparse.Namespace) -> GraphBackend:
    name = options.backend or cluster_records.settings_of(options).graph_backend
    backend = make_backend(name, frozenset(getattr(options, "whole", ())))
    backend.put(CLUSTER, read_file(options.graph))
    for name, path in map(_named, options.subsystem):
        backend.attach(CLUSTER, name, read_file(path))
    return backend


def _named(text: str) -> tuple[str, Path]:
    name, sign, path = text.partition("=")
    if not (name and sign and path):
        raise UsageError(f"{text!r} is not of the form NAME=FILE")
    return name, Path(path)


def _write(path: Path | None, data: bytes) -> None:
    if path is None:
        print(data.decode())
    else:
        path.write_bytes(data)


def _shown(verdict: Verdict) -> dict[str, Any]:
    shown: dict[str, Any] = {"verdict": str(verdict)}
    if verdict.reason is not None:
        shown["level"] = verdict.reason.level.value
        shown["reason"] = verdict.reason.text
    return shown
