"""Beside two honest workers, one that spoils all that it gets: the work is done all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import QUICK, SwarmMaker
from .rest import call
from .swarm import Swarm, eventually
from .test_access import invite

TASKS = 300
SETTINGS = QUICK.replace("cpu_cores = 2", "cpu_cores = 24").replace(
    "backoff_base = 0.5", "backoff_base = 0.1"
)


def start_liar(make_swarm: SwarmMaker, swarm: Swarm, folder: Path, lie: str) -> None:
    site = folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("import tests.end_to_end.liar\n")
    guest = make_swarm(SETTINGS, name="liar")
    guest.environment |= {
        "PYTHONPATH": f"{site}:{guest.environment['PYTHONPATH']}",
        "MYCEL_LIE": lie,
    }
    settings = str(guest.home / "mycel.toml")
    guest.popen("worker", "--name", "liar", "--join", invite(swarm), "--config", settings)
    eventually(lambda: swarm.worker_state("liar") == "healthy", "the liar has joined")


@pytest.mark.parametrize(
    ("lie", "seconds"), [("never", 0.1), ("wrong", 0.5), ("fails", 0.5), ("faults", 0.1)]
)
def test_a_liar_does_little_harm(
    make_swarm: SwarmMaker, tmp_path: Path, lie: str, seconds: float
) -> None:
    swarm = make_swarm(SETTINGS)
    swarm.up(workers=2)
    start_liar(make_swarm, swarm, tmp_path, lie)
    job = swarm.client.submit_job(
        {
            "command": ["sh", "-c", f"sleep {seconds}"],
            "requirements": {"cpu_cores": 1},
            "retry": {"on_error": True},
        },
        count=TASKS,
    )
    assert swarm.client.wait_job(job.id, 120).state == "succeeded"
    results = list(swarm.client.results(job.id, follow=False))
    assert len(results) == TASKS
    by_liar = sum(one.worker == swarm.worker("liar").peer_id for one in results)
    if lie == "wrong":
        assert by_liar <= TASKS / 10
    else:
        assert by_liar == 0
    if lie in ("never", "faults"):  # the others may have got too little to be found out
        metrics = call(swarm, "GET", "/metrics").body.decode()
        assert "mycel_scheduler_workers_quarantined 1.0" in metrics
        assert swarm.worker_state("liar") == "quarantined"
