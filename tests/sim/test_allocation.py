"""The allocation experiment on a small cluster, and on openb where it is present."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mycel.sim.allocation import EVERYWHERE, Offers, allocation_rate, draw
from mycel.sim.entities import Capacity, Demand
from mycel.sim.workloads import traces

HALF, WHOLE, NONE = Demand(gpus=1, gpu_milli=500), Demand(gpus=1), Demand(cores_milli=4000)


def test_whole_gpus_are_filled_whole() -> None:
    nodes = [Capacity(9000, 0, 2, "A")] * 4
    assert allocation_rate(nodes, [WHOLE] * 8, [WHOLE], "fgd", 1) == 1.0
    assert allocation_rate(nodes, [WHOLE] * 4, [WHOLE], "best-fit", 1) == 0.5


def test_fragmentation_counts_what_kinds_cannot_use() -> None:
    """Halves beside halves leave whole GPUs; halves at random do not."""
    nodes = [Capacity(99_000, 0, 8, "A")] * 8
    pods = [HALF] * 64 + [WHOLE] * 32
    kinds = [HALF, WHOLE]
    assert allocation_rate(nodes, pods, kinds, "fgd", 1) == 1.0
    assert allocation_rate(nodes, pods, kinds, "random-fit", 1) < 1.0


def test_fgd_leaves_cores_where_gpus_are() -> None:
    """A pod without GPUs goes where it strands none."""
    nodes = [Capacity(4000, 0, 2, "A"), Capacity(4000, 0, 0, "")]
    assert allocation_rate(nodes, [NONE, WHOLE, WHOLE], [NONE, WHOLE], "fgd", 1) == 1.0


def test_models_are_respected() -> None:
    picky = Demand(gpus=1, gpu_models=frozenset({"B"}))
    nodes = [Capacity(9000, 0, 1, "A"), Capacity(9000, 0, 1, "B")]
    for rule in ("random-fit", "best-fit", "fgd"):
        assert allocation_rate(nodes, [picky, picky], [picky], rule, 1) == 0.5


def test_pods_that_leave_make_room() -> None:
    nodes = [Capacity(99_000, 0, 8, "A")] * 4
    pods = [WHOLE] * 2000
    rate = allocation_rate(nodes, pods, [WHOLE], "fgd", 1, mean_stay=16)
    assert rate == pytest.approx(0.5, abs=0.03)  # 16 of 32 GPUs at a time


@pytest.mark.parametrize("mean_stay", [None, 100.0])
def test_eight_offers_of_homes_nearly_do_what_one_scheduler_does(mean_stay: float | None) -> None:
    nodes = [Capacity(40_000, 0, 4, "A")] * 60
    kinds = [HALF] * 3 + [WHOLE] * 2 + [Demand(gpus=4)]
    pods = draw(kinds, 240, 6.0 if mean_stay else 1.3, seed=2)
    rates = [
        allocation_rate(nodes, pods, kinds, "fgd", 1, offers=offers, mean_stay=mean_stay)
        for offers in (EVERYWHERE, Offers(12, 8), Offers(12, 1))
    ]
    assert rates[1] == pytest.approx(rates[0], abs=0.02)
    assert rates[2] <= max(rates[:2])


def test_best_fit_fills_openb_as_published() -> None:
    data = Path(os.environ.get("MYCEL_DATA", "../shared/data")) / "traces"
    if not data.is_dir():
        pytest.skip("the traces are not here: set MYCEL_DATA to the folder that has them")
    nodes = traces.read_openb_nodes(data / "openb_node_list_all_node.csv")
    jobs = traces.read_openb_pods(data / "openb_pod_list_default.csv")
    pods = [job.tasks[0].demand for job in jobs]
    drawn = draw(pods, sum(node.gpus for node in nodes), 1.3, seed=1)
    assert allocation_rate(nodes, drawn, pods, "best-fit", 1) == pytest.approx(0.931, abs=0.015)
