"""`mycel cluster pilot`: workers of the swarm inside the allocations of a batch system."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from mycel.batch.registry import make_batch_system
from mycel.cli import arguments
from mycel.config.sizes import BadSize, parse_size
from mycel.console.errors import UsageError
from mycel.core.agent.batch_jobs import ClusterJob, JobRefused
from mycel.core.agent.pilot_plan import PilotSettings

NOTICE_SECONDS = 60
"""Before its time limit an allocation's worker is told to stop, and hands back what it runs."""


def add(commands: Any) -> None:
    parser = commands.add_parser("pilot", help="keep workers in allocations while there is work")
    parser.add_argument("folder", type=Path, help="a folder that all nodes see")
    parser.add_argument(
        "--join", type=Path, required=True, metavar="FILE",
        help="an invite; each allocation uses up one of its joins",
    )  # fmt: skip
    parser.add_argument("--system", default="slurm", help="the batch system; slurm or a plug-in")
    parser.add_argument("--least", type=int, default=0, metavar="N", help="workers (0)")
    parser.add_argument("--most", type=int, default=10, metavar="N", help="workers (10)")
    parser.add_argument(
        "--tasks-per-worker", type=int, metavar="N", help="waiting tasks for each; its cores"
    )
    parser.add_argument("--idle", type=float, default=60.0, metavar="S", help="then it may go (60)")
    parser.add_argument("--look", type=float, default=5.0, metavar="S", help="between looks (5)")
    parser.add_argument(
        "--grace", type=float, default=60.0, metavar="S", help="for what runs at the end (60)"
    )
    parser.add_argument("--cores", type=int, default=1, help="of each worker (1)")
    parser.add_argument("--memory", default="2GB", metavar="SIZE", help="of each worker (2GB)")
    parser.add_argument("--gpus", type=int, default=0, help="of each worker")
    parser.add_argument("--time", type=int, default=3600, metavar="S", help="of an allocation")
    for name in ("account", "partition", "qos"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--label", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--config", type=Path, help="of the workers, instead of what is given here")
    parser.add_argument(
        "--home",
        metavar="DIR",
        default=argparse.SUPPRESS,  # it may stand before the subcommand
        help="the swarm's (MYCEL_HOME, else ~/.mycel)",
    )
    arguments.add_swarm(parser)
    parser.set_defaults(function=pilot)


def pilot(options: argparse.Namespace) -> int:
    from mycel.roles.cluster.pilot_program import PilotOptions, main, worker_config

    if not 0 <= options.least <= options.most or options.look <= 0:
        raise UsageError("--least is from 0 to --most, and --look above 0")
    tasks = options.tasks_per_worker or max(1, options.cores)
    try:
        memory = parse_size(options.memory)
        job = ClusterJob(
            command=("mycel", "worker"),
            cores_per_task=options.cores,
            memory_mb=-(-memory >> 20),
            gpus_per_node=options.gpus,
            seconds=options.time,
            notice_seconds=min(NOTICE_SECONDS, options.time // 2),
            account=options.account,
            partition=options.partition,
            qos=options.qos,
        ).checked()
    except (BadSize, JobRefused) as error:
        raise UsageError(str(error)) from None
    pairs = [tuple(label.partition("=")[::2]) for label in options.label]
    config = worker_config(options.cores, memory, pairs)
    with arguments.connect(options) as client:
        chosen = PilotOptions(
            folder=options.folder,
            invite=options.join.read_text(),
            config=options.config.read_text() if options.config else config,
            job=job,
            settings=PilotSettings(
                least=options.least,
                most=options.most,
                tasks_per_worker=tasks,
                idle_seconds=options.idle,
            ),
            look_seconds=options.look,
            grace_seconds=options.grace,
        )
        return main(chosen, make_batch_system(options.system), client)
