"""A worker to be killed: starts a process and a call that never end, and waits."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from mycel.drivers.helper.spawn_helper import start_helper

if __name__ == "__main__":
    end = start_helper()

from mycel.core.identifiers import AttemptId, LaneId
from mycel.core.model.work import Work
from mycel.drivers.helper.helper_client import HelperClient
from mycel.drivers.interface import Finished, Run, Text
from mycel.drivers.registry import DriverContext, create_drivers


class Silent:
    def started(self, attempts: list[tuple[AttemptId, float]]) -> None: ...
    def finished(self, finished: list[Finished]) -> None: ...
    def streamed(self, attempt: AttemptId, piece: bytes) -> None: ...
    def wrote(self, texts: list[Text]) -> None: ...
    def returned(self, lane: LaneId, attempts: list[AttemptId]) -> None: ...
    def withdrawn(self, attempts: list[AttemptId]) -> None: ...


async def work(folder: Path) -> None:
    context = DriverContext(helper=HelperClient(end), listener=Silent(), root=folder / "root")
    script = f"echo $$ > {folder}/task; sleep 1000 & echo $! > {folder}/grandchild; wait"
    process = Work(driver="process", command=("sh", "-c", script))
    call = Work(
        driver="python",
        function="endless:call",
        env=(("PYTHONPATH", str(folder)), ("NOTE", str(folder / "call"))),
    )
    drivers = create_drivers([one.driver for one in (process, call)], context)
    for number, (driver, one) in enumerate(zip(drivers, (process, call), strict=True), 1):
        run = Run(AttemptId(number), f"j.{number}", "j", 1, "owner", one, b"")
        driver.submit(LaneId(number), [run])
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(work(Path(sys.argv[1])))
