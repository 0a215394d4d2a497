"""A podman of a test's own: private storage, an image of busybox, nothing left behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from mycel.drivers.container.container_engine import Engine

IMAGE = "localhost/mycel-test:latest"
PROGRAMS = ("cat", "echo", "env", "false", "ls", "setsid", "sh", "sleep", "touch", "true")


def missing() -> str:
    """Why containers cannot be tested here; empty if they can."""
    if os.geteuid() != 0:
        return "containers are tested as root"
    for program in ("podman", "runc", "busybox"):
        if shutil.which(program) is None:
            return f"{program} is not installed: scripts/install-test-tools brings it"
    return ""


def private_engine(folder: Path) -> Engine:
    """With crun, control groups of both versions on one machine do not work."""
    podman = shutil.which("podman")
    assert podman is not None
    options = (
        f"--root={folder}/root",
        f"--runroot={folder}/run",
        f"--tmpdir={folder}/tmp",
        "--storage-driver=vfs",
        "--runtime=runc",
        "--cgroup-manager=cgroupfs",
        "--events-backend=none",
    )
    return Engine("podman", podman, options)


def call(engine: Engine, *words: str) -> str:
    done = subprocess.run(engine.command(*words), capture_output=True, text=True, timeout=60)
    if done.returncode:
        pytest.fail(f"podman {' '.join(words)}: {done.stderr}")
    return done.stdout


def import_image(engine: Engine, folder: Path) -> None:
    busybox = shutil.which("busybox")
    assert busybox is not None
    archive = folder / "image.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(busybox, "bin/busybox")
        tar.addfile(tarfile.TarInfo("etc/passwd"))
        for name in PROGRAMS:
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
    call(engine, "import", "--quiet", str(archive), IMAGE)
