"""A task that breaks a limit fails, and says which; what it did not name does not bind it."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from mycel.core.model.failures import LIMIT
from mycel.core.model.resources import Gpu
from mycel.core.model.work import Bounds, Run
from mycel.drivers.sandbox.run_confinement import Limits
from mycel.drivers.task_devices import ConfinementPolicy, Cores, own_gpus
from mycel.testing.drivers.conformance import Harness
from tests.adapters.drivers.subjects import deed

from .conftest import Play
from .subjects import BOOKING, has_bubblewrap, with_booking

held = pytest.mark.parametrize("way", ["confined", "limited"])
MANY_BYTES = "import sys; taken = b'x' * (int(sys.argv[1]) << 20)"


@pytest.fixture(autouse=True)
def _needs_bubblewrap(request: pytest.FixtureRequest) -> None:
    if request.node.name.endswith("[confined]") and not has_bubblewrap:
        pytest.skip("bubblewrap is not installed: make test-tools")


def _hog(harness: Harness, megabytes: int, **work: Any) -> Run:
    return harness.run(("python3", "-S", "-c", MANY_BYTES, str(megabytes)), **work)


def _has_groups(harness: Harness) -> bool:
    return getattr(harness.subject, "status").plan.cgroups is not None  # noqa: B009


@held
def test_a_process_dies_of_the_memory_that_it_named(way: str, play: Play) -> None:
    async def scenario(harness: Harness) -> None:
        named = Bounds(memory_max=64 << 20)
        end = await harness.result_of(_hog(harness, 200, bounds=named))
        assert (end.state, end.driver_fault, end.crashed) == ("failed", False, False)
        if _has_groups(harness):
            assert end.error.startswith("MemoryLimitExceeded: used more than 67.1 MB of memory")
        assert (await harness.result_of(_hog(harness, 10, bounds=named))).state == "succeeded"

    play(f"{way} process", scenario)


@held
def test_a_process_that_names_no_memory_has_what_it_takes(way: str, play: Play) -> None:
    async def scenario(harness: Harness) -> None:
        run = with_booking(_hog(harness, 200), memory=64 << 20)  # a profile's guess
        assert (await harness.result_of(run)).state == "succeeded"

    play(f"{way} process", scenario)


@held
def test_a_function_dies_of_the_memory_that_it_named(way: str, play: Play) -> None:
    async def scenario(harness: Harness) -> None:
        named = Bounds(memory_max=100 << 20)
        end = await harness.result_of(deed(harness, "big", 200 << 20, bounds=named))
        assert (end.state, end.driver_fault) == ("failed", False)
        # Control groups end the interpreter; without them the function gets a MemoryError.
        assert end.crashed == _has_groups(harness)
        if _has_groups(harness):
            assert end.error.startswith("MemoryLimitExceeded: used more than 105 MB"), end.error
        assert (
            await harness.result_of(deed(harness, "value", 1, bounds=named))
        ).state == "succeeded"

    play(f"{way} python", scenario)


@held
def test_a_huge_file_is_an_error_of_its_own(way: str, play: Play) -> None:
    async def scenario(harness: Harness) -> None:
        end = await harness.result_of(harness.run(("sh", "-c", "head -c 9000000 /dev/zero > file")))
        assert end.state == "failed"
        run = harness.run(("head", "-c", "9000000", "/dev/zero"))
        assert (await harness.result_of(run)).state == "succeeded", "output is no file"
        exec_run = harness.run(("sh", "-c", "exec head -c 9000000 /dev/zero > file"))
        end = await harness.result_of(exec_run)
        assert end.error == "FileSizeLimitExceeded: wrote a file of more than 5 MB, its limit"

    play(f"{way} process", scenario, limits=Limits(file_size=5_000_000))


@held
def test_a_full_folder_ends_the_task(way: str, play: Play) -> None:
    async def scenario(harness: Harness) -> None:
        script = "head -c 9000000 /dev/zero > a; exec sleep 1000"
        run = with_booking(harness.run(("sh", "-c", script)), disk=5_000_000)
        end = await harness.result_of(run)
        assert end.error.startswith("DiskLimitExceeded: put more than 5 MB into its working folder")
        assert not end.driver_fault

    play(f"{way} process", scenario)


@held
def test_a_function_that_fills_its_folder_takes_its_interpreter_along(way: str, play: Play) -> None:
    async def scenario(harness: Harness) -> None:
        run = with_booking(deed(harness, "fill", 9_000_000), disk=5_000_000)
        end = await harness.result_of(run)
        assert (end.state, end.code, end.driver_fault, end.crashed) == (
            "failed",
            LIMIT,
            False,
            True,
        )

    play(f"{way} python", scenario)


@held
def test_wall_time_is_the_least_that_anybody_allows(way: str, play: Play) -> None:
    async def scenario(harness: Harness) -> None:
        ends = [await harness.result_of(harness.slow(timeout)) for timeout in (None, 1000.0, 0.2)]
        assert [end.state for end in ends] == ["timed_out"] * 3
        assert [end.error for end in ends] == ["timed out after 0.5 s"] * 2 + [
            "timed out after 0.2 s"
        ]

    for kind in ("process", "python"):
        play(f"{way} {kind}", scenario, wall_time=0.5)


@held
def test_whole_cores_are_a_tasks_own(way: str, play: Play) -> None:
    here = sorted(os.sched_getaffinity(0))

    async def scenario(harness: Harness) -> None:
        show = ("python3", "-S", "-c", "import os; print(sorted(os.sched_getaffinity(0)))")
        named = harness.run(show, bounds=Bounds(cores_max=1.0))
        assert json.loads((await harness.result_of(named)).stdout) == here[:1]
        assert json.loads((await harness.result_of(harness.run(show))).stdout) == here

    play(f"{way} process", scenario, cores=float(len(here)))


@held
def test_a_part_of_a_core_is_a_quota(way: str, play: Play) -> None:
    async def scenario(harness: Harness) -> None:
        if not _has_groups(harness):
            pytest.skip("no control groups can be made here")
        burn = "import time; end = time.monotonic() + 1\nwhile time.monotonic() < end: pass"
        run = harness.run(("python3", "-S", "-c", burn), bounds=Bounds(cores_max=0.2))
        end = await harness.result_of(run)
        assert end.cpu_seconds < 0.7 * (end.ended_at - end.started_at)

    play(f"{way} process", scenario)


class TestGpus:
    GPUS = (
        Gpu("A100", 1, "nvidia"),
        Gpu("MI300", 1, "amd"),
        Gpu("A100", 1, "nvidia"),
        Gpu("declared", 1),
    )

    @pytest.mark.parametrize(
        ("booked", "variables"),
        [
            ((), {"CUDA_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": ""}),
            (((2, 1000),), {"CUDA_VISIBLE_DEVICES": "1", "ROCR_VISIBLE_DEVICES": ""}),
            (((1, 500),), {"CUDA_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": "0"}),
            (
                ((0, 1000), (3, 1000)),
                {"CUDA_VISIBLE_DEVICES": "0,2", "ROCR_VISIBLE_DEVICES": ""},
            ),
        ],
    )
    def test_each_vendor_counts_its_own(
        self, booked: tuple[tuple[int, int], ...], variables: dict[str, str]
    ) -> None:
        from msgspec.structs import replace

        found, devices = own_gpus(self.GPUS, replace(BOOKING, gpu_millis=booked))
        assert dict(found) == variables
        assert ("/dev/nvidia1" in devices) == (booked == ((2, 1000),))
        assert ("/dev/kfd" in devices) == (booked == ((1, 500),))

    @held
    @pytest.mark.parametrize("kind", ["process", "python"])
    def test_a_task_is_told_of_the_gpus_that_its_lane_has(
        self, kind: str, way: str, play: Play
    ) -> None:
        async def scenario(harness: Harness) -> None:
            for booked, seen in ((((2, 1000),), "1"), ((), "")):
                if kind == "python":
                    run = deed(harness, "surroundings", "CUDA_VISIBLE_DEVICES")
                else:
                    run = harness.run(("printenv", "CUDA_VISIBLE_DEVICES"))
                end = await harness.result_of(with_booking(run, gpu_millis=booked))
                if kind == "python":
                    assert json.loads(end.value) == {"CUDA_VISIBLE_DEVICES": seen}
                else:
                    assert end.stdout.decode().strip() == seen

        play(f"{way} {kind}", scenario, gpus=self.GPUS)


@held
@pytest.mark.parametrize("cores", [1e-9, 0.005])
def test_a_task_starts_however_little_of_a_core_it_names(
    way: str, cores: float, play: Play
) -> None:
    async def scenario(harness: Harness) -> None:
        run = harness.run(("/bin/true",), bounds=Bounds(cores_max=cores))
        assert (await harness.result_of(run)).state == "succeeded"

    play(f"{way} process", scenario)


def test_a_worker_that_shares_the_machine_hands_out_no_cores() -> None:
    cores = Cores(len(os.sched_getaffinity(0)) - 0.5)
    assert cores.of(1, 1.0) == ()  # type: ignore[arg-type]


def test_cores_go_back_when_a_lane_closes() -> None:
    here = sorted(os.sched_getaffinity(0))
    cores = Cores(float(len(here)))
    everything = cores.of(1, float(len(here)))  # type: ignore[arg-type]
    assert sorted(everything) == here
    assert cores.of(2, 1.0) == ()  # type: ignore[arg-type]
    cores.give_back(1)  # type: ignore[arg-type]
    assert len(cores.of(2, 1.0)) == 1  # type: ignore[arg-type]


def test_a_limit_of_the_configuration_counts_where_it_is_less(play: Play) -> None:
    policy = ConfinementPolicy(limits=Limits(memory=100 << 20))

    def run(named: int) -> Run:
        from mycel.core.identifiers import AttemptId
        from mycel.core.model.work import Work

        work = Work("process", bounds=Bounds(memory_max=named))
        return Run(AttemptId(1), "", "", 1, "owner", work, b"")

    memory = [policy.of(1, run(named)).limits.memory for named in (0, 50 << 20, 200 << 20, 1)]  # type: ignore[arg-type]
    assert memory == [100 << 20, 50 << 20, 100 << 20, 32 << 20]
