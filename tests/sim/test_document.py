"""The policy in docs/simulation.md is twenty lines and works."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mycel.sim.entities import NS_PER_MS, Capacity
from mycel.sim.reference_engine import Engine
from mycel.sim.run_records import Settings
from mycel.sim.sim_network import ConstantNetwork
from mycel.sim.workloads.synthetic import Synthetic, generate

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "simulation.md"


def test_the_policy_of_the_document_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    assert len([line for line in code.splitlines() if line.strip()]) <= 20
    work = generate(Synthetic(jobs=100, tasks_per_job=3, task_s=0.1), 0.7, 40, 1, seed=1)
    engine = Engine(
        [Capacity(2000)] * 20,
        work.jobs(),
        names["TwoTries"],
        network=ConstantNetwork(NS_PER_MS),
        settings=Settings(seed=1),
    )
    engine.run()
    assert engine.unfinished == 0
    assert 300 < engine.counters.messages < 600  # some tasks needed the second try


def test_the_scenario_of_the_document_runs(tmp_path: Path) -> None:
    from mycel.sim.scenario import load_scenario

    (text,) = re.findall(r"```toml\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    path = tmp_path / "scenario.toml"
    path.write_text(text.replace("jobs = 2000", "jobs = 200"))
    outcome, _ = load_scenario(path).run()
    assert (outcome.end_ns >= 0).all()
