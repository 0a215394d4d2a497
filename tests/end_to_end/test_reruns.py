"""Jobs that are run again, as a whole or what failed of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .swarm import Swarm


def submitted(swarm: Swarm, folder: Path, body: dict[str, Any]) -> str:
    file = folder / "job.json"
    file.write_text(json.dumps(body))
    return str(swarm.mycel("submit", "--wait", "--json", str(file)).json["id"])


def rerun(swarm: Swarm, job: str, *options: str) -> list[dict[str, Any]]:
    """Its results, by index."""
    done = swarm.mycel("rerun", job, "--follow", "--json", *options)
    lines = [json.loads(line) for line in done.out.splitlines()]
    return sorted(lines, key=lambda line: int(line["index"]))


def test_what_failed_of_a_sweep_runs_again_with_its_own_parameters(
    swarm: Swarm, tmp_path: Path
) -> None:
    (tmp_path / "data.txt").write_text("kept\n")
    command = (
        f"test -e {tmp_path}/mended || test $LR != 2; echo ${{lr}} ${{seed}} $LR; cat data.txt"
    )
    job = submitted(
        swarm,
        tmp_path,
        {
            "task": {
                "command": ["sh", "-ec", command],
                "env": {"LR": "${lr}"},
                "inputs": ["data.txt"],
            },
            "matrix": {"lr": [1, 2, 3], "seed": [7, 8]},
        },
    )
    assert swarm.client.job(job).tasks.failed == 2
    (tmp_path / "mended").touch()
    assert [one["state"] for one in rerun(swarm, job, "--failed")] == ["succeeded"] * 2
    again = next(swarm.client.jobs(limit=1)).id
    assert swarm.client.logs(f"{again}.0").stdout == "2 7 2\nkept\n"
    assert swarm.client.logs(f"{again}.1").stdout == "2 8 2\nkept\n"
    assert len(rerun(swarm, job)) == 6


def test_a_stage_that_hands_on_its_results_runs_again_whole(swarm: Swarm, tmp_path: Path) -> None:
    gate = tmp_path / "mended"
    check = f"test -e {gate} && echo ${{needs.make[1]}}"
    stages: list[dict[str, Any]] = [
        {"name": "other", "task": {"python": "builtins:len", "arguments": ["abc"]}},
        {"name": "make", "task": {"python": "operator:neg"}, "arguments": [[1], [2]]},
        {"name": "use", "needs": ["make", "other"], "task": {"command": ["sh", "-c", check]}},
        {"name": "last", "needs": ["use"], "task": {"python": "builtins:abs", "arguments": [-5]}},
    ]
    job = submitted(swarm, tmp_path, {"stages": stages})
    view = swarm.client.job(job)
    assert (view.state, view.tasks.succeeded, view.tasks.cancelled) == ("failed", 3, 1)
    gate.touch()
    again = rerun(swarm, job, "--failed")
    assert [one["state"] for one in again] == ["succeeded"] * 4
    assert [one["value"] for one in again] == [-1, -2, None, 5]
    new = next(swarm.client.jobs(limit=1))
    assert [(one.name, one.tasks) for one in new.stages] == [
        ("other", 0),
        ("make", 2),
        ("use", 1),
        ("last", 1),
    ]
    assert swarm.client.logs(f"{new.id}.2").stdout == "-2\n"


def test_nothing_is_run_again_where_all_went_well(swarm: Swarm, tmp_path: Path) -> None:
    job = submitted(swarm, tmp_path, {"command": ["true"]})
    done = swarm.mycel("rerun", job, "--failed")
    assert done.code == 1
    assert "nothing to run again" in done.err
    assert swarm.mycel("rerun", "01arz3ndektsv4rrffq69g5fav").code == 1
