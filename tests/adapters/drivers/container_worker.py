"""A worker to be killed: starts a container that does not end, says who its helper is, waits."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from mycel.drivers.helper.spawn_helper import start_helper

if __name__ == "__main__":
    end = start_helper()

import msgspec

from mycel.core.identifiers import AttemptId, LaneId
from mycel.core.model.work import Run, Work
from mycel.drivers.container.container_driver import ContainerSettings
from mycel.drivers.container.container_engine import Engine
from mycel.drivers.helper.helper_client import HelperClient
from mycel.drivers.registry import DriverContext, create_driver
from mycel.testing.drivers.conformance_harness import Harness, Recorder, Subject

IMAGE = "localhost/mycel-test:latest"


async def work(folder: Path) -> None:
    engine = msgspec.json.decode(sys.stdin.readline(), type=Engine)
    recorder = Recorder()
    helper = HelperClient(end)
    context = DriverContext(
        helper=helper,
        listener=recorder,
        root=folder / "root",
        containers=ContainerSettings(engine=engine, allow_mounts=(str(folder),)),
    )
    driver = create_driver("container", context)
    command = ("sh", "-c", "touch /seen/started; sleep 1000")
    task = Work("container", command=command, image=IMAGE, mounts=(f"{folder}:/seen",))
    driver.submit(LaneId(1), [Run(AttemptId(1), "j.1", "j", 1, "owner", task, b"")])
    harness = Harness(Subject(), driver, recorder, folder, helper)
    await harness.until((folder / "started").exists)
    print(helper.process_id, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(work(Path(sys.argv[1])))
