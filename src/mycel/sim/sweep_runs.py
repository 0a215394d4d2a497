"""One run of a comparison: in a process of its own here, or as a task of a swarm."""

from __future__ import annotations

import tempfile
from pathlib import Path

from mycel.sim.workloads.synthetic import Synthetic

from .errors import ScenarioError
from .results.outcome_transfer import encode
from .results.run_results import Outcome
from .scenario import Loaded, load_scenario, with_trace


def run_here(path: Path, trace: str | None, policy: str, load: float, seed: int) -> Outcome:
    loaded = load_scenario(path)
    if trace is not None:
        loaded = with_trace(loaded, Path(trace))
    return loaded.run(policy=policy, load=load, seed=seed)[0]


def run_as_task(scenario: str, policy: str, load: float, seed: int) -> str:
    """What a worker calls: the scenario's text comes along, files do not."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scenario.toml"
        path.write_text(scenario, encoding="utf-8")
        return encode(run_here(path, None, policy, load, seed))


def check_can_travel(loaded: Loaded, trace: str | None) -> None:
    """Workers have no files of ours."""
    topology = loaded.scenario.topology
    if trace is not None or not isinstance(loaded.workload, Synthetic):
        what = "recorded work"
    elif loaded.scenario.cluster.nodes is not None:
        what = "a file of nodes"
    elif topology is not None and topology.file is not None:
        what = "a file of the topology"
    else:
        return
    raise ScenarioError(
        f"--on-swarm sends the scenario alone, and this one needs {what}: run it without"
    )
