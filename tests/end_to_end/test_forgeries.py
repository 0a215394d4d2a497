"""A member with a worker's invite ends nobody's tasks but its own, and what proves whose a task is
stays between scheduler and worker."""

from __future__ import annotations

import base64
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from mycel.client import Job, Task
from tests.core.keys import proof

from .conftest import QUICK, SwarmMaker
from .rest import call
from .swarm import Swarm, eventually
from .test_access import invite
from .test_faults import executions, open_gate, start_gated

OWNED = """
labels = { place = "attic" }
gpus = [{ model = "T4", memory = "16GB" }]
"""


def forgeries_refused(swarm: Swarm) -> float:
    """0 for a scheduler that does not know of such a thing."""
    pattern = r"^mycel_scheduler_forgeries_refused_total (\S+)"
    found = re.search(pattern, swarm.client.metrics(), re.MULTILINE)
    return 0.0 if found is None else float(found[1])


def forger(make_swarm: SwarmMaker, swarm: Swarm, folder: Path, count: int) -> Path:
    """Starts one; where it tells of each of its registrations."""
    site, tells = folder / "site", folder / "tells"
    site.mkdir()
    (site / "sitecustomize.py").write_text("import tests.end_to_end.forger\n")
    guest = make_swarm("[worker]\ncpu_cores = 1\ndrivers = []\n", name="forger")
    guest.environment |= {
        "PYTHONPATH": f"{site}:{guest.environment['PYTHONPATH']}",
        "MYCEL_FORGERIES": str(count),
        "MYCEL_FORGER_TELLS": str(tells),
    }
    settings = str(guest.home / "mycel.toml")
    guest.popen("worker", "--name", "forger", "--join", invite(swarm), "--config", settings)
    eventually(tells.exists, "it has registered")
    return tells


def waiting(swarm: Swarm) -> list[Task]:
    """One for a GPU that nobody has, and two pinned to a label that nobody has."""
    gpu = {"gpu_required": True}
    label = {"labels": {"place": "attic"}}
    return [
        swarm.client.submit_task(command=["echo", "genuine"], requirements=need)
        for need in (gpu, label, label)
    ]


def ended(swarm: Swarm, job: Job, tasks: list[Task]) -> list[str]:
    """Which have ended, of those that cannot have."""
    found = [swarm.client.task(task.id) for task in tasks]
    found += swarm.client.tasks(job=job.id)
    states = ("succeeded", "failed", "cancelled")
    return [f"{task.id}: {task.state} {task.value}" for task in found if task.state in states]


@pytest.mark.parametrize("count", [300, 60_000])
def test_made_up_attempts_end_nobodys_tasks(
    make_swarm: SwarmMaker, tmp_path: Path, count: int
) -> None:
    """A few, and more than it is heard out: before a restart and after one."""
    swarm = make_swarm()
    swarm.up(workers=2)
    tasks = waiting(swarm)
    job = start_gated(swarm, tmp_path, 3, 3)
    forger(make_swarm, swarm, tmp_path, count)
    for boot in (1, 2):
        eventually(
            lambda: forgeries_refused(swarm) or ended(swarm, job, tasks),
            f"the forger was heard in boot {boot}",
        )
        assert not ended(swarm, job, tasks)
        if boot == 1:
            swarm.kill("scheduler")
            done = swarm.mycel("up", "--detach", "--json")
            assert done.code == 0, done
            swarm.take(done.json)
    owner = make_swarm(QUICK + OWNED, "owner")
    settings = str(owner.home / "mycel.toml")
    owner.popen("worker", "--name", "owner", "--join", invite(swarm), "--config", settings)
    results = [swarm.client.wait(task.id, 60) for task in tasks]
    assert [one.value for one in results] == ["genuine\n"] * len(tasks)
    open_gate(tmp_path)
    finished = swarm.client.wait_job(job.id, 60)
    assert finished.state == "succeeded"
    values = [one.value for one in swarm.client.results(job.id, follow=False)]
    assert sorted(value["name"] for value in values) == ["task-0", "task-1", "task-2"]
    ran = {(name, pid) for name, _, pid in executions(tmp_path)}
    assert {(value["name"], value["pid"]) for value in values} <= ran, "by who was given them"


# A bearer's proof


def secret_and_proofs(swarm: Swarm) -> list[bytes]:
    """The journal's secret, and the authenticators of all attempts that it knows of."""
    database = sqlite3.connect(f"file:{swarm.journal}?mode=ro", uri=True)
    try:
        [(secret,)] = database.execute("SELECT secret FROM meta")
        rows = database.execute(
            "SELECT attempt, job, jobs.id, task_index, worker FROM results "
            "JOIN jobs ON jobs.number = results.job WHERE attempt IS NOT NULL"
        ).fetchall()
    finally:
        database.close()
    return [secret, *(proof(*row, secret=secret) for row in rows)]


def spellings(secrets: list[bytes]) -> Iterator[bytes]:
    for one in secrets:
        yield one
        yield one.hex().encode()
        yield base64.b64encode(one)[:-2]
        yield repr(one)[2:-1].encode()


def memory_of(pid: int) -> Iterator[bytes]:
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            places, rights = line.split()[:2]
            begin, end = (int(place, 16) for place in places.split("-"))
            if "r" not in rights or "[v" in line:
                continue
            try:
                memory.seek(begin)
                yield memory.read(end - begin)
            except OSError:  # a guard page, or it is gone
                continue


def test_authenticators_reach_no_task_no_log_and_no_client(
    make_swarm: SwarmMaker, tmp_path: Path
) -> None:
    swarm = make_swarm()
    swarm.up(workers=2)
    job = start_gated(swarm, tmp_path, 2, 2)
    shown = swarm.client.submit_task(
        command=["sh", "-c", "cat /proc/self/environ; grep -ra . . ..; ls -laR . .."], wait=60
    )
    memories = {pid: b"\0".join(memory_of(pid)) for _, _, pid in executions(tmp_path)}
    assert len(memories) == 2
    assert all(str(tmp_path).encode() in memory for memory in memories.values()), "it is readable"
    explained = [swarm.client.explain(task.id) for task in swarm.client.tasks(job=job.id)]
    swarm.kill("scheduler")  # so that results are spooled, shown and judged
    open_gate(tmp_path)
    swarm.up()
    assert swarm.client.wait_job(job.id, 60).state == "succeeded"
    places: dict[str, bytes] = {f"memory of {pid}": text for pid, text in memories.items()}
    places["explained"] = repr(explained).encode()
    places["a task's output"] = repr(shown).encode()
    for path in ("tasks", "jobs", "workers", "stats", f"jobs/{job.id}", f"jobs/{job.id}/results"):
        places[path] = call(swarm, "GET", f"/api/v1/{path}").body
    for index in range(2):
        places[f"task {index}"] = call(swarm, "GET", f"/api/v1/tasks/{job.id}.{index}").body
    places["metrics"] = call(swarm, "GET", "/metrics").body
    for log in swarm.home.rglob("*.jsonl"):
        places[str(log)] = log.read_bytes()
    secrets = secret_and_proofs(swarm)
    assert len(secrets) == 1 + 3
    spooled = b"".join(path.read_bytes() for path in swarm.home.rglob("spool.db*"))
    journal = b"".join(path.read_bytes() for path in swarm.home.rglob("journal.db*"))
    assert any(one in spooled for one in secrets[1:]), "the worker has kept them, with its results"
    assert secrets[0] in journal
    assert secrets[0] not in spooled
    for place, text in places.items():
        assert not [one for one in spellings(secrets) if one in text], place
