"""What a worker finds on its machine; the vendors' libraries are played, the files are real."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from mycel.devices import cgroup, gpus, host, software


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


class TestControlGroups:
    def test_the_lowest_limit_above_a_process_counts(self, tmp_path: Path) -> None:
        root, membership = tmp_path / "cgroup", tmp_path / "self"
        write(membership, "0::/user/session/mycel\n")
        write(root / "user/cpu.max", "150000 100000\n")
        write(root / "user/session/cpu.max", "max 100000\n")
        write(root / "user/session/mycel/cpu.max", "400000 100000\n")
        write(root / "user/session/memory.max", "4000000000\n")
        write(root / "user/session/mycel/memory.max", "max\n")
        found = cgroup.limits(root, membership)
        assert (found.cpu_cores, found.memory) == (1.5, 4_000_000_000)

    def test_version_one_has_a_tree_for_each_controller(self, tmp_path: Path) -> None:
        root, membership = tmp_path / "cgroup", tmp_path / "self"
        write(membership, "4:memory:/jobs/7\n3:cpu:/jobs/7\n0::/\n")
        write(root / "cpu/jobs/7/cpu.cfs_quota_us", "50000\n")
        write(root / "cpu/jobs/7/cpu.cfs_period_us", "100000\n")
        write(root / "cpu/jobs/cpu.cfs_quota_us", "-1\n")
        write(root / "cpu/jobs/cpu.cfs_period_us", "100000\n")
        write(root / "memory/jobs/7/memory.limit_in_bytes", "9223372036854771712\n")
        write(root / "memory/jobs/memory.limit_in_bytes", "2000000000\n")
        found = cgroup.limits(root, membership)
        assert (found.cpu_cores, found.memory) == (0.5, 2_000_000_000)

    def test_a_path_that_the_container_does_not_see_means_the_root(self, tmp_path: Path) -> None:
        root, membership = tmp_path / "cgroup", tmp_path / "self"
        write(membership, "0::/outside/of/here\n")
        write(root / "memory.max", "1000\n")
        assert cgroup.limits(root, membership).memory == 1000

    @pytest.mark.parametrize("text", ["", "nonsense", "0:cpu", "0::/../../etc\n"])
    def test_what_cannot_be_read_limits_nothing(self, tmp_path: Path, text: str) -> None:
        write(tmp_path / "self", text)
        found = cgroup.limits(tmp_path / "nowhere", tmp_path / "self")
        assert (found.cpu_cores, found.memory) == (None, None)

    def test_this_machine_has_something(self, tmp_path: Path) -> None:
        assert 0 < host.cpu_cores() <= (os.cpu_count() or 1)
        assert 0 < host.memory_bytes() <= psutil.virtual_memory().total
        assert host.disk_bytes(tmp_path) > 0


class Nvml:
    """As `pynvml` looks to its users."""

    class NVMLError(Exception):
        pass

    def __init__(self, names: list[Any], *, driver: bool = True) -> None:
        self._names = names
        self._driver = driver
        self.is_open = False

    def nvmlInit(self) -> None:  # noqa: N802
        if not self._driver:
            raise self.NVMLError("driver not loaded")
        self.is_open = True

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.is_open = False

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self._names)

    def nvmlDeviceGetHandleByIndex(self, number: int) -> int:  # noqa: N802
        return number

    def nvmlDeviceGetName(self, handle: int) -> Any:  # noqa: N802
        if isinstance(self._names[handle], Exception):
            raise self._names[handle]
        return self._names[handle]

    def nvmlDeviceGetUUID(self, handle: int) -> str:  # noqa: N802
        return f"GPU-{handle}"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(total=40_000_000_000, used=1_000 * (handle + 1))

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(gpu=25 * handle)


class TestGpus:
    def test_nvidia(self) -> None:
        library = Nvml(["NVIDIA A100", b"Tesla T4"])
        assert gpus.nvidia(library) == [
            gpus.DetectedGpu("nvidia", "NVIDIA A100", 40_000_000_000, "GPU-0"),
            gpus.DetectedGpu("nvidia", "Tesla T4", 40_000_000_000, "GPU-1"),
        ]
        assert gpus.nvidia_samples(library) == [gpus.Sample(0.0, 1000), gpus.Sample(0.25, 2000)]
        assert not library.is_open

    def test_a_package_without_its_driver_means_none(self) -> None:
        assert gpus.nvidia(Nvml(["A100"], driver=False)) == []

    def test_a_card_that_fell_off_the_bus_means_none(self) -> None:
        library = Nvml([Nvml.NVMLError("GPU is lost")])
        assert gpus.nvidia(library) == []
        assert not library.is_open

    def test_apple(self) -> None:
        text = json.dumps(
            {"SPDisplaysDataType": [{"sppci_model": "Apple M3", "sppci_cores": "10"}, {"x": 1}]}
        )
        [gpu] = gpus.apple(lambda: text)
        assert (gpu.vendor, gpu.model) == ("apple", "Apple M3")
        assert 0 < gpu.memory < psutil.virtual_memory().total

    @pytest.mark.parametrize("text", ["", "[]", '{"SPDisplaysDataType": 7}'])
    def test_a_profiler_that_says_nonsense_means_none(self, text: str) -> None:
        assert gpus.apple(lambda: text) == []

    def test_absent_libraries_are_normal(self) -> None:
        assert isinstance(gpus.detect(), list)


class TestSoftware:
    def test_versions_are_read_from_what_programs_say(self) -> None:
        said = {
            "podman": "podman version 4.3.1\n",
            "nvcc": "nvcc: NVIDIA\nCuda compilation tools, release 12.4, V12.4.131\n",
            "bwrap": "bubblewrap 0.8.0\n",
            "docker": "Docker version 28.2.2, build e6534b4\n",
        }
        found = dict(software.detect(lambda command: said.get(command[0], "")))
        assert found["podman"] == "4.3.1"
        assert found["cuda"] == "12.4"
        assert found["bubblewrap"] == "0.8.0"
        assert found["docker"] == "28.2.2"
        assert "rocm" not in found
        assert "python" in found

    def test_a_program_that_fails_is_not_there(self, tmp_path: Path) -> None:
        for name, text in {"podman": "exit 1", "docker": "echo 'Docker version 9.8.7'"}.items():
            path = tmp_path / name
            path.write_text(f"#!/bin/sh\n{text}\n")
            path.chmod(0o755)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
            found = dict(software.detect())
        assert found["docker"] == "9.8.7"
        assert "podman" not in found
