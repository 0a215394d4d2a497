"""A real Ray put through the promises of batch systems, in a network namespace of its own, because
Ray listens on all addresses.

    python -m tests.batch.ray_trial RAY FOLDER      inside of that namespace

`test_ray` makes the namespace, and ends everything in it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Final

from mycel.batch.errors import BatchError
from mycel.batch.ray.ray_system import RaySystem
from mycel.testing.batch.conformance import PROMISES, Harness

CORES: Final = 4
START_SECONDS: Final = 180.0


def main(ray: str, folder: str) -> int:
    os.environ["MYCEL_SECRET_OF_THE_TEST"] = "not for jobs"
    _start(ray, Path(folder) / "ray")
    system = RaySystem()
    _wait_for(system)
    broken = 0
    for promise in PROMISES:
        place = Path(folder) / promise.__name__
        place.mkdir()
        began = time.monotonic()
        try:
            promise(Harness(system, place, cores=CORES))
        except Exception:  # noqa: BLE001 - all of them are told
            traceback.print_exc()
            broken += 1
        print(f"{promise.__name__}: {time.monotonic() - began:.1f} s", flush=True)
    print(f"{len(PROMISES) - broken} of {len(PROMISES)} promises kept")
    return 1 if broken else 0


def _start(ray: str, folder: Path) -> None:
    folder.mkdir()
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "RAY_USAGE_STATS_ENABLED": "0"}
    command = [
        ray, "start", "--head", "--node-ip-address=127.0.0.1", f"--num-cpus={CORES}",
        "--dashboard-host=127.0.0.1", f"--temp-dir={folder}", "--disable-usage-stats",
        "--object-store-memory=100000000",
    ]  # fmt: skip
    with (folder / "start.log").open("wb") as log:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    assert done.returncode == 0, (folder / "start.log").read_text()


def _wait_for(system: RaySystem) -> None:
    ends_at = time.monotonic() + START_SECONDS
    while True:
        try:
            if system.capacity().cores == CORES:
                return
            problem = "it has no cores"
        except BatchError as error:
            problem = str(error)
        assert time.monotonic() < ends_at, f"Ray does not answer: {problem}"
        time.sleep(0.5)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
