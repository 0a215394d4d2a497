"""Container images: each is looked up by name, and fetched if it is missing."""

from __future__ import annotations

import asyncio
from typing import Final

from mycel.core.model.images import is_image_name
from mycel.core.model.work import Run
from mycel.drivers.helper_commands import HelperCommands
from mycel.drivers.preparation import Unavailable
from mycel.drivers.python.interpreter_records import clock

from .container_engine import Engine

PULL_SECONDS_MAX: Final = 3600.0
LOOK_SECONDS_MAX: Final = 60.0
KNOWN_SECONDS: Final = 300.0
"""So long an image is taken to be there without another look."""
_TROUBLE: Final = (
    "connection refused",
    "connection reset",
    "i/o timeout",
    "no such host",
    "network is unreachable",
    "temporary failure in name resolution",
    "tls handshake timeout",
    "no space left on device",
    "too many requests",
)
"""What is not the task's fault: another worker, or a later time, may have more luck."""


class ImageCache:
    """A `Preparation`. What an earlier worker left running is ended before anything starts."""

    def __init__(
        self, engine: Engine, commands: HelperCommands, worker: str, *, any_left: bool
    ) -> None:
        self._engine = engine
        self._commands = commands
        self.worker = worker
        self._seen_at: dict[str, float] = {}
        self._clearing = asyncio.get_running_loop().create_task(self._clear(any_left))

    def need_of(self, run: Run) -> str:
        return run.work.image or "?"

    def applied(self, run: Run) -> Run | None:
        seen_at = self._seen_at.get(run.work.image)
        return run if seen_at is not None and clock() - seen_at < KNOWN_SECONDS else None

    def released(self, need: str) -> None: ...

    def forget(self, image: str) -> None:
        """It has turned out to be gone."""
        self._seen_at.pop(image, None)

    async def obtain(self, run: Run) -> None:
        image = run.work.image
        if not is_image_name(image):
            raise Unavailable(f"{image!r} is no name of an image")
        await asyncio.shield(self._clearing)
        found = await self._commands.run(
            self._engine.image_exists(image), timeout_seconds=LOOK_SECONDS_MAX
        )
        if found.state != "succeeded":
            await self._pull(image)
        self._seen_at[image] = clock()

    async def close(self) -> None:
        self._clearing.cancel()
        await asyncio.gather(self._clearing, return_exceptions=True)
        await self._commands.close()

    async def _pull(self, image: str) -> None:
        end = await self._commands.run(self._engine.pull(image), timeout_seconds=PULL_SECONDS_MAX)
        if end.state == "succeeded":
            return
        output = end.stderr.decode(errors="replace").strip()
        trouble = any(sign in output.lower() for sign in _TROUBLE)
        last = output.rpartition("\n")[2].strip() or end.error
        raise Unavailable(
            f"the image {image!r} is not here and cannot be fetched: {last}",
            end.stderr,
            driver_fault=trouble or end.state != "failed",
        )

    async def _clear(self, any_left: bool) -> None:
        if not any_left:
            return
        listed = await self._commands.run(
            self._engine.containers_of(self.worker), timeout_seconds=LOOK_SECONDS_MAX
        )
        left = listed.stdout.decode(errors="replace").split()
        if left:
            command = self._engine.remove(*left)
            await self._commands.run(command, timeout_seconds=LOOK_SECONDS_MAX)
