"""`mycel cluster choose JOBSPEC`: which of the clusters that are known gets a job.

    level 1    from what is known of them: tokens, summaries, graphs, state
    level 2    with what they say when they are asked: Slurm from here (--ask), or what was
               recorded (--answers)

Nothing is submitted. The exit code is 0 if a cluster was chosen, 1 if the job is rejected.
"""

from __future__ import annotations

import argparse
import secrets
import time
from pathlib import Path
from random import Random
from typing import Annotated, Any, Final

import msgspec

from mycel.batch.batch_system import BatchSystem
from mycel.batch.slurm.slurm_system import SlurmSystem
from mycel.console.errors import UsageError
from mycel.console.tables import print_json, print_table
from mycel.core.federation.asking import Asking
from mycel.core.federation.cluster_selection import COST
from mycel.core.federation.decision import Answer, Decision, decide, job_values, with_cost
from mycel.core.ranges import Amount
from mycel.federation.auth_file import read_auth
from mycel.federation.batch_asking import ask
from mycel.federation.selectors import BUILT_IN, make_selector
from mycel.federation.specs.documents import read_document
from mycel.federation.specs.spec_reader import read_spec_file

from .cluster_records import add_home, registry_of, settings_of

REJECTED: Final = 1
ANSWERS_MAX: Final = 10_000


class Recorded(Answer, frozen=True, kw_only=True):
    """An answer, and when it came."""

    after_seconds: Amount = 0.0


def add(commands: Any) -> None:
    parser = commands.add_parser("choose", help="which known cluster gets a job")
    parser.add_argument("jobspec", type=Path)
    parser.add_argument("--auth", type=Path, help="your clusters and tokens; without it all")
    parser.add_argument("--select", help=f"{', '.join(BUILT_IN)} or a plug-in; else as configured")
    parser.add_argument("--options", type=Path, help="of the selection, as YAML or JSON")
    asked = parser.add_mutually_exclusive_group()
    asked.add_argument("--answers", type=Path, help="what clusters said when asked, as JSON")
    asked.add_argument(
        "--ask", action="append", default=[], metavar="NAME=SLURM_CONF",
        help="ask this cluster's Slurm when the job would start; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--deadline", type=float, metavar="SECONDS", help="answers that come later do not count"
    )
    parser.add_argument("--seed", type=int, help="the same seed draws the same cluster")
    add_home(parser)
    parser.set_defaults(function=choose)


def choose(options: argparse.Namespace) -> int:
    job, settings = read_spec_file(options.jobspec), settings_of(options)
    select = make_selector(options.select or settings.selection, _options(options.options))
    clusters, verified = registry_of(options).table(options.auth and read_auth(options.auth))
    matches = clusters.match(job, verified)
    values = job_values(job)
    answers = None
    deadline = settings.answer_seconds if options.deadline is None else options.deadline
    fitting = {one.name: with_cost(one.state, values) for one in matches.fitting}
    if options.answers is not None:
        answers = _answers(options.answers, Asking(fitting, 0.0, deadline))
    elif options.ask:
        systems = dict(map(_system, options.ask))
        costs = {name: float(known.get(COST, 0.0)) for name, known in fitting.items()}
        answers = ask(Asking(fitting, time.monotonic(), deadline), systems, job, costs)
    seed = secrets.randbits(32) if options.seed is None else options.seed
    draw = Random(seed).randrange
    decision = decide(
        clusters, matches, select, draw, job=values, answers=answers, explain_others=True
    )
    problems = {name: reason for name, reason in verified.items() if reason is not None}
    refused = {**problems, **decision.refused}
    if options.json:
        print_json(
            {
                "cluster": decision.cluster or None,
                "reason": decision.reason,
                "refused": {
                    name: {"level": reason.level.value, "reason": reason.text}
                    for name, reason in refused.items()
                },
            }
        )
    else:
        _print(decision, {name: str(reason) for name, reason in refused.items()})
    return 0 if decision.cluster else REJECTED


def _print(decision: Decision, refused: dict[str, str]) -> None:
    if decision.cluster:
        print(f"{decision.cluster} ({decision.reason})")
    else:
        print(f"rejected: {decision.reason}")
    if refused:
        print_table(("CLUSTER", "WHY NOT"), sorted(refused.items()))


def _system(text: str) -> tuple[str, BatchSystem]:
    name, sign, path = text.partition("=")
    if not (name and sign and path):
        raise UsageError(f"{text!r} is not of the form NAME=SLURM_CONF")
    # Absolute: the commands of Slurm look for a relative one elsewhere.
    return name, SlurmSystem({"SLURM_CONF": str(Path(path).absolute())})


def _options(path: Path | None) -> Any:
    if path is None:
        return None
    return read_document(path.name, path.read_text(encoding="utf-8")).value


def _answers(path: Path, asking: Asking) -> dict[str, Answer]:
    shape = Annotated[list[Recorded], msgspec.Meta(max_length=ANSWERS_MAX)]
    try:
        found: list[Recorded] = msgspec.json.decode(path.read_bytes(), type=shape)
    except msgspec.DecodeError as error:
        raise UsageError(f"{path}: these are no answers of clusters: {error}") from None
    for one in sorted(found, key=lambda answer: answer.after_seconds):
        asking.answer(one, one.after_seconds)
    return asking.answers
