"""`mycel cluster agent`, `send`, `jobs`, `cancel`, `estimate`: jobs through a batch system.

    mycel cluster agent FOLDER                 hand the folder's jobs to the batch system
    mycel cluster send FOLDER -- COMMAND …     put a job into the folder
    mycel cluster jobs FOLDER                  how the jobs stand
    mycel cluster cancel FOLDER JOB
    mycel cluster estimate                     when a job would start, without submitting it

The agent takes no part in a swarm yet.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mycel import plugins
from mycel.batch.registry import make_batch_system
from mycel.config.sizes import BadSize, parse_size
from mycel.console.errors import CommandError, UsageError
from mycel.console.tables import print_json, print_table
from mycel.core.agent.accept_rules import ACCEPT_RULES, AcceptRule
from mycel.core.agent.agent_settings import AgentSettings
from mycel.core.agent.attempts import OutcomeState
from mycel.core.agent.batch_jobs import ClusterJob, JobRefused
from mycel.core.identifiers import ulid

if TYPE_CHECKING:
    from mycel.roles.cluster.folder_origin import JobSeen

LOOK_SECONDS: Final = 0.2
RULES_GROUP: Final = "mycel.accept_rules"
"""Entry points: functions like those in `mycel.core.agent.accept_rules`."""


def add(commands: Any) -> None:
    _add_agent(commands.add_parser("agent", help="hand a folder's jobs to the batch system"))
    _add_send(commands.add_parser("send", help="put a job into an agent's folder"))
    _add_estimate(commands.add_parser("estimate", help="when a job would start here"))
    listing = commands.add_parser("jobs", help="how the jobs of an agent's folder stand")
    _add_folder(listing)
    listing.add_argument("--json", action="store_true")
    listing.set_defaults(function=jobs)
    cancelling = commands.add_parser("cancel", help="cancel a job of an agent's folder")
    _add_folder(cancelling)
    cancelling.add_argument("job")
    cancelling.set_defaults(function=cancel)


def _add_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="the agent's")


def _add_agent(parser: argparse.ArgumentParser) -> None:
    _add_folder(parser)
    parser.add_argument("--system", default="slurm", help="the batch system; slurm or a plug-in")
    parser.add_argument(
        "--shared", type=Path, help="a folder that all nodes see; FOLDER/shared without it"
    )
    parser.add_argument("--rule", default="fifo", help="fifo, fits-now, priority or a plug-in")
    parser.add_argument("--out-max", type=int, default=1000, metavar="N", help="submitted at once")
    parser.add_argument("--look", type=float, default=5.0, metavar="S", help="between looks")
    parser.add_argument("--settle", type=float, default=60.0, metavar="S",
                        help="how late files may appear on the shared folder")  # fmt: skip
    parser.add_argument("--patience", type=float, default=7 * 86_400.0, metavar="S",
                        help="what has waited here for so long is returned")  # fmt: skip
    parser.add_argument("--until-empty", action="store_true", help="end when no job is left")
    parser.set_defaults(function=agent)


def _add_send(parser: argparse.ArgumentParser) -> None:
    _add_folder(parser)
    parser.add_argument("--name", help="of the job; a new id without it")
    _add_needs(parser)
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--wait", action="store_true", help="until it has ended")
    parser.add_argument("command", nargs="+", metavar="COMMAND", help="after --")
    parser.set_defaults(function=send)


def _add_needs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--array", type=int, default=0, metavar="N", help="N elements")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--tasks-per-node", type=int, default=1)
    parser.add_argument("--cores", type=int, default=1, help="of each task")
    parser.add_argument("--memory", default="1GB", metavar="SIZE", help="on each node")
    parser.add_argument("--gpus", type=int, default=0, help="on each node")
    parser.add_argument("--exclusive", action="store_true", help="whole nodes")
    parser.add_argument("--time", type=int, default=3600, metavar="S", help="the time limit")
    parser.add_argument("--priority", type=int, default=0)
    for name in ("account", "partition", "qos"):
        parser.add_argument(f"--{name}", default="")


def _add_estimate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--system", default="slurm", help="the batch system; slurm or a plug-in")
    _add_needs(parser)
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(function=estimate, env=[], command=["true"])


def agent(options: argparse.Namespace) -> int:
    from mycel.roles.cluster.agent_program import AgentOptions, main

    if options.look <= 0 or options.settle < 0 or options.out_max < 1 or options.patience <= 0:
        raise UsageError("--look, --out-max and --patience are above 0, --settle is not below it")
    settings = AgentSettings(
        look_seconds=options.look,
        retry_seconds=2 * options.look,
        settle_seconds=options.settle,
        out_max=options.out_max,
        patience_seconds=options.patience,
        report_seconds=30.0,
    )
    return main(
        AgentOptions(
            folder=options.folder,
            shared=options.shared,
            system=options.system,
            rule=_rule(options.rule),
            settings=settings,
            until_empty=options.until_empty,
        )
    )


def send(options: argparse.Namespace) -> int:
    from mycel.roles.cluster.agent_program import JOBS
    from mycel.roles.cluster.folder_origin import Unsent, look
    from mycel.roles.cluster.folder_origin import send as send_to

    name = options.name or ulid(time.time_ns() // 1_000_000, os.urandom(10))
    try:
        folder = send_to(options.folder / JOBS, name, _job(options))
    except (JobRefused, Unsent, BadSize) as error:
        raise UsageError(str(error)) from None
    print(name, flush=True)
    if not options.wait:
        return 0
    while (seen := look(folder)).outcome is None:
        if not folder.exists():
            raise CommandError(f"{folder} is gone")
        time.sleep(LOOK_SECONDS)
    print(_ending(seen))
    return 0 if seen.outcome.state is OutcomeState.SUCCEEDED else 1


def jobs(options: argparse.Namespace) -> int:
    from mycel.roles.cluster.agent_program import JOBS
    from mycel.roles.cluster.folder_origin import look_at_all

    found = look_at_all(options.folder / JOBS)
    if options.json:
        print_json([msgspec.to_builtins(one) for one in found])
    else:
        rows = [(one.name, _ending(one), _command(one)) for one in found]
        print_table(("JOB", "STATE", "COMMAND"), rows)
    return 0


def cancel(options: argparse.Namespace) -> int:
    from mycel.roles.cluster.agent_program import JOBS
    from mycel.roles.cluster.folder_origin import cancel as cancel_in

    if not cancel_in(options.folder / JOBS, options.job):
        raise CommandError(f"{options.folder} has no job {options.job!r}")
    return 0


def estimate(options: argparse.Namespace) -> int:
    """Exit code 1: never."""
    from mycel.batch.forecast import forecast

    try:
        bid = forecast(make_batch_system(options.system), _job(options).checked())
    except (JobRefused, BadSize) as error:
        raise UsageError(str(error)) from None
    if options.json:
        print_json(bid)
    elif bid.starts_in is None:
        print(f"never: {bid.refusal}")
    else:
        source = bid.source.value.replace("_", " ") if bid.source else "nothing"
        print(f"in {bid.starts_in:.0f} s, by the {source}")
    return 0 if bid.starts_in is not None else 1


def _job(options: argparse.Namespace) -> ClusterJob:
    environment = {}
    for pair in options.env:
        name, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"--env {pair}: NAME=VALUE is meant")
        environment[name] = value
    return ClusterJob(
        command=tuple(options.command),
        environment=environment,
        elements=options.array,
        nodes=options.nodes,
        tasks_per_node=options.tasks_per_node,
        cores_per_task=options.cores,
        memory_mb=-(-parse_size(options.memory) >> 20),  # Slurm's M
        gpus_per_node=options.gpus,
        exclusive=options.exclusive,
        seconds=options.time,
        priority=options.priority,
        account=options.account,
        partition=options.partition,
        qos=options.qos,
    )


def _rule(name: str) -> AcceptRule:
    if name in ACCEPT_RULES:
        return ACCEPT_RULES[name]
    found = plugins.installed(RULES_GROUP)
    if name not in found:
        known = ", ".join(sorted({*ACCEPT_RULES, *found}))
        raise UsageError(f"there is no rule {name!r}; known: {known}")
    rule: AcceptRule = found[name].load()
    return rule


def _ending(seen: JobSeen) -> str:
    if seen.outcome is None:
        return seen.state
    words = [seen.outcome.state.value, seen.outcome.cause.value, seen.outcome.text]
    return ": ".join(word for word in words if word)


def _command(seen: JobSeen) -> str:
    return " ".join(seen.job.command)[:60] if seen.job else ""
