"""`mycel bench quick`, with so few tasks that its figures mean nothing."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from mycel.bench import percentiles
from mycel.bench.quick.figures import Figures
from mycel.bench.quick.references import echoes_per_s
from mycel.local import scratch_homes

from .swarm import eventually

COMMAND = [sys.executable, "-m", "mycel", "bench", "quick", "--scale", "0.005"]
MOUNTS = Path("/proc/self/mountinfo")


def is_in_memory(folder: Path) -> bool:
    return scratch_homes.filesystem(folder, MOUNTS.read_text()) in scratch_homes.IN_MEMORY


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """On a disk, wherever the system keeps its temporary files."""
    if not is_in_memory(tmp_path):
        yield tmp_path
        return
    base = scratch_homes.default_folder()
    base.mkdir(parents=True, exist_ok=True)
    own = Path(tempfile.mkdtemp(prefix="test-", dir=base))
    yield own
    shutil.rmtree(own)


def processes_of(folder: Path) -> list[list[str]]:
    """What runs with this folder in its command line, apart from the benchmark itself."""
    found = (process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"]))
    return [one for one in found if str(folder) in " ".join(one) and "bench" not in one]


def test_it_prints_one_flat_object_and_leaves_nothing(folder: Path) -> None:
    command = [*COMMAND, "--json", "--folder", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert list(figures) == list(Figures.__struct_fields__)
    texts = {name for name, value in figures.items() if isinstance(value, str)}
    assert texts == {"python", "version"}
    speeds = [value for name, value in figures.items() if name.endswith("_per_s")]
    assert all(value > 0 for value in speeds)
    assert figures["latency_ms_p50"] <= figures["latency_ms_p95"] <= figures["latency_ms_p99"]
    assert list(folder.iterdir()) == []
    assert processes_of(folder) == []


def test_an_interrupt_leaves_nothing(folder: Path) -> None:
    command = [*COMMAND, "--folder", str(folder)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as bench:
        eventually(
            lambda: list(folder.glob("*/*/swarm.json")) or bench.poll() is not None,
            "a swarm has begun",
            60,
        )
        assert bench.poll() is None
        bench.send_signal(signal.SIGINT)
        assert bench.wait(60) == 130
    assert list(folder.iterdir()) == []
    assert processes_of(folder) == []


@pytest.mark.skipif(not is_in_memory(Path("/dev/shm")), reason="/dev/shm is no tmpfs here")
def test_memory_is_no_disk() -> None:
    folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
    try:
        command = [*COMMAND, "--folder", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    finally:
        shutil.rmtree(folder)
    assert done.returncode == 1
    assert "is on tmpfs, which is memory" in done.stderr
    assert done.stdout == ""


def test_the_innermost_mount_counts() -> None:
    mounts = (
        "22 1 254:0 / / rw - ext4 /dev/vda rw\n"
        "30 22 0:26 / /mnt rw shared:4 - ext4 /dev/vdb rw\n"
        "31 22 0:27 / /mnt rw shared:5 - tmpfs tmpfs rw\n"
        "32 22 0:28 / /with\\040blank rw - ramfs ramfs rw\n"
    )
    assert scratch_homes.filesystem(Path("/mnt/home"), mounts) == "tmpfs"
    assert scratch_homes.filesystem(Path("/mnthome"), mounts) == "ext4"
    assert scratch_homes.filesystem(Path("/with blank/x"), mounts) == "ramfs"


def test_percentiles_are_samples() -> None:
    samples = [float(number) for number in range(100, 0, -1)]
    assert percentiles.median(samples) == 50.0
    assert percentiles.percentile(samples, 99) == 99.0
    assert percentiles.percentile(samples, 100) == 100.0
    assert percentiles.percentile([7.0], 1) == 7.0


def test_echoes_are_counted() -> None:
    assert echoes_per_s(64) > 0


def test_blobs_are_measured_against_a_plain_socket(folder: Path) -> None:
    command = [sys.executable, "-m", "mycel", "bench", "blobs", "--json", "--folder", str(folder)]
    command += ["--size", "4", "--rounds", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["blob_mb_per_s"] > 0
    assert figures["ref_socket_mb_per_s"] > 0
    assert list(folder.iterdir()) == []
