"""Cores, memory and disk, as much of them as this process may use."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import psutil

from . import cgroup


def cpu_cores() -> float:
    """What the affinity mask and the control group leave; at least a hundredth."""
    try:
        cores = float(len(os.sched_getaffinity(0)))
    except AttributeError:  # not on macOS
        cores = float(os.cpu_count() or 1)
    limit = cgroup.limits().cpu_cores
    return cores if limit is None else max(0.01, min(cores, limit))


def memory_bytes() -> int:
    total = int(psutil.virtual_memory().total)
    limit = cgroup.limits().memory
    return total if limit is None else min(total, limit)


def disk_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free
