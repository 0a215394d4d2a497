"""The runs of `mycel sim compare`: on all cores of this machine, or on a swarm."""

from __future__ import annotations

import argparse
from collections.abc import Generator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mycel.cli.arguments import connect
from mycel.client import Client
from mycel.client.errors import ClientError, TaskCancelled, TaskFailed
from mycel.console.errors import CommandError

if TYPE_CHECKING:
    from mycel.sim.results.run_results import Outcome

Run = tuple[str, float, int]
"""Policy, load, seed."""
TASK: Final = "mycel.sim.sweep_runs:run_as_task"


def on_cores(
    path: Path, trace: str | None, runs: Sequence[Run], processes: int | None
) -> Generator[tuple[int, Outcome], None, None]:
    """Each run's number and outcome, as they end."""
    from mycel.sim.sweep_runs import run_here

    pool = ProcessPoolExecutor(max_workers=processes)
    try:
        waiting = {pool.submit(run_here, path, trace, *run): n for n, run in enumerate(runs)}
        for future in as_completed(waiting):
            yield waiting[future], future.result()
    finally:
        # Of an interrupted comparison, runs that have begun are not waited for.
        pool.shutdown(wait=False, cancel_futures=True)


def on_swarm(
    options: argparse.Namespace, path: Path, runs: Sequence[Run]
) -> Generator[tuple[int, Outcome], None, None]:
    """Each run is a task. Those that are left when the iterator is closed are cancelled."""
    scenario = path.read_text(encoding="utf-8")
    with connect(options) as client:
        waiting: dict[int, str] = {}
        try:
            for number, run in enumerate(runs):
                task = client.submit_task(
                    python=TASK, arguments=[scenario, *run], name=f"sim {run[0]} {run[1]:g}"
                )
                waiting[number] = task.id
            for number in range(len(runs)):
                outcome = _outcome(client, waiting[number], runs[number])
                del waiting[number]
                yield number, outcome
        finally:
            with suppress(ClientError):
                for identifier in waiting.values():
                    client.cancel(identifier)


def _outcome(client: Client, identifier: str, run: Run) -> Outcome:
    from mycel.sim.results.outcome_transfer import decode

    try:
        return decode(client.result(identifier))
    except (TaskFailed, TaskCancelled) as error:
        policy, load, seed = run
        raise CommandError(
            f"the run of {policy} at load {load:g}, seed {seed}, ended on the swarm without an "
            f"outcome: {error} (workers need mycel[sim]; 'mycel logs {identifier}' says more)"
        ) from None
