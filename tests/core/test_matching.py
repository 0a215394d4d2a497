"""Every refusal has its reason, in words for people."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mycel.core.matching import (
    all_obstacles,
    has_room,
    is_version_range,
    obstacle,
    version_satisfies,
)
from mycel.core.model.resources import Capabilities, Gpu, GpuRequirement, Ledger, Requirements
from mycel.core.model.work import Shape

WORKER = Capabilities(
    cpu_cores=4.0,
    memory=8_000_000_000,
    disk=10_000_000_000,
    gpus=(Gpu("T4", 16_000_000_000),),
    models=("llama",),
    drivers=("process", "python"),
    labels=(("zone", "a"),),
    arch="x86_64",
    os="linux",
    software=(("cuda", "12.4"),),
    custom=(("licence", 1.0),),
)


@pytest.mark.parametrize(
    ("requirements", "reason"),
    [
        (Requirements(min_memory=16_000_000_000), "needs 16 GB of memory, it has 8 GB"),
        (Requirements(cpu_cores=8.0), "needs 8 cores, it has 4"),
        (Requirements(disk=10**12), "needs 1 TB of disk, it has 10 GB"),
        (
            Requirements(gpus=GpuRequirement(model="A100")),
            "needs 1 A100 GPU, 0 of its 1 GPUs fit",
        ),
        (Requirements(labels=(("zone", "b"),)), "needs the label zone=b, it has zone=a"),
        (Requirements(arch="arm64"), "needs arch arm64, it is x86_64"),
        (Requirements(os="darwin"), "needs os darwin, it is linux"),
        (Requirements(software=(("cuda", ">=13"),)), "needs cuda >=13, it has 12.4"),
        (Requirements(software=(("rocm", ">=6"),)), "needs rocm >=6, it has none"),
        (Requirements(custom=(("licence", 2.0),)), "needs 2 licence, it has 1"),
        (Requirements(cpu_cores=4.0, software=(("cuda", ">=12.2,<13"),)), None),
    ],
)
def test_the_first_thing_that_is_missing_is_named(
    requirements: Requirements, reason: str | None
) -> None:
    assert obstacle(Shape("process", requirements), WORKER) == reason


def test_a_model_that_nobody_serves_is_named() -> None:
    reason = obstacle(Shape("model", model="gemma"), WORKER)
    assert reason == "needs the model gemma, it serves llama"
    assert obstacle(Shape("model", model="llama"), WORKER) == (
        "needs the driver model, it has process, python"
    )


def test_everything_that_is_missing_can_be_told() -> None:
    wanted = Requirements(min_memory=16_000_000_000, gpus=GpuRequirement(count=2.0))
    assert all_obstacles(Shape("model", wanted, model="gemma"), WORKER) == [
        "needs 16 GB of memory, it has 8 GB",
        "needs 2 GPU, 1 of its 1 GPUs fit",
        "needs the model gemma, it serves llama",
    ]


def test_a_driver_that_is_missing_is_named() -> None:
    assert obstacle(Shape("container", image="x"), WORKER) == (
        "needs the driver container, it has process, python"
    )


def test_a_task_that_demands_a_sandbox_or_the_network_goes_where_there_is_one() -> None:
    confined = msgspec.structs.replace(WORKER, sandbox="bubblewrap", network=False)
    assert obstacle(Shape("process", sandbox="required"), confined) is None
    assert obstacle(Shape("process", sandbox="required"), WORKER) == "needs a sandbox, it has none"
    assert obstacle(Shape("process", network=True), WORKER) is None
    assert obstacle(Shape("process", network=True), confined) == (
        "needs the network, it gives tasks none"
    )


@pytest.mark.parametrize(
    ("version", "wanted", "fits"),
    [
        ("12.4", ">=12.2,<13", True),
        ("13.0", ">=12.2,<13", False),
        ("12.10", ">12.9", True),
        ("3.11.7", "3.11.7", True),
        ("3.11", "==3.11.0", True),
        ("3.11", "!=3.11", False),
    ],
)
def test_version_ranges(version: str, wanted: str, fits: bool) -> None:
    assert is_version_range(wanted)
    assert version_satisfies(version, wanted) is fits


@pytest.mark.parametrize("wanted", [">= 12.2 , < 13", "v3.1", "2.1.0+cu118", "==1.0rc1"])
def test_what_is_a_version_range(wanted: str) -> None:
    assert is_version_range(wanted)


@pytest.mark.parametrize(
    "wanted", ["", "banana", ">=", "~=3.11", "^1.2", "3.11.*", ">=12 <13", ">=12,", ">=१२"]
)
def test_what_is_none(wanted: str) -> None:
    assert not is_version_range(wanted)


@given(
    st.builds(
        Requirements,
        cpu_cores=st.sampled_from((0.0, 1.0, 3.0, 5.0)),
        min_memory=st.sampled_from((0, 5_000_000_000, 9_000_000_000)),
        gpus=st.none() | st.builds(GpuRequirement, count=st.sampled_from((0.5, 1.0, 2.0))),
    )
)
def test_room_and_obstacles_agree_with_the_ledger(requirements: Requirements) -> None:
    """A machine without obstacle books one when it is empty, and says before that it will."""
    ledger = Ledger(WORKER)
    fits = obstacle(Shape("process", requirements), WORKER) is None
    assert has_room(requirements, WORKER, ledger.free) is fits
    assert (ledger.book(requirements) is not None) is fits
