"""Kills parts of a real swarm, many times, and checks that nothing it promised is broken.

    python tests/soak/run.py                      50 kills of the scheduler, 20 of workers,
                                                  10,000 seeds of the fault runner, a task
                                                  of ten minutes and 1 GB through a relay
    python tests/soak/run.py --seed 7 --rounds 5  fewer, from another seed

`--rounds` is the number of the scheduler's kills; the others follow in proportion.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType
from typing import Any, Final, TextIO

REPOSITORY: Final = Path(__file__).resolve().parents[2]
if str(REPOSITORY) not in sys.path:  # run by its path
    sys.path.insert(0, str(REPOSITORY))

from tests.end_to_end.swarm import Swarm, processes_of  # noqa: E402
from tests.network.namespaces import why_unavailable  # noqa: E402
from tests.soak import large_job, relayed  # noqa: E402
from tests.soak.kills import (  # noqa: E402
    RERUN_SECONDS,
    SchedulerKill,
    WorkerKill,
    kill_scheduler,
    kill_worker,
)
from tests.soak.load import Load  # noqa: E402
from tests.soak.verdict import SHOWN, Verdict, judge  # noqa: E402

ROUNDS: Final = 50
WORKERS: Final = 3
END_SECONDS: Final = 120.0
SETTINGS: Final = """
[worker]
cpu_cores = 24          # more than there are: the tasks only wait

[scheduler.retry]
max_attempts = 20       # a task may meet many kills
poison_attempts = 20    # and is none of their causes

[scheduler.fault_tolerance]
max_retries = 19
retry_backoff = "constant"  # who meets its third kill would wait for 8 s, by intention
"""


class Soak:
    def __init__(self, options: argparse.Namespace) -> None:
        self.rounds: int = options.rounds
        self.worker_rounds = max(1, round(options.rounds * 0.4)) if options.rounds else 0
        self.seeds: int = options.seeds
        self.tasks: int = options.tasks
        self.relayed_seconds: float = options.relayed_seconds
        self.seed: int = options.seed
        self.as_json: bool = options.json
        self.checks: list[tuple[str, bool]] = []
        self.figures: dict[str, Any] = {"seed": self.seed}
        self._began = time.monotonic()

    @property
    def output(self) -> TextIO:
        return sys.stderr if self.as_json else sys.stdout

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:6.1f} s  {text}", file=self.output, flush=True)

    def check(self, what: str, passed: bool, details: list[str] | None = None) -> None:
        self.checks.append((what, passed))
        self.say(f"{'ok    ' if passed else 'FAILED'} {what}")
        for detail in (details or [])[:SHOWN]:
            self.say(f"       {detail}")

    def run(self) -> int:
        self.say(f"seed {self.seed}; the same seed repeats the choices, not the timing")
        if self.rounds:
            self._kill_parts()
        if self.tasks:
            self._run_large_job()
        if self.relayed_seconds:
            self._relay()
        if self.seeds:
            self._simulate()
        failed = sum(not passed for _, passed in self.checks)
        if self.as_json:
            self.figures["failed"] = [what for what, passed in self.checks if not passed]
            print(json.dumps(self.figures), flush=True)
        print(f"{len(self.checks) - failed} passed, {failed} failed", file=self.output)
        return 1 if failed else 0

    def _kill_parts(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="mycel-soak-"))
        swarm = Swarm(folder / "home", SETTINGS)
        log = folder / "executions.log"
        try:
            verdict = self._under_load(swarm, log)
            self._report(verdict)
            swarm.stop()
            left = processes_of(swarm.home)
            self.check("nothing is left running", not left, list(left.values()))
        except BaseException:
            self.say(f"the traces are in {folder}")
            raise
        else:
            if all(passed for _, passed in self.checks):
                shutil.rmtree(folder, ignore_errors=True)
            else:
                self.say(f"the traces are in {folder}")
        finally:
            swarm.stop()

    def _under_load(self, swarm: Swarm, log: Path) -> Verdict:
        chance = random.Random(self.seed)
        swarm.up(WORKERS)
        load = Load(swarm.api, swarm.token, log, self.seed)
        load.start()
        schedulers: list[SchedulerKill] = []
        workers: list[WorkerKill] = []
        began = time.monotonic()
        for number in range(self.rounds):
            kill = kill_scheduler(swarm, chance, load)
            schedulers.append(kill)
            self.say(
                f"scheduler {number + 1}/{self.rounds}: killed with {kill.out} tasks out and "
                f"{kill.queued} queued; up again after {kill.up_seconds:.1f} s"
            )
        load.mixes_priorities = False
        for number in range(self.worker_rounds):
            lost = kill_worker(swarm, chance, log, load)
            workers.append(lost)
            when = f"{lost.reruns[0]:.1f} to {lost.reruns[-1]:.1f} s" if lost.reruns else "never"
            self.say(
                f"worker {number + 1}/{self.worker_rounds}: {lost.name} killed with "
                f"{len(lost.reruns) + len(lost.never)} tasks; they ran elsewhere after {when}"
            )
        load.finish()
        unfinished = load.wait(END_SECONDS)
        self.check("every job has ended", not unfinished, unfinished)
        self.figures["kill_seconds"] = round(time.monotonic() - began, 1)
        self._report_kills(schedulers, workers, load)
        return judge(
            load,
            swarm.client,
            swarm.journal,
            log,
            [kill.at for kill in schedulers],
            [(kill.name, kill.at) for kill in workers],
        )

    def _report_kills(
        self, schedulers: list[SchedulerKill], workers: list[WorkerKill], load: Load
    ) -> None:
        reruns = sorted(seconds for kill in workers for seconds in kill.reruns)
        never = [task for kill in workers for task in kill.never]
        late = [seconds for seconds in reruns if seconds > RERUN_SECONDS]
        self.figures |= {
            "scheduler_kills": len(schedulers),
            "out_at_kill_min": min(kill.out for kill in schedulers),
            "queued_at_kill_min": min(kill.queued for kill in schedulers),
            "up_seconds_median": round(statistics.median(k.up_seconds for k in schedulers), 2),
            "up_seconds_max": round(max(kill.up_seconds for kill in schedulers), 2),
            "requests_sent_again": load.sent_again,
            "worker_kills": len(workers),
            "tasks_lost_with_workers": len(reruns) + len(never),
        }
        if reruns:
            self.figures |= {
                "rerun_seconds_p50": round(reruns[len(reruns) // 2], 2),
                "rerun_seconds_p95": round(reruns[int(len(reruns) * 0.95)], 2),
                "rerun_seconds_max": round(reruns[-1], 2),
            }
        self.check("each lost task ran elsewhere", not never, never)
        self.check(
            f"each within {RERUN_SECONDS:g} s of its worker's kill",
            not late,
            [f"{len(late)} of {len(reruns)} later, the last after {reruns[-1]:.1f} s"]
            if late
            else None,
        )

    def _report(self, verdict: Verdict) -> None:
        complaints = verdict.complaints
        self.figures |= {
            "tasks": verdict.tasks,
            "states": verdict.states,
            "executions": verdict.executions,
            "executions_again": verdict.executions_again,
            "uncommitted_by_journalled_end": verdict.by_journal,
            "uncommitted_by_lost_worker": verdict.by_lost_worker,
            "uncommitted_by_cancellation": verdict.by_cancellation,
            "running_at_scheduler_kills": verdict.running_at_kill,
            "adopted_by_a_new_scheduler": verdict.adopted,
        }
        for name, value in self.figures.items():
            self.say(f"       {name}: {value}")
        self.check(
            f"{verdict.tasks} tasks: none lost, one terminal state each, the committed value is "
            f"its attempt's, every other execution explained ({len(complaints)} complaints)",
            not complaints,
            complaints,
        )

    def _run_large_job(self) -> None:
        with tempfile.TemporaryDirectory(prefix="mycel-large-") as folder:
            swarm = Swarm(Path(folder) / "home", large_job.SETTINGS)
            try:
                large = large_job.LargeJob(swarm, self.tasks, large_job.KILLS, self.say)
                complaints = large.run()
            finally:
                swarm.stop()
        self.figures |= large.figures
        for name, value in large.figures.items():
            self.say(f"       {name}: {value}")
        what = f"a job of {self.tasks:,} tasks, {large_job.KILLS} kills: each result exactly once"
        self.check(what, not complaints, complaints)

    def _relay(self) -> None:
        reason = why_unavailable()
        if reason:
            self.say(f"left out  a task through a relay: {reason}")
            return
        with tempfile.TemporaryDirectory(prefix="mycel-relayed-") as folder:
            task = relayed.Relayed(Path(folder), relayed.BYTES, self.relayed_seconds, self.say)
            complaints = task.run()
        self.figures |= task.figures
        what = f"a task of {self.relayed_seconds:g} s moves {relayed.BYTES:,} bytes through a relay"
        self.check(what, not complaints, complaints)

    def _simulate(self) -> None:
        command = [sys.executable, "-m", "tests.simulation", "--seeds", str(self.seeds)]
        done = subprocess.run(  # how far it is goes to our own standard error
            command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=False
        )
        lines = done.stdout.splitlines()
        for line in lines:
            self.say(f"       {line}")
        self.figures["simulation"] = lines[-1] if lines else ""
        self.check(f"{self.seeds} seeds of the fault runner", done.returncode == 0)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="kills of the scheduler")
    parser.add_argument("--seeds", type=int, default=10_000, help="of the fault runner")
    parser.add_argument(
        "--tasks", type=int, default=large_job.TASKS, help="of the large job; 0 leaves it out"
    )
    parser.add_argument(
        "--relayed-seconds",
        type=float,
        default=relayed.SECONDS,
        help="of the task through a relay; 0 leaves it out",
    )
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    parser.add_argument("--json", action="store_true", help="print the figures as one object")
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return Soak(parser.parse_args()).run()
    except KeyboardInterrupt:
        print("interrupted; the swarm is stopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
